"""
Storage objects as frozen values: PVCs, PVs, classes, CSI nodes and drivers.

They keep only the fields that the scheduler reads. `version` is the object's resourceVersion:
states that differ in nothing else are equal. The API server stores no size that it cannot parse, so
a size that cannot be parsed counts as absent.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from policies import quantity, vocabulary
from policies.json_fields import Json, mapping
from scheduler.model.fields import pairs, rows, words
from scheduler.model.label_selector import NodeTerms, Selector, read_node_terms, read_topologies
from scheduler.model.label_selector import read as read_selector
from scheduler.model.pod_volumes import AttachableVolume, attachable

PvcKey = tuple[str, str]  # namespace, name

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    key: PvcKey
    uid: str = ""
    phase: str = "Pending"
    deleting: bool = False
    volume: str = ""
    bound: bool = False
    """The PV controller is done: volume and claim refer to each other."""
    class_name: str = ""
    access_modes: tuple[str, ...] = ()
    selector: Selector = None
    size: int | None = None
    volume_mode: str = "Filesystem"
    attributes: str = ""
    selected_node: str | None = None
    """The node that the provisioner creates the volume for."""
    owner: str = ""
    """The uid of the controlling owner."""
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        annotations = words(about.get("annotations"))
        volume = str(spec.get("volumeName") or "")
        return cls(
            key=(str(about.get("namespace") or "default"), str(about.get("name") or "")),
            uid=str(about.get("uid") or ""),
            phase=str(status.get("phase") or "Pending"),
            deleting=about.get("deletionTimestamp") is not None,
            volume=volume,
            bound=bool(volume) and vocabulary.BIND_COMPLETED_ANNOTATION in annotations,
            class_name=annotations.get(
                vocabulary.BETA_STORAGE_CLASS_ANNOTATION, str(spec.get("storageClassName") or "")
            ),
            access_modes=_strings(spec.get("accessModes")),
            selector=read_selector(spec.get("selector")),
            size=_size(mapping(mapping(spec.get("resources")).get("requests")).get("storage")),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            attributes=str(spec.get("volumeAttributesClassName") or ""),
            selected_node=annotations.get(vocabulary.SELECTED_NODE_ANNOTATION),
            owner=_controller(about),
            version=str(about.get("resourceVersion") or ""),
        )


class ClaimRef(NamedTuple):
    """A volume's claimRef; without a uid the user reserved the volume for a claim."""

    key: PvcKey
    uid: str = ""

    def refers_to(self, pvc: PersistentVolumeClaim) -> bool:
        return self.key == pvc.key and self.uid in ("", pvc.uid)


@dataclass(frozen=True, slots=True)
class PersistentVolume:
    name: str
    class_name: str = ""
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes: str = ""
    phase: str = "Pending"
    claim_ref: ClaimRef | None = None
    labels: tuple[tuple[str, str], ...] = ()
    affinity: NodeTerms | None = None
    """The nodes that can mount it; None: all."""
    deleting: bool = False
    attachable: AttachableVolume | None = None
    is_csi: bool = False
    """Its source is `csi`, not an in-tree disk that migrated to a driver."""
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        annotations = words(about.get("annotations"))
        csi = mapping(spec.get("csi"))
        driver, handle = str(csi.get("driver") or ""), str(csi.get("volumeHandle") or "")
        return cls(
            name=str(about.get("name") or ""),
            class_name=annotations.get(
                vocabulary.BETA_STORAGE_CLASS_ANNOTATION, str(spec.get("storageClassName") or "")
            ),
            size=_size(mapping(spec.get("capacity")).get("storage")) or 0,
            access_modes=_strings(spec.get("accessModes")),
            volume_mode=str(spec.get("volumeMode") or "Filesystem"),
            attributes=str(spec.get("volumeAttributesClassName") or ""),
            phase=str(status.get("phase") or "Pending"),
            claim_ref=_claim_ref(spec.get("claimRef")),
            labels=pairs(about.get("labels")),
            affinity=read_node_terms(mapping(spec.get("nodeAffinity")).get("required")),
            deleting=about.get("deletionTimestamp") is not None,
            attachable=AttachableVolume(driver, handle) if driver and handle else attachable(spec),
            is_csi=bool(csi),
            version=str(about.get("resourceVersion") or ""),
        )


@dataclass(frozen=True, slots=True)
class StorageClass:
    name: str
    provisioner: str = ""
    delayed_binding: bool = False
    """volumeBindingMode is WaitForFirstConsumer."""
    topologies: NodeTerms = ()
    """Nodes for which it can provision volumes; empty: all."""

    @property
    def can_provision(self) -> bool:
        return self.provisioner not in ("", NO_PROVISIONER)

    @classmethod
    def read(cls, obj: Json) -> Self:
        return cls(
            name=str(mapping(obj.get("metadata")).get("name") or ""),
            provisioner=str(obj.get("provisioner") or ""),
            delayed_binding=obj.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER,
            topologies=read_topologies(obj.get("allowedTopologies")),
        )


@dataclass(frozen=True, slots=True)
class CsiNode:
    """The CSI drivers of a node, with their volume limits; None: unlimited."""

    name: str
    limits: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def read(cls, obj: Json) -> Self:
        limits: dict[str, int | None] = {}
        for row in rows(mapping(obj.get("spec")).get("drivers")):
            count = mapping(row.get("allocatable")).get("count")
            limits[str(row.get("name"))] = count if isinstance(count, int) else None
        return cls(
            str(mapping(obj.get("metadata")).get("name") or ""), tuple(sorted(limits.items()))
        )


@dataclass(frozen=True, slots=True)
class CsiDriver:
    name: str
    reports_capacity: bool = False
    required: bool = False
    """Pods with its volumes need a node with the driver."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        return cls(
            name=str(mapping(obj.get("metadata")).get("name") or ""),
            reports_capacity=spec.get("storageCapacity") is True,
            required=spec.get("preventPodSchedulingIfMissing") is True,
        )


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class on these nodes."""

    key: tuple[str, str]
    class_name: str
    max_size: int | None = None
    nodes: Selector = None
    """None: no node."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        about = mapping(obj.get("metadata"))
        max_size = obj.get("maximumVolumeSize")
        return cls(
            key=(str(about.get("namespace") or ""), str(about.get("name") or "")),
            class_name=str(obj.get("storageClassName") or ""),
            max_size=_size(obj.get("capacity") if max_size is None else max_size),
            nodes=read_selector(obj.get("nodeTopology")),
        )


@dataclass(frozen=True, slots=True)
class VolumeAttachment:
    """A VolumeAttachment: the volume is attached to the node, or will be."""

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


def _claim_ref(value: object) -> ClaimRef | None:
    if not isinstance(value, dict):
        return None
    key = (str(value.get("namespace") or ""), str(value.get("name") or ""))
    return ClaimRef(key, str(value.get("uid") or ""))


def _controller(about: Json) -> str:
    owners = rows(about.get("ownerReferences"))
    return next((str(row.get("uid")) for row in owners if row.get("controller") is True), "")


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _size(value: object) -> int | None:
    try:
        return None if value is None else quantity.units(value)
    except quantity.QuantityError:
        return None
