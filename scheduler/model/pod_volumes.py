"""
The volumes of a pod that not every node can give it.

    claims    persistent volume claims by name; those of ephemeral volumes are named after the pod
    disks     in-tree disks that two pods of a node may not share
    inline    in-tree disks that count against the limits of the CSI driver they moved to
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from scheduler.model.fields import Json, mapping, rows


class VolumeClaimRef(NamedTuple):
    """A claim that the pod mounts; one of an ephemeral volume must be owned by the pod."""

    name: str
    ephemeral: bool = False


class Disk(NamedTuple):
    """A disk named in the pod itself. `monitors` tell apart Ceph clusters."""

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()

    def conflicts(self, other: "Disk") -> bool:
        """Whether two pods on one node may not have both."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.monitors and not set(self.monitors) & set(other.monitors):
            return False
        return self.kind == _EBS or not (self.read_only and other.read_only)


class AttachableVolume(NamedTuple):
    """A volume as a CSI driver counts it. `moved`: an in-tree disk that the driver took over."""

    driver: str
    handle: str
    moved: bool = False


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Empty: nothing that ties the pod to a node."""

    namespace: str = ""
    """Where the claims live; empty without claims."""
    claims: tuple[VolumeClaimRef, ...] = ()
    """In the order of the spec: the first in trouble is the one that is told about."""
    disks: tuple[Disk, ...] = ()
    inline: tuple[AttachableVolume, ...] = ()

    def claim_keys(self) -> tuple[tuple[str, str], ...]:
        """(namespace, name) of each claim."""
        return tuple((self.namespace, claim.name) for claim in self.claims)


NO_VOLUMES: Final = PodVolumes()

_EBS: Final = "awsElasticBlockStore"

# The CSI driver that took over an in-tree disk, by the field of the volume source.
MOVED: Final[Mapping[str, str]] = {
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
    """Claims by name (those of ephemeral volumes are named after the pod), and in-tree disks."""
    volumes = rows(spec.get("volumes"))
    claims = tuple(claim for volume in volumes if (claim := _claim(pod, volume)) is not None)
    disks = tuple(disk for volume in volumes if (disk := _disk(volume)) is not None)
    inline = tuple(found for volume in volumes if (found := attachable(volume)) is not None)
    if not (claims or disks or inline):
        return NO_VOLUMES
    return PodVolumes(namespace if claims else "", claims, disks, inline)


def attachable(source: Json) -> AttachableVolume | None:
    """The CSI volume that an in-tree disk became; a source is that of a pod or of a volume."""
    for field, driver in MOVED.items():
        if found := mapping(source.get(field)):
            handle = _HANDLES[field](found)
            return AttachableVolume(driver, handle, moved=True) if handle else None
    return None


def _claim(pod: str, volume: Json) -> VolumeClaimRef | None:
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
