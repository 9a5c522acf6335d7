"""
What planning answers: `Placed` or `NoFit`. Not fitting is an answer, not an exception.

The text of a `NoFit` has kube-scheduler's exact shape, because people and autoscalers read it:

    0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.

Reasons are sorted as texts, count first. What concerns a gang follows behind that sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from policies import vocabulary
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod with its node and its place inside it."""

    pod: Pod
    node: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class GangCount:
    """How far a gang has come: `have` of `want` members `verb` (exist, fit)."""

    name: str
    have: int
    want: int
    verb: str

    @property
    def text(self) -> str:
        return (
            f"{vocabulary.WAITING_FOR_POD_GROUP} {self.name}: {self.have}/{self.want} {self.verb}"
        )


@dataclass(frozen=True, slots=True)
class NoFit:
    """Why nobody of the unit gets a node: per-filter counts over all nodes, or one sentence."""

    nodes: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    """(reason, how many nodes gave it)"""
    sentence: str = ""
    """Stands for all nodes at once, in place of the counts."""
    gang: GangCount | None = None
    forming: bool = False
    """Members are missing: nothing was tried, and nothing is wrong with the cluster."""
    held_back: str = ""
    """The tenant's quota keeps it waiting, in these words: nothing was tried."""

    @property
    def text(self) -> str:
        if self.held_back:
            return self.held_back
        if self.forming and self.gang is not None:
            return self.gang.text
        said = self._nodes_text()
        return f"{said} {self.gang.text}" if self.gang is not None else said

    def _nodes_text(self) -> str:
        if self.nodes == 0 and not self.sentence:
            return "no nodes available to schedule pods"
        counts = sorted(f"{count} {reason}" for reason, count in self.reasons)
        why = self.sentence or ", ".join(counts)
        return f"0/{self.nodes} nodes are available: {why}." if why else _UNSAID % self.nodes


_UNSAID = "0/%d nodes are available."


@dataclass(frozen=True, slots=True)
class Placed:
    """Who goes where. `left`: members above the gang's size for which there is no room."""

    placements: tuple[Placement, ...]
    left: tuple[Pod, ...] = ()
    why_left: NoFit | None = None


Plan = Placed | NoFit


def tally(reasons: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """(reason, count), in the order of the reasons."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return tuple(sorted(counts.items()))


@dataclass(frozen=True, slots=True)
class Bound:
    placement: Placement


@dataclass(frozen=True, slots=True)
class Unbound:
    """The pod did not get this node. `why` is for logs and events."""

    placement: Placement
    why: str
    permanent: bool = False
    """The API server will refuse it again, on any node."""


Result = Bound | Unbound


@dataclass(frozen=True, slots=True)
class PreBindFailure:
    """The pod cannot be bound to this node now. `why` is for logs and events."""

    placement: Placement
    why: str


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """Who may be bound, and who must be planned again; each in the order of the plan."""

    ready: tuple[Placement, ...]
    failed: tuple[PreBindFailure, ...] = ()
