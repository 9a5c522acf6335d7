"""
Starvation protection: nodes held for a gang that has waited too long.

    starving gang does not fit ──▶ choose nodes ──▶ HELD ──placed, gone, forming, expired──▶ open
                                                      └─ closed to units of no higher priority

Small pods fill every gap as it appears, so a large gang at the head of the queue could starve. One
gang at a time has nodes held: the smallest set, most free capacity first, on which the planner
places the gang in a snapshot without the pods that will end. Pods that run there stay; new ones are
not placed. A hold expires, and the same gang gets the next one only after the same time again, so
that a gang that never fits does not idle nodes for ever. The search is bounded: it doubles the
number of nodes, up to a limit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scheduler import bounded
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, UnitKey
from scheduler.options import HOLD_SECONDS
from scheduler.plan import colocation, planner
from scheduler.plan.colocation import BoundMembers

MAX_NODES: Final = 1024  # that the search for a hold considers
MAX_PAUSES: Final = 65_536  # gangs that are remembered until their next hold

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class NodeHold:
    key: UnitKey
    nodes: frozenset[str]
    priority: int
    until: float


class StarvationProtection:
    """At most one hold at a time. Calls that end one return its nodes."""

    def __init__(self, *, seconds: float = HOLD_SECONDS) -> None:
        self.hold: NodeHold | None = None
        self._seconds = seconds
        self._not_before: dict[UnitKey, float] = {}  # gangs that had a hold

    def closed_to(self, unit: Unit) -> frozenset[str]:
        """The nodes that are held for another unit."""
        hold = self.hold
        if hold is None or hold.key == unit.key or unit.priority > hold.priority:
            return _NOTHING
        return hold.nodes

    def may_hold(self, unit: Unit, now: float) -> bool:
        """Whether nodes may be held for this starving unit now."""
        free = self.hold is None and unit.is_gang
        return free and now >= self._not_before.get(unit.key, now)

    def begin(self, unit: Unit, nodes: frozenset[str], now: float) -> None:
        """Without nodes the gang fits nowhere, and the search pauses as long as after a hold."""
        for key in [key for key, at in islice(self._not_before.items(), 2) if at <= now]:
            del self._not_before[key]  # the oldest are over first: all pauses are equally long
        bounded.remember(self._not_before, unit.key, now + 2 * self._seconds, MAX_PAUSES)
        if nodes:
            self.hold = NodeHold(unit.key, nodes, unit.priority, now + self._seconds)

    def end(self, key: UnitKey) -> frozenset[str]:
        """The gang was placed, was deleted, or forms again."""
        if self.hold is None or self.hold.key != key:
            return _NOTHING
        nodes = self.hold.nodes
        self.hold = None
        return nodes

    def expire(self, now: float) -> frozenset[str]:
        if self.hold is None or now < self.hold.until:
            return _NOTHING
        return self.end(self.hold.key)


def choose(
    unit: Unit,
    snapshot: Snapshot,
    permanent: Iterable[tuple[Pod, str]] = (),
    bound_members: BoundMembers = (),
) -> frozenset[str]:
    """
    Nodes on which the gang would fit with no other pods than the `permanent` ones.

    `bound_members` of the gang have a node: if all members must share a domain, it is theirs.
    """
    nodes = _by_free_capacity(unit, snapshot)
    open_rows = colocation.joinable(unit.pods, snapshot, bound_members)
    if open_rows is not None:
        nodes = [node for node in nodes if open_rows[snapshot.table.rows[node.name]]]
    nodes = nodes[:MAX_NODES]
    staying: dict[str, list[tuple[Pod, str]]] = {}
    for pod, name in permanent:
        staying.setdefault(name, []).append((pod, name))
    count = 1
    while nodes:
        some = nodes[:count]
        pods = [row for node in some for row in staying.get(node.name, ())]
        emptied = Snapshot.of(some, pods, registry=snapshot.registry)
        emptied.adopt(snapshot.tables)
        match planner.plan(unit, emptied):
            case Placed() as plan:
                return frozenset(placement.node for placement in plan.placements)
        if count >= len(nodes):
            break
        count *= 2
    return _NOTHING


def _by_free_capacity(unit: Unit, snapshot: Snapshot) -> list[Node]:
    """By how many members fit now by free amounts alone, then by name."""
    table = snapshot.table
    requests = [(name, count) for name, count in unit.pods[0].spec.requests if name != PODS]

    def fitting_members(node: Node) -> float:
        row = table.rows[node.name]
        return min((table.free_at(row, name) / count for name, count in requests), default=0.0)

    return sorted(table.nodes.values(), key=lambda node: (-fitting_members(node), node.name))
