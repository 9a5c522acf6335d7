"""
The result of planning: `Placed` or `NoFit`. A unit that does not fit is a result, not an exception.

The text of a `NoFit` has kube-scheduler's exact shape, because people and autoscalers read it:

    0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.

Reasons are sorted as texts, count first. The gang's progress follows behind that sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from policies import vocabulary
from scheduler.model.assignment import Assignment
from scheduler.model.over_quota import Excess
from scheduler.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod with its node, and its NUMA nodes and GPUs there."""

    pod: Pod
    node: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class GangCount:
    """Progress of a gang: `have` of `want` members `verb` (exist, fit)."""

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
    """Why no pod of the unit gets a node: counts per reason over all nodes, or one message."""

    nodes: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    """(reason, number of nodes)"""
    message: str = ""
    """Holds for all nodes, in place of the counts."""
    gang: GangCount | None = None
    forming: bool = False
    """Members are missing: the planner did not try any node."""
    over_quota: str = ""
    """Which quota is exceeded: the planner did not try any node."""
    excess: Excess | None = None
    """The limit that keeps the unit waiting; None: only planning tells."""

    @property
    def text(self) -> str:
        if self.over_quota:
            return self.over_quota
        if self.forming and self.gang is not None:
            return self.gang.text
        text = self._nodes_text()
        return f"{text} {self.gang.text}" if self.gang is not None else text

    def _nodes_text(self) -> str:
        if self.nodes == 0 and not self.message:
            return "no nodes available to schedule pods"
        counts = sorted(f"{count} {reason}" for reason, count in self.reasons)
        why = self.message or ", ".join(counts)
        return f"0/{self.nodes} nodes are available: {why}." if why else _NO_REASON % self.nodes


_NO_REASON: Final = "0/%d nodes are available."


@dataclass(frozen=True, slots=True)
class Placed:
    """`unplaced`: members above the gang's size that do not fit."""

    placements: tuple[Placement, ...]
    unplaced: tuple[Pod, ...] = ()
    why_unplaced: NoFit | None = None


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
    """The pod was not bound to this node. `why` is for logs and Events."""

    placement: Placement
    why: str
    permanent: bool = False
    """The API server would reject it on any node."""
    error: Exception | None = None
    """A bug of this program kept the pod from being bound."""


Result = Bound | Unbound


@dataclass(frozen=True, slots=True)
class PreBindFailure:
    """The pod cannot be bound to this node now. `why` is for logs and events."""

    placement: Placement
    why: str
    error: Exception | None = None
    """A bug of this program kept the pod from being prepared."""


@dataclass(frozen=True, slots=True)
class PreBindResult:
    """Who may be bound, and who must be planned again; each in the order of the plan."""

    ready: tuple[Placement, ...]
    failed: tuple[PreBindFailure, ...] = ()
