"""
The result of a simulation as values: a `ManifestResult` per document, a `Pod` per pod.

A pod ends in exactly one of four places:

    made --denied--> DENIED        by admission; `reasons` are the failed rules
      |
      +--other scheduler--> LEFT   not placed here
      |
      +--planned--> PLACED         `node`, `numa`, `gpus`
              \\--> PENDING        `reasons` is the note of the scheduler's FailedScheduling Event
"""

from dataclasses import dataclass
from enum import StrEnum


class PodOutcome(StrEnum):
    """What became of a pod."""

    PLACED = "placed"
    PENDING = "pending"
    LEFT = "left to another scheduler"
    DENIED = "denied"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod and its outcome."""

    name: str
    outcome: PodOutcome
    scheduler: str = ""
    node: str = ""
    numa: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Injected:
    """One field that admission wrote, its value, and the pods that got it."""

    field: str
    value: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManifestResult:
    """One document: its verdict and its pods."""

    source: str
    line: int
    kind: str
    namespace: str
    name: str
    denials: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    injected: tuple[Injected, ...] = ()
    pods: tuple[Pod, ...] = ()

    @property
    def admitted(self) -> bool:
        return not self.denials

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClusterTotals:
    """The number of nodes and their allocatable: resource name -> quantity."""

    nodes: int
    resources: dict[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """The whole simulation."""

    cluster: ClusterTotals
    manifests: tuple[ManifestResult, ...]

    def count(self, outcome: PodOutcome) -> int:
        return sum(pod.outcome is outcome for manifest in self.manifests for pod in manifest.pods)
