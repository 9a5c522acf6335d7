"""
Capacity that is charged for a unit before its pods are bound.

    put(key, placements) ──▶ the pods count on their nodes ──end──▶ they no longer do
                                └── `without`: a trial in which they do not, to plan the unit itself

Preemption reserves what victims free, reservations reserve for gang members that are not created
yet. The placements may exceed the free capacity, because victims still terminate. A deleted node
takes its reserved capacity along. Nothing here depends on the time.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placement
from scheduler.model.unit import UnitKey


class ReservedCapacity:
    """Placements by the unit that they are reserved for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._placements: dict[UnitKey, tuple[Placement, ...]] = {}

    def __len__(self) -> int:
        return len(self._placements)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._placements

    def __iter__(self) -> Iterator[UnitKey]:
        return iter(tuple(self._placements))

    def of(self, key: UnitKey) -> tuple[Placement, ...]:
        return self._placements.get(key, ())

    def on(self, node: str) -> Iterator[Placement]:
        """The placements on the node, in a fixed order."""
        for key in sorted(self._placements, key=str):
            yield from (placement for placement in self._placements[key] if placement.node == node)

    def put(self, key: UnitKey, placements: Iterable[Placement]) -> None:
        self.end(key)
        charged = tuple(placement for placement in placements if placement.node in self._snapshot)
        try:
            for placement in charged:
                self._snapshot.charge(placement.pod, placement.node, placement.assignment)
        except Exception:
            # Nothing is reserved then: the repair of these nodes drops what was charged.
            self._snapshot.broken.update(placement.node for placement in charged)
            raise
        if charged:
            self._placements[key] = charged

    def end(self, key: UnitKey) -> frozenset[str]:
        """The nodes on which capacity was reserved."""
        ended = self._placements.pop(key, ())
        for placement in ended:
            if placement.node in self._snapshot:
                self._snapshot.release(placement.pod, placement.node, placement.assignment)
        return frozenset(placement.node for placement in ended)

    def node_gone(self, name: str) -> None:
        """The node was deleted; its plugins dropped its charges."""
        for key, placements in list(self._placements.items()):
            left = tuple(placement for placement in placements if placement.node != name)
            if left:
                self._placements[key] = left
            else:
                del self._placements[key]

    @contextmanager
    def without(self, key: UnitKey) -> Iterator[bool]:
        """A trial in which nothing is reserved for this unit; False: nothing is reserved anyway."""
        placements = self._placements.get(key)
        if not placements:
            yield False
            return
        with self._snapshot.trial():
            for placement in placements:
                self._snapshot.suppose_gone(placement.pod, placement.node, placement.assignment)
            yield True
