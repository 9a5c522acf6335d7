"""
Moves capacity reserved for pending gang members off nodes that were lost.

    node deleted, cordoned, tainted, closed by a policy
        ──capacity elsewhere──▶ reserved there, with an Event
        ──none───────────────▶ INCOMPLETE, with an Event ──capacity became free──▶ search again

All pending members of the gang are planned together, as for the first reservation, and members
with a node count. No pod is evicted for it. A member that is created meanwhile waits until the
whole gang has capacity: see `Unit.plannable`. `members` decides when a reservation ends.
"""

from collections.abc import Callable, Iterable
from typing import Final

from cluster.events import correlator
from policies.text import listed
from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.model.unit import Unit
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.report import events
from scheduler.tenancy.reservation.members import MemberReservations

MAX_NAMED: Final = 3  # lost nodes that an Event names


class Relocation:
    """`plan` places a unit within its tenant's quota, without what is reserved for it; `freed` is
    called with nodes on which less is reserved, `regrouped` with gangs that were relocated."""

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
        isolation: Isolation,
    ) -> None:
        self._isolation = isolation
        self._cache = cache
        self._snapshot = cache.snapshot
        self._reservations = reservations
        self._plan = plan
        self._group = group
        self._freed = freed
        self._regrouped = regrouped
        self._record = record
        self._statics = -1
        self._searched: dict[GangKey, int] = {}  # gang -> `snapshot.freed` at the last search
        self._why: dict[GangKey, str] = {}  # gang -> why its reservation became incomplete

    def tick(self) -> None:
        """Before every plan."""
        if not len(self._reservations):
            return
        if self._statics != self._snapshot.table.statics:
            self._statics = self._snapshot.table.statics
            memo = Memo()
            for key in self._reservations:
                with self._isolation.step(ErrorStep.RESERVATION, key):
                    self._drop_lost(key, memo)
        if self._reservations.incomplete or self._why or self._searched:
            self._complete()

    def _drop_lost(self, key: GangKey, memo: Memo) -> None:
        """Drop placements on nodes that were deleted or no longer accept such pods."""
        placements, reservation = self._reservations.placements(key), self._reservations.get(key)
        deleted = [n for n in self._reservations.lost_nodes(key) if n not in self._snapshot]
        accepted = [placement for placement in placements if self._accepts(placement, memo)]
        if reservation is None or not (deleted or len(accepted) < len(placements)):
            return
        closed = {placement.node for placement in placements} - {
            placement.node for placement in accepted
        }
        self._why[key] = _lost_text(deleted, closed)
        unplaced = self._reservations.pending_without(key, accepted)
        freed = self._reservations.reserve(key, accepted, reservation, unplaced=unplaced)
        self._freed(freed)

    def _accepts(self, placement: Placement, memo: Memo) -> bool:
        row = self._snapshot.table.rows[placement.node]
        return bool(filters.candidates(self._snapshot, placement.pod.spec, memo)[row])

    def _complete(self) -> None:
        incomplete = self._reservations.incomplete
        for known in (self._searched, self._why):
            for key in known.keys() - incomplete:  # it ended, or its members exist
                del known[key]
        for key in sorted(incomplete):
            freed, is_new = self._snapshot.freed, key in self._why or key not in self._searched
            if not (is_new or self._searched[key] != freed):
                continue
            self._searched[key] = freed
            with self._isolation.step(ErrorStep.RESERVATION, key):
                if not self._search(key) and is_new:
                    self._record_incomplete(key)

    def _search(self, key: GangKey) -> bool:
        reservation, pods = self._reservations.get(key), self._reservations.pending(key)
        assert reservation is not None
        unit = Unit(key, pods, self._cache.bound(key), group=self._group(key))
        plan = self._plan(unit)
        if not isinstance(plan, Placed) or plan.unplaced:
            return False
        self._freed(self._reservations.reserve(key, plan.placements, reservation))
        self._regrouped(key)
        leader = self._cache.get(reservation.leader)
        if leader is not None:
            nodes = sorted({placement.node for placement in plan.placements})
            why = self._why.pop(key, "") or "capacity became free"
            self._record(events.member_reservation_moved(leader.pod, key.name, nodes, why))
        return True

    def _record_incomplete(self, key: GangKey) -> None:
        reservation = self._reservations.get(key)
        leader = None if reservation is None else self._cache.get(reservation.leader)
        why = self._why.pop(key, "other pods took its capacity")
        if leader is not None:
            reserved, pending = self._reservations.count(key), len(self._reservations.pending(key))
            report = events.member_reservation_incomplete
            self._record(report(leader.pod, key.name, reserved, pending, why))
        self._regrouped(key)


def _lost_text(deleted: Iterable[str], closed: Iterable[str]) -> str:
    texts = [f"node {name} was deleted" for name in sorted(deleted)]
    texts += [f"node {name} no longer accepts such pods" for name in sorted(closed)]
    return listed(texts, most=MAX_NAMED)
