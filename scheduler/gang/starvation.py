"""
Nodes kept free of newcomers for a gang that has waited too long.

    starving gang does not fit ──▶ choose nodes ──▶ HELD ──placed, gone, forming, too long──▶ open
                                                      └─ others of no higher priority keep out

Small pods take every gap as it appears, so a large gang at the head of the queue could wait for
ever. One gang at a time has nodes held: those with most room for it now of which few suffice, as
the planner finds on a picture of them emptied of what will end one day. What runs there goes on;
nothing new comes. A hold ends after a bounded time, whatever happens, and the same gang gets
another one only after as long again: a gang that never fits must not idle nodes for ever. The
search is bounded too: ever larger sets of nodes, up to a limit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, UnitKey
from scheduler.options import HOLD_SECONDS
from scheduler.plan import colocation, planner
from scheduler.plan.colocation import Mates

MOST_NODES: Final = 1024  # among how many nodes a place is sought

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
        self._not_before: dict[UnitKey, float] = {}  # gangs that had their turn

    def closed_to(self, unit: Unit) -> frozenset[str]:
        """The nodes that this unit must leave alone."""
        hold = self.hold
        if hold is None or hold.key == unit.key or unit.priority > hold.priority:
            return _NOTHING
        return hold.nodes

    def wanted(self, unit: Unit, now: float) -> bool:
        """Whether a hold for this starving unit may be sought now."""
        free = self.hold is None and unit.is_gang
        return free and now >= self._not_before.get(unit.key, now)

    def begin(self, unit: Unit, nodes: frozenset[str], now: float) -> None:
        """No nodes: there is no place for it even so, and it is not sought again for a while."""
        if len(self._not_before) >= 1024:
            self._not_before.clear()
        self._not_before[unit.key] = now + 2 * self._seconds
        if nodes:
            self.hold = NodeHold(unit.key, nodes, unit.priority, now + self._seconds)

    def end(self, key: UnitKey) -> frozenset[str]:
        """The gang was placed, went, or forms anew."""
        if self.hold is None or self.hold.key != key:
            return _NOTHING
        nodes, self.hold = self.hold.nodes, None
        return nodes

    def expire(self, now: float) -> frozenset[str]:
        if self.hold is None or now < self.hold.until:
            return _NOTHING
        return self.end(self.hold.key)


def choose(
    unit: Unit,
    snapshot: Snapshot,
    stay: Iterable[tuple[Pod, str]] = (),
    bound_members: Mates = (),
) -> frozenset[str]:
    """
    Nodes that would hold the gang if they were empty but for the pods that `stay`.

    `bound_members` are members that have a node: where all must share a domain, theirs is it.
    """
    nodes = _roomiest_first(unit, snapshot)
    open_rows = colocation.joinable(unit.pods, snapshot, bound_members)
    if open_rows is not None:
        nodes = [node for node in nodes if open_rows[snapshot.table.rows[node.name]]]
    nodes = nodes[:MOST_NODES]
    staying: dict[str, list[tuple[Pod, str]]] = {}
    for pod, name in stay:
        staying.setdefault(name, []).append((pod, name))
    count = 1
    while nodes:
        few = nodes[:count]
        picture = Snapshot.of(few, [row for node in few for row in staying.get(node.name, ())])
        picture.adopt(snapshot.tables)
        match planner.plan(unit, picture):
            case Placed() as plan:
                return frozenset(one.node for one in plan.placements)
        if count >= len(nodes):
            break
        count *= 2
    return _NOTHING


def _roomiest_first(unit: Unit, snapshot: Snapshot) -> list[Node]:
    """By how many members would fit by amounts alone, as things stand; then by name."""
    table = snapshot.table
    asked = [(name, count) for name, count in unit.pods[0].spec.requests if name != PODS]

    def room(node: Node) -> float:
        row = table.rows[node.name]
        return min((table.free_at(row, name) / count for name, count in asked), default=0.0)

    return sorted(table.nodes.values(), key=lambda node: (-room(node), node.name))
