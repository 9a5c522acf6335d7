"""
What a simulation found, as values: one `ManifestResult` for each document, one `Pod` for each pod.

A pod ends in exactly one of four places:

    made --refused--> REFUSED      admission said no; `reasons` are the failed rules
      |
      +--other scheduler--> LEFT   somebody else's to place
      |
      +--planned--> PLACED         `node`, `numa`, `gpus`
              \\--> PENDING        `reasons` is what the scheduler would tell in its events
"""

from dataclasses import dataclass
from enum import StrEnum


class PodOutcome(StrEnum):
    """Where a pod ended."""

    PLACED = "placed"
    PENDING = "pending"
    LEFT = "left to another scheduler"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod and what became of it."""

    name: str
    fate: PodOutcome
    scheduler: str = ""
    node: str = ""
    numa: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Injected:
    """One thing that admission wrote: where, what, and on which pods."""

    field: str
    value: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ManifestResult:
    """One document: its verdict and the pods that came of it."""

    source: str
    line: int
    kind: str
    namespace: str
    name: str
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    injected: tuple[Injected, ...] = ()
    pods: tuple[Pod, ...] = ()

    @property
    def admitted(self) -> bool:
        return not self.refusals

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Totals:
    """The cluster's nodes and what they hold: resource name -> amount as people write it."""

    nodes: int
    resources: dict[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """The whole simulation."""

    cluster: Totals
    manifests: tuple[ManifestResult, ...]

    def count(self, fate: PodOutcome) -> int:
        return sum(pod.fate is fate for manifest in self.manifests for pod in manifest.pods)
