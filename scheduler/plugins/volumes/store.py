"""
Everything the API says about storage, with the indexes that filters need; fed from watches.

Whoever depends on a fact is told when it changes: `on_claim` with the claim's key, `on_place` with
the name of a node, of which something is attached or limited otherwise, `on_class` when any number
of claims may have changed their meaning. `version` counts all changes.

One writer, the event loop. No I/O: `feeds` says which collections tell these facts.
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.model.pod_volumes import AttachableVolume, VolumeClaimRef
from scheduler.plugins.volumes.storage_types import (
    ClaimKey,
    CsiDriver,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)


class VolumeStore:
    """Put and drop; each answers whether anything changed."""

    def __init__(self) -> None:
        self.version = 0
        self.drivers_version = 0  # counts the changes of CSINodes alone
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[
            str, dict[tuple[str, str], StorageCapacity]
        ] = {}  # class -> key -> it
        self.attached: dict[str, dict[str, VolumeAttachment]] = {}  # node -> name -> it
        self.of_class: dict[str, dict[str, PersistentVolume]] = {}  # class -> volume name -> it
        self._claims_of: dict[str, set[ClaimKey]] = {}  # volume name -> claims that name it
        self._attached_at: dict[str, set[str]] = {}  # volume name -> nodes
        self.on_claim: list[Callable[[ClaimKey], None]] = []
        self.on_place: list[Callable[[str], None]] = []
        self.on_class: list[Callable[[], None]] = []

    # --- claims and volumes ---

    def put_claim(self, claim: PersistentVolumeClaim) -> bool:
        old = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        if old == claim:
            return False
        self._index_claim(old, claim)
        return self._claim_changed(claim.key)

    def drop_claim(self, claim: PersistentVolumeClaim) -> bool:
        old = self.claims.pop(claim.key, None)
        if old is None:
            return False
        self._index_claim(old, None)
        return self._claim_changed(claim.key)

    def put_volume(self, volume: PersistentVolume) -> bool:
        old = self.volumes.get(volume.name)
        self.volumes[volume.name] = volume
        if old is not None and old.class_name != volume.class_name:
            self._unclassify(old)
        self.of_class.setdefault(volume.class_name, {})[volume.name] = volume
        return old != volume and self._volume_changed(old, volume)

    def drop_volume(self, volume: PersistentVolume) -> bool:
        old = self.volumes.pop(volume.name, None)
        if old is None:
            return False
        self._unclassify(old)
        return self._volume_changed(old, None)

    # --- what decides about them ---

    def put_class(self, found: StorageClass) -> bool:
        old, self.classes[found.name] = self.classes.get(found.name), found
        return old != found and self._class_changed()

    def drop_class(self, found: StorageClass) -> bool:
        return self.classes.pop(found.name, None) is not None and self._class_changed()

    def put_csi_node(self, found: CsiNode) -> bool:
        old, self.csi_nodes[found.name] = self.csi_nodes.get(found.name), found
        return old != found and self._node_changed(found.name)

    def drop_csi_node(self, found: CsiNode) -> bool:
        gone = self.csi_nodes.pop(found.name, None) is not None
        return gone and self._node_changed(found.name)

    def put_driver(self, found: CsiDriver) -> bool:
        old, self.drivers[found.name] = self.drivers.get(found.name), found
        return old != found and self._changed()

    def drop_driver(self, found: CsiDriver) -> bool:
        return self.drivers.pop(found.name, None) is not None and self._changed()

    def put_capacity(self, found: StorageCapacity) -> bool:
        here = self.capacities.setdefault(found.class_name, {})
        old, here[found.key] = here.get(found.key), found
        return old != found and self._changed()

    def drop_capacity(self, found: StorageCapacity) -> bool:
        gone = self.capacities.get(found.class_name, {}).pop(found.key, None)
        return gone is not None and self._changed()

    def put_attachment(self, found: VolumeAttachment) -> bool:
        """Where it is attached never changes in one object."""
        here = self.attached.setdefault(found.node, {})
        old, here[found.name] = here.get(found.name), found
        self._attached_at.setdefault(found.volume, set()).add(found.node)
        return old != found and self._place_changed(found.node)

    def drop_attachment(self, found: VolumeAttachment) -> bool:
        here = self.attached.get(found.node, {})
        if here.pop(found.name, None) is None:
            return False
        if not here:
            del self.attached[found.node]
        if not any(other.volume == found.volume for other in here.values()):
            self._attached_at.get(found.volume, set()).discard(found.node)
        return self._place_changed(found.node)

    # --- questions ---

    def claim_of(self, namespace: str, ref: VolumeClaimRef) -> PersistentVolumeClaim | None:
        return self.claims.get((namespace, ref.name))

    def attachable(self, key: ClaimKey) -> AttachableVolume | None:
        """How a CSI driver counts the claim's volume, made already or not; None: it does not."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.volume)
        if volume is not None:
            return volume.attachable
        found = self.classes.get(claim.class_name)
        if found is None or not found.provisioner:
            return None
        # No handle of a real volume has this form, so that the two are never taken for one.
        driver = _MOVED_PROVISIONERS.get(found.provisioner)
        handle = f"claim {key[0]}/{key[1]}"
        if driver is not None:
            return AttachableVolume(driver, handle, migrated=True)
        return AttachableVolume(found.provisioner, handle)

    def attachments(self, node: str) -> Iterator[AttachableVolume]:
        """The volumes that are attached to a node, as their drivers count them."""
        for found in self.attached.get(node, {}).values():
            volume = self.volumes.get(found.volume)
            if found.attacher and volume and volume.by_csi and volume.attachable:
                yield AttachableVolume(found.attacher, volume.attachable.handle)

    # --- telling ---

    def _index_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if old is not None and old.volume:
            self._claims_of.get(old.volume, set()).discard(old.key)
        if new is not None and new.volume:
            self._claims_of.setdefault(new.volume, set()).add(new.key)

    def _unclassify(self, volume: PersistentVolume) -> None:
        here = self.of_class.get(volume.class_name, {})
        here.pop(volume.name, None)
        if not here:
            self.of_class.pop(volume.class_name, None)

    def _claim_changed(self, key: ClaimKey) -> bool:
        for tell in self.on_claim:
            tell(key)
        return self._changed()

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> bool:
        name = new.name if new is not None else old.name if old is not None else ""
        claims = set(self._claims_of.get(name, ()))
        claims |= {state.claim.key for state in (old, new) if state is not None and state.claim}
        for key in sorted(claims):
            self._claim_changed(key)
        for node in sorted(self._attached_at.get(name, ())):
            self._place_changed(node)
        return self._changed()

    def _class_changed(self) -> bool:
        for tell in self.on_class:
            tell()
        return self._changed()

    def _node_changed(self, name: str) -> bool:
        self.drivers_version += 1
        return self._place_changed(name)

    def _place_changed(self, node: str) -> bool:
        for tell in self.on_place:
            tell(node)
        return self._changed()

    def _changed(self) -> bool:
        self.version += 1
        return True


_MOVED_PROVISIONERS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
