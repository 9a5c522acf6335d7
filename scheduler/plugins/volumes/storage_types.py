"""
What the API says about storage: claims, volumes and what decides about them, as frozen values.

Only what is read is kept. `version` is the object's resourceVersion: two states that differ in
nothing else are equal. A size that cannot be read counts as absent, since the API server stores
none that it cannot read itself.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from policies import quantity, vocabulary
from policies.json_fields import Json, mapping
from scheduler.model.fields import pairs, rows, words
from scheduler.model.label_selector import NodeTerms, Selector, read_node_terms, read_topologies
from scheduler.model.label_selector import read as read_selector
from scheduler.model.pod_volumes import AttachableVolume, attachable

ClaimKey = tuple[str, str]  # namespace, name

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
LATE: Final = "WaitForFirstConsumer"
ONE_POD: Final = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """A PersistentVolumeClaim."""

    key: ClaimKey
    uid: str = ""
    phase: str = "Pending"
    deleting: bool = False
    volume: str = ""
    bound: bool = False
    """The volume controller is done: volume and claim name each other."""
    class_name: str = ""
    modes: tuple[str, ...] = ()
    selector: Selector | None = None
    size: int | None = None
    volume_mode: str = "Filesystem"
    attributes: str = ""
    selected: str | None = None
    """The node that the volume shall be made for."""
    owner: str = ""
    """The uid of the controlling owner."""
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        notes = words(about.get("annotations"))
        volume = str(spec.get("volumeName") or "")
        return cls(
            key=(str(about.get("namespace") or "default"), str(about.get("name") or "")),
            uid=str(about.get("uid") or ""),
            phase=str(status.get("phase") or "Pending"),
            deleting=about.get("deletionTimestamp") is not None,
            volume=volume,
            bound=bool(volume) and vocabulary.BIND_COMPLETED_ANNOTATION in notes,
            class_name=notes.get(
                vocabulary.BETA_STORAGE_CLASS_ANNOTATION, str(spec.get("storageClassName") or "")
            ),
            modes=_strings(spec.get("accessModes")),
            selector=read_selector(spec.get("selector")),
            size=_size(mapping(mapping(spec.get("resources")).get("requests")).get("storage")),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            attributes=str(spec.get("volumeAttributesClassName") or ""),
            selected=notes.get(vocabulary.SELECTED_NODE_ANNOTATION),
            owner=_controller(about),
            version=str(about.get("resourceVersion") or ""),
        )


class VolumeOwnerRef(NamedTuple):
    """The claim that a volume names; without a uid it was named beforehand by a person."""

    key: ClaimKey
    uid: str = ""

    def means(self, claim: PersistentVolumeClaim) -> bool:
        return self.key == claim.key and self.uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    """A PersistentVolume."""

    name: str
    class_name: str = ""
    size: int = 0
    modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes: str = ""
    phase: str = "Pending"
    claim: VolumeOwnerRef | None = None
    labels: tuple[tuple[str, str], ...] = ()
    affinity: NodeTerms | None = None
    """The nodes that reach it; None: all."""
    deleting: bool = False
    attachable: AttachableVolume | None = None
    by_csi: bool = False
    """Its source is CSI's own, not one that a driver took over."""
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        notes = words(about.get("annotations"))
        csi = mapping(spec.get("csi"))
        driver, handle = str(csi.get("driver") or ""), str(csi.get("volumeHandle") or "")
        return cls(
            name=str(about.get("name") or ""),
            class_name=notes.get(
                vocabulary.BETA_STORAGE_CLASS_ANNOTATION, str(spec.get("storageClassName") or "")
            ),
            size=_size(mapping(spec.get("capacity")).get("storage")) or 0,
            modes=_strings(spec.get("accessModes")),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            attributes=str(spec.get("volumeAttributesClassName") or ""),
            phase=str(status.get("phase") or "Pending"),
            claim=_ref(spec.get("claimRef")),
            labels=pairs(about.get("labels")),
            affinity=read_node_terms(mapping(spec.get("nodeAffinity")).get("required")),
            deleting=about.get("deletionTimestamp") is not None,
            attachable=AttachableVolume(driver, handle) if driver and handle else attachable(spec),
            by_csi=bool(csi),
            version=str(about.get("resourceVersion") or ""),
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str = ""
    late: bool = False
    """Claims wait for their first pod."""
    topologies: NodeTerms = ()
    """Where volumes can be made; empty: anywhere."""

    @property
    def makes_volumes(self) -> bool:
        return self.provisioner not in ("", NO_PROVISIONER)

    @classmethod
    def read(cls, obj: Json) -> Self:
        return cls(
            name=str(mapping(obj.get("metadata")).get("name") or ""),
            provisioner=str(obj.get("provisioner") or ""),
            late=obj.get("volumeBindingMode") == LATE,
            topologies=read_topologies(obj.get("allowedTopologies")),
        )


@dataclass(frozen=True, slots=True)
class CsiNode:
    """The CSI drivers of a node; a limit of None: as many volumes as one likes."""

    name: str
    limits: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def read(cls, obj: Json) -> Self:
        found: dict[str, int | None] = {}
        for row in rows(mapping(obj.get("spec")).get("drivers")):
            count = mapping(row.get("allocatable")).get("count")
            found[str(row.get("name"))] = count if isinstance(count, int) else None
        return cls(
            str(mapping(obj.get("metadata")).get("name") or ""), tuple(sorted(found.items()))
        )


@dataclass(frozen=True, slots=True)
class CsiDriver:
    name: str
    tells_capacity: bool = False
    required: bool = False
    """Its volumes go only to nodes that have the driver."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        return cls(
            name=str(mapping(obj.get("metadata")).get("name") or ""),
            tells_capacity=spec.get("storageCapacity") is True,
            required=spec.get("preventPodSchedulingIfMissing") is True,
        )


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: how large a volume of a class can be on these nodes."""

    key: tuple[str, str]
    class_name: str
    largest: int | None = None
    nodes: Selector | None = None
    """None: reachable from nowhere."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        about = mapping(obj.get("metadata"))
        largest = obj.get("maximumVolumeSize")
        return cls(
            key=(str(about.get("namespace") or ""), str(about.get("name") or "")),
            class_name=str(obj.get("storageClassName") or ""),
            largest=_size(obj.get("capacity") if largest is None else largest),
            nodes=read_selector(obj.get("nodeTopology")),
        )


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A VolumeAttachment: the volume is, or is about to be, at the node."""

    name: str
    node: str = ""
    attacher: str = ""
    volume: str = ""

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        return cls(
            name=str(mapping(obj.get("metadata")).get("name") or ""),
            node=str(spec.get("nodeName") or ""),
            attacher=str(spec.get("attacher") or ""),
            volume=str(mapping(spec.get("source")).get("persistentVolumeName") or ""),
        )


def _ref(found: object) -> VolumeOwnerRef | None:
    if not isinstance(found, dict):
        return None
    key = (str(found.get("namespace") or ""), str(found.get("name") or ""))
    return VolumeOwnerRef(key, str(found.get("uid") or ""))


def _controller(about: Json) -> str:
    owners = rows(about.get("ownerReferences"))
    return next((str(row.get("uid")) for row in owners if row.get("controller") is True), "")


def _strings(found: object) -> tuple[str, ...]:
    return tuple(str(word) for word in found) if isinstance(found, list) else ()


def _size(found: object) -> int | None:
    try:
        return None if found is None else quantity.units(found)
    except quantity.QuantityError:
        return None
