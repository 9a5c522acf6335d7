"""
The volumes of a pod that constrain its placement.

    pvcs      PersistentVolumeClaims by name; those of ephemeral volumes are named after the pod
    disks     in-tree disks that two pods of a node may not share
    inline    in-tree disks that count against the limits of the CSI driver they moved to
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows


class VolumeClaimRef(NamedTuple):
    """A PVC that the pod mounts; the pod must own that of an ephemeral volume."""

    name: str
    ephemeral: bool = False


class Disk(NamedTuple):
    """An in-tree disk in the pod's spec. `monitors` identify the Ceph cluster."""

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    def conflicts(self, other: "Disk") -> bool:
        """Whether two pods on one node may not mount both."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.monitors and not set(self.monitors) & set(other.monitors):
            return False
        return self.kind == _EBS or not (self.read_only and other.read_only)


class AttachableVolume(NamedTuple):
    """A volume as a CSI driver counts it. `migrated`: an in-tree disk of that driver."""

    driver: str
    handle: str
    migrated: bool = False


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Empty: volumes do not constrain the placement."""

    namespace: str = ""
    """The namespace of the PVCs; empty without PVCs."""
    pvcs: tuple[VolumeClaimRef, ...] = ()
    """In the order of the spec: messages name the first one that has a problem."""
    disks: tuple[Disk, ...] = ()
    inline: tuple[AttachableVolume, ...] = ()

    def pvc_keys(self) -> tuple[tuple[str, str], ...]:
        """(namespace, name) of each PVC."""
        return tuple((self.namespace, pvc.name) for pvc in self.pvcs)


NO_VOLUMES: Final = PodVolumes()

_EBS: Final = "awsElasticBlockStore"

# The CSI driver that an in-tree disk migrated to, by the field of the volume source.
CSI_DRIVERS: Final[Mapping[str, str]] = {
    _EBS: "ebs.csi.aws.com",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "azureDisk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "portworxVolume": "pxd.portworx.com",
}

_HANDLES: Final[Mapping[str, Callable[[Json], str]]] = {
    # The identifier may carry a zone in front: aws://us-east-1a/vol-0123
    _EBS: lambda source: str(source.get("volumeID") or "").rpartition("/")[2],
    "gcePersistentDisk": lambda source: str(source.get("pdName") or ""),
    "azureDisk": lambda source: str(source.get("diskURI") or ""),
    "cinder": lambda source: str(source.get("volumeID") or ""),
    "portworxVolume": lambda source: str(source.get("volumeID") or ""),
}


def read(namespace: str, pod: str, spec: Json) -> PodVolumes:
    volumes = rows(spec.get("volumes"))
    pvcs = tuple(pvc for volume in volumes if (pvc := _pvc(pod, volume)) is not None)
    disks = tuple(disk for volume in volumes if (disk := _disk(volume)) is not None)
    attached = (attachable(volume) for volume in volumes)
    inline = tuple(volume for volume in attached if volume is not None)
    if not (pvcs or disks or inline):
        return NO_VOLUMES
    return PodVolumes(namespace if pvcs else "", pvcs, disks, inline)


def attachable(source: Json) -> AttachableVolume | None:
    """The CSI volume of an in-tree disk; `source` is a volume of a pod, or a PV's spec."""
    for field, driver in CSI_DRIVERS.items():
        if disk := mapping(source.get(field)):
            handle = _HANDLES[field](disk)
            return AttachableVolume(driver, handle, migrated=True) if handle else None
    return None


def _pvc(pod: str, volume: Json) -> VolumeClaimRef | None:
    if claim := mapping(volume.get("persistentVolumeClaim")):
        return VolumeClaimRef(str(claim.get("claimName") or ""))
    if mapping(volume.get("ephemeral")):
        return VolumeClaimRef(f"{pod}-{volume.get('name')}", ephemeral=True)
    return None


def _disk(volume: Json) -> Disk | None:
    if gce := mapping(volume.get("gcePersistentDisk")):
        return Disk("gcePersistentDisk", str(gce.get("pdName") or ""), _read_only(gce))
    if ebs := mapping(volume.get(_EBS)):
        return Disk(_EBS, str(ebs.get("volumeID") or ""), _read_only(ebs))
    if iscsi := mapping(volume.get("iscsi")):
        return Disk("iscsi", str(iscsi.get("iqn") or ""), _read_only(iscsi))
    if rbd := mapping(volume.get("rbd")):
        image = f"{rbd.get('pool') or 'rbd'}/{rbd.get('image')}"
        monitors = tuple(str(name) for name in rbd.get("monitors") or ())
        return Disk("rbd", image, _read_only(rbd), monitors)
    return None


def _read_only(source: Json) -> bool:
    return source.get("readOnly") is True
