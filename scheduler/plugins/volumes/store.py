"""
The watched storage objects, with the indexes that filters need.

Listeners learn of changes: `on_pvc` gets the key of a PVC, `on_node` the name of a node whose
attachments or limits changed, and `on_class` is called when a class changed, which may affect any
PVC. `version` counts all changes.

One writer, the event loop. No I/O: `informers` lists the watched resources.
"""

from collections.abc import Callable, Iterator
from typing import Final

from scheduler.model.pod_volumes import AttachableVolume, VolumeClaimRef
from scheduler.plugins.volumes.storage_types import (
    CsiDriver,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    PvcKey,
    StorageCapacity,
    StorageClass,
    VolumeAttachment,
)


class VolumeStore:
    """`put_*` and `drop_*` return whether something changed."""

    def __init__(self) -> None:
        self.version = 0
        self.csi_nodes_version = 0  # counts the changes of CSINodes alone
        self.pvcs: dict[PvcKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[str, dict[tuple[str, str], StorageCapacity]] = {}  # by class and key
        self.attached: dict[str, dict[str, VolumeAttachment]] = {}  # by node and name
        self.volumes_by_class: dict[str, dict[str, PersistentVolume]] = {}  # by class and name
        self._pvcs_by_volume: dict[str, set[PvcKey]] = {}  # volume name -> PVCs that name it
        self._nodes_by_volume: dict[str, set[str]] = {}  # volume name -> nodes
        self.on_pvc: list[Callable[[PvcKey], None]] = []
        self.on_node: list[Callable[[str], None]] = []
        self.on_class: list[Callable[[], None]] = []

    # --- PVCs and volumes ---

    def put_pvc(self, pvc: PersistentVolumeClaim) -> bool:
        old = self.pvcs.get(pvc.key)
        self.pvcs[pvc.key] = pvc
        if old == pvc:
            return False
        self._index_pvc(old, pvc)
        return self._pvc_changed(pvc.key)

    def drop_pvc(self, pvc: PersistentVolumeClaim) -> bool:
        old = self.pvcs.pop(pvc.key, None)
        if old is None:
            return False
        self._index_pvc(old, None)
        return self._pvc_changed(pvc.key)

    def put_volume(self, volume: PersistentVolume) -> bool:
        old = self.volumes.get(volume.name)
        self.volumes[volume.name] = volume
        if old is not None and old.class_name != volume.class_name:
            self._unclassify(old)
        self.volumes_by_class.setdefault(volume.class_name, {})[volume.name] = volume
        return old != volume and self._volume_changed(old, volume)

    def drop_volume(self, volume: PersistentVolume) -> bool:
        old = self.volumes.pop(volume.name, None)
        if old is None:
            return False
        self._unclassify(old)
        return self._volume_changed(old, None)

    # --- classes, CSI nodes and drivers, capacities, attachments ---

    def put_class(self, item: StorageClass) -> bool:
        old, self.classes[item.name] = self.classes.get(item.name), item
        return old != item and self._class_changed()

    def drop_class(self, item: StorageClass) -> bool:
        return self.classes.pop(item.name, None) is not None and self._class_changed()

    def put_csi_node(self, item: CsiNode) -> bool:
        old, self.csi_nodes[item.name] = self.csi_nodes.get(item.name), item
        return old != item and self._csi_node_changed(item.name)

    def drop_csi_node(self, item: CsiNode) -> bool:
        gone = self.csi_nodes.pop(item.name, None) is not None
        return gone and self._csi_node_changed(item.name)

    def put_driver(self, item: CsiDriver) -> bool:
        old, self.drivers[item.name] = self.drivers.get(item.name), item
        return old != item and self._changed()

    def drop_driver(self, item: CsiDriver) -> bool:
        return self.drivers.pop(item.name, None) is not None and self._changed()

    def put_capacity(self, item: StorageCapacity) -> bool:
        capacities = self.capacities.setdefault(item.class_name, {})
        old, capacities[item.key] = capacities.get(item.key), item
        return old != item and self._changed()

    def drop_capacity(self, item: StorageCapacity) -> bool:
        gone = self.capacities.get(item.class_name, {}).pop(item.key, None)
        return gone is not None and self._changed()

    def put_attachment(self, item: VolumeAttachment) -> bool:
        """The node of an attachment never changes."""
        attachments = self.attached.setdefault(item.node, {})
        old, attachments[item.name] = attachments.get(item.name), item
        self._nodes_by_volume.setdefault(item.volume, set()).add(item.node)
        return old != item and self._node_changed(item.node)

    def drop_attachment(self, item: VolumeAttachment) -> bool:
        attachments = self.attached.get(item.node, {})
        if attachments.pop(item.name, None) is None:
            return False
        if not attachments:
            del self.attached[item.node]
        if not any(other.volume == item.volume for other in attachments.values()):
            self._nodes_by_volume.get(item.volume, set()).discard(item.node)
        return self._node_changed(item.node)

    # --- lookups ---

    def pvc_of(self, namespace: str, ref: VolumeClaimRef) -> PersistentVolumeClaim | None:
        return self.pvcs.get((namespace, ref.name))

    def attachable(self, key: PvcKey) -> AttachableVolume | None:
        """The PVC's volume as its CSI driver counts it, provisioned or not; None: not counted."""
        pvc = self.pvcs.get(key)
        if pvc is None:
            return None
        volume = self.volumes.get(pvc.volume)
        if volume is not None:
            return volume.attachable
        storage_class = self.classes.get(pvc.class_name)
        if storage_class is None or not storage_class.provisioner:
            return None
        # No real volume has a handle of this form, so the two never collide.
        driver = _MIGRATED_PROVISIONERS.get(storage_class.provisioner)
        handle = f"claim {key[0]}/{key[1]}"
        if driver is not None:
            return AttachableVolume(driver, handle, migrated=True)
        return AttachableVolume(storage_class.provisioner, handle)

    def attachments(self, node: str) -> Iterator[AttachableVolume]:
        """The volumes attached to a node, as their drivers count them."""
        for item in self.attached.get(node, {}).values():
            volume = self.volumes.get(item.volume)
            if item.attacher and volume and volume.is_csi and volume.attachable:
                yield AttachableVolume(item.attacher, volume.attachable.handle)

    # --- indexes and listeners ---

    def _index_pvc(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if old is not None and old.volume:
            self._pvcs_by_volume.get(old.volume, set()).discard(old.key)
        if new is not None and new.volume:
            self._pvcs_by_volume.setdefault(new.volume, set()).add(new.key)

    def _unclassify(self, volume: PersistentVolume) -> None:
        volumes = self.volumes_by_class.get(volume.class_name, {})
        volumes.pop(volume.name, None)
        if not volumes:
            self.volumes_by_class.pop(volume.class_name, None)

    def _pvc_changed(self, key: PvcKey) -> bool:
        for notify in self.on_pvc:
            notify(key)
        return self._changed()

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> bool:
        name = new.name if new is not None else old.name if old is not None else ""
        pvcs = set(self._pvcs_by_volume.get(name, ()))
        pvcs |= {
            state.claim_ref.key for state in (old, new) if state is not None and state.claim_ref
        }
        for key in sorted(pvcs):
            self._pvc_changed(key)
        for node in sorted(self._nodes_by_volume.get(name, ())):
            self._node_changed(node)
        return self._changed()

    def _class_changed(self) -> bool:
        for notify in self.on_class:
            notify()
        return self._changed()

    def _csi_node_changed(self, name: str) -> bool:
        self.csi_nodes_version += 1
        return self._node_changed(name)

    def _node_changed(self, node: str) -> bool:
        for notify in self.on_node:
            notify(node)
        return self._changed()

    def _changed(self) -> bool:
        self.version += 1
        return True


_MIGRATED_PROVISIONERS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
