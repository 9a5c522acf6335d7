"""
Room that is kept for a unit before its pods can be bound.

    put(key, places) ──▶ the pods count on their nodes, as if they were there ──end──▶ as before
                                └── the unit itself is planned as if they were not: `lifted`

Used for room that evicted pods leave, and for members of a gang that do not exist yet. The places
may be more than is free now, because those that hold it are still going. A node that goes takes
what was kept on it along. Nothing here is timed, and nothing is told: see `preempting`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placement
from scheduler.model.unit import UnitKey


class ReservedCapacity:
    """What is kept, by the unit that it is kept for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: dict[UnitKey, tuple[Placement, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._kept

    def __iter__(self) -> Iterator[UnitKey]:
        return iter(tuple(self._kept))

    def of(self, key: UnitKey) -> tuple[Placement, ...]:
        return self._kept.get(key, ())

    def on(self, node: str) -> Iterator[Placement]:
        """What is kept on the node, in a fixed order."""
        for key in sorted(self._kept, key=str):
            yield from (one for one in self._kept[key] if one.node == node)

    def put(self, key: UnitKey, places: Iterable[Placement]) -> None:
        self.end(key)
        kept = tuple(one for one in places if one.node in self._snapshot)
        for one in kept:
            self._snapshot.charge(one.pod, one.node, one.assignment)
        if kept:
            self._kept[key] = kept

    def end(self, key: UnitKey) -> frozenset[str]:
        """The nodes on which something was kept."""
        gone = self._kept.pop(key, ())
        for one in gone:
            if one.node in self._snapshot:
                self._snapshot.release(one.pod, one.node, one.assignment)
        return frozenset(one.node for one in gone)

    def node_gone(self, name: str) -> None:
        """The node took its books along."""
        for key, places in list(self._kept.items()):
            left = tuple(one for one in places if one.node != name)
            if left:
                self._kept[key] = left
            else:
                del self._kept[key]

    @contextmanager
    def lifted(self, key: UnitKey) -> Iterator[bool]:
        """A trial in which nothing is kept for this unit; False: nothing is anyway."""
        places = self._kept.get(key)
        if not places:
            yield False
            return
        with self._snapshot.trial():
            for one in places:
                self._snapshot.suppose_gone(one.pod, one.node, one.assignment)
            yield True
