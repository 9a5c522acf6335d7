"""The volumes of a pod that not every node can give it."""

from dataclasses import dataclass
from typing import Final

from ..raw import Json


@dataclass(frozen=True, slots=True)
class VolumeWish:
    """Empty: nothing that ties the pod to a node."""


NO_VOLUMES: Final = VolumeWish()


def read(namespace: str, pod: str, spec: Json) -> VolumeWish:
    """Claims by name (those of ephemeral volumes are named after the pod), and in-tree disks."""
    return NO_VOLUMES
