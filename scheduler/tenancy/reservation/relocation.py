"""
Places for members to come whose node was lost: found elsewhere, or looked for until there are any.

    node gone, cordoned, tainted, closed by a policy
        ──room elsewhere──▶ kept there, with an Event
        ──no room────────▶ SHORT, with an Event ──something came free──▶ looked for again

All members of the gang that are still to come are planned together, as when they were first given
their places, and with the ones that are there counted. Nobody is evicted for it. Whoever comes
meanwhile waits until all that the gang needs have a place: see `Unit.plannable`. When a reservation
ends is decided elsewhere (`reservations`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from cluster.events import correlator
from policies.text import listed
from scheduler.cache.cache import Cache
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.model.unit import Unit
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.report import events
from scheduler.tenancy.reservation.members import MemberReservations

_NAMED: Final = 3


class Relocation:
    """`plan` places a unit within its tenant's quota, as if nothing were kept for it; `freed` hears
    of nodes on which less is kept, `regrouped` of gangs for which something else is."""

    def __init__(
        self,
        cache: Cache,
        reservations: MemberReservations,
        *,
        plan: Callable[[Unit], Plan],
        group: Callable[[GangKey], PodGroup | None],
        freed: Callable[[Iterable[str]], None],
        regrouped: Callable[[GangKey], None],
        record: Callable[[correlator.EventReport], None],
    ) -> None:
        self._cache = cache
        self._rooms = reservations
        self._snapshot = cache.snapshot
        self._plan, self._group, self._record = plan, group, record
        self._freed, self._regrouped = freed, regrouped
        self._statics = -1
        self._tried: dict[GangKey, int] = {}  # gang -> what was free when places were looked for
        self._why: dict[GangKey, str] = {}  # gang -> what became of its places

    def tick(self) -> None:
        """Before every plan."""
        if not len(self._rooms):
            return
        if self._statics != self._snapshot.table.statics:
            self._statics = self._snapshot.table.statics
            memo = Memo()
            for key in self._rooms:
                self._look(key, memo)
        if self._rooms.short or self._why or self._tried:
            self._find()

    def _look(self, key: GangKey, memo: Memo) -> None:
        """Places on nodes that are gone, or that take no such pod any more, are given up."""
        kept, reservation = self._rooms.kept(key), self._rooms.get(key)
        gone = [name for name in self._rooms.lost(key) if name not in self._snapshot]
        open_ = [one for one in kept if self._takes(one, memo)]
        if reservation is None or not (gone or len(open_) < len(kept)):
            return
        self._why[key] = _lost(gone, {one.node for one in kept} - {one.node for one in open_})
        more = self._rooms.placeless(key, open_)
        self._freed(self._rooms.keep(key, open_, reservation, more=more))

    def _takes(self, one: Placement, memo: Memo) -> bool:
        row = self._snapshot.table.rows[one.node]
        return bool(filters.candidates(self._snapshot, one.pod.spec, memo)[row])

    def _find(self) -> None:
        short = self._rooms.short
        for known in (self._tried, self._why):
            for key in known.keys() - short:  # it ended, or members have come
                del known[key]
        for key in sorted(short):
            free, new = self._snapshot.freed, key in self._why or key not in self._tried
            if not (new or self._tried[key] != free):
                continue
            if not self._search(key):
                self._tried[key] = free
                if new:
                    self._say_short(key)

    def _search(self, key: GangKey) -> bool:
        reservation, pods = self._rooms.get(key), self._rooms.wanted(key)
        assert reservation is not None
        unit = Unit(key, pods, self._cache.bound(key), group=self._group(key))
        found = self._plan(unit)
        if not isinstance(found, Placed) or found.unplaced:
            return False
        places = [Placement(one.pod, one.node, one.assignment) for one in found.placements]
        self._freed(self._rooms.keep(key, places, reservation))
        self._regrouped(key)
        leader = self._cache.held(reservation.leader)
        if leader is not None:
            nodes = sorted({one.node for one in places})
            why = self._why.pop(key, "") or "capacity became free"
            self._record(events.member_reservation_moved(leader.pod, key.name, nodes, why))
        return True

    def _say_short(self, key: GangKey) -> None:
        reservation = self._rooms.get(key)
        leader = None if reservation is None else self._cache.held(reservation.leader)
        why = self._why.pop(key, "other pods took its capacity")
        if leader is not None:
            kept, wanted = self._rooms.count(key), len(self._rooms.wanted(key))
            report = events.member_reservation_incomplete
            self._record(report(leader.pod, key.name, kept, wanted, why))
        self._regrouped(key)


def _lost(gone: Iterable[str], shut: Iterable[str]) -> str:
    said = [f"node {name} was deleted" for name in sorted(gone)]
    said += [f"node {name} no longer accepts such pods" for name in sorted(shut)]
    return listed(said, most=_NAMED)
