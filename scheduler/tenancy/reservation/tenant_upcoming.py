"""
Tenant reservations that have not begun: which capacity must stay free until then.

    a unit of another tenant  expected to end before it begins  may use any capacity
                              expected to run longer            leaves the capacity free
                              without a known duration          leaves it free if it fits elsewhere
    pods that run already     are not evicted: the reservation waits for them

For an amount, the places are planned once, on a trial without the pods that will have ended by
then, and again for those that are missing. For whole nodes they are the matching nodes. On its
nodes, what is charged now is the reserved amount less what becomes free in time. `tenant_active`
takes over when the reservation begins.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policies.text import counted, listed, timestamp
from scheduler.cache.cache import Cache
from scheduler.model.plan import NoFit, Placement, Plan
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import Unit
from scheduler.plan import filters, planner
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.run_time import RunTimes
from scheduler.tenancy.backfill.start_time import plan_without
from scheduler.tenancy.reservation.tenant_reservation import (
    Amounts,
    TenantReservation,
    amounts_text,
)
from scheduler.tenancy.reservation.writer import Name

RESERVED: Final = "node(s) will be reserved for another tenant before it ends"
RETRY_SECONDS: Final = 30.0  # between two searches for missing places


@dataclass(slots=True)
class _UpcomingReservation:
    """A reservation, and what it needs before it begins."""

    reservation: TenantReservation
    places: Counter[str] = field(default_factory=Counter)  # node -> how often `amounts` fits there
    searched_at: float = float("-inf")
    closed: frozenset[str] = frozenset()
    """Matching nodes, if whole nodes are reserved."""
    charges: tuple[Placement, ...] = ()
    """Capacity that must stay free now, if an amount is reserved."""
    computed_for: tuple[int, int] = (-1, -1)
    """Versions of the snapshot for which `closed` and `charges` were computed."""


@dataclass(frozen=True, slots=True)
class UpcomingConstraint:
    """What units of other tenants must leave free. `optional`: the unit has no known duration, and
    ignores the constraint where nothing else fits."""

    closed: frozenset[str]
    charges: tuple[Placement, ...]
    optional: bool

    def explain(self, plan: Plan, closed: int) -> Plan:
        """The plan; a rejection names so many closed nodes by the reason."""
        if not isinstance(plan, NoFit):
            return plan
        counts = Counter(dict(plan.reasons))
        reserved = min(closed, counts[filters.HELD])
        if not reserved:
            return plan
        counts[filters.HELD] -= reserved
        counts[RESERVED] += reserved
        return replace(plan, reasons=tuple(sorted((+counts).items())))


class UpcomingReservations:
    """`epoch` is the time of day."""

    def __init__(self, cache: Cache, *, epoch: Callable[[], float]) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._epoch = epoch
        self._run_times = RunTimes(cache.snapshot)
        self._upcoming: dict[Name, _UpcomingReservation] = {}

    def put(self, reservation: TenantReservation) -> None:
        name = reservation.object.name
        known = self._upcoming.get(name)
        if known is None or known.reservation is not reservation:
            self._upcoming[name] = _UpcomingReservation(reservation)

    def drop(self, name: Name) -> frozenset[str]:
        """Returns the nodes on which other tenants may use more now."""
        upcoming = self._upcoming.pop(name, None)
        if upcoming is None:
            return frozenset()
        return upcoming.closed | {charge.node for charge in upcoming.charges}

    # --- planning ---

    def constraint(self, unit: Unit) -> UpcomingConstraint | None:
        """What the unit must leave free because it would still run when a reservation begins."""
        if not self._upcoming:
            return None
        duration = self._run_times.of_unit(unit)
        end = self._epoch() + duration
        others = [
            upcoming
            for upcoming in self._upcoming.values()
            if upcoming.reservation.tenant != unit.tenant and end > upcoming.reservation.begins
        ]
        if not others:
            return None
        for upcoming in others:
            self._refresh(upcoming)
        charges = (charge for upcoming in others for charge in upcoming.charges)
        return UpcomingConstraint(
            closed=frozenset[str]().union(*(upcoming.closed for upcoming in others)),
            charges=tuple(charge for charge in charges if charge.node in self._snapshot),
            optional=math.isinf(duration),
        )

    def reserved_from(self, pod: Pod) -> Iterator[str]:
        """What will be reserved for other tenants than the pod's, a text for each reservation."""
        for name in sorted(self._upcoming):
            upcoming = self._upcoming[name]
            reservation = upcoming.reservation
            if reservation.tenant != pod.attributes.tenant:
                owner = f"tenant {reservation.tenant} (ResourceReservation {'/'.join(name)})"
                begins = timestamp(reservation.begins)
                yield f"{self._capacity_text(upcoming)} from {begins} on for {owner}"

    def _capacity_text(self, upcoming: _UpcomingReservation) -> str:
        self._refresh(upcoming)
        if upcoming.reservation.whole_nodes:
            return counted(len(upcoming.closed), "node")
        total = _times(upcoming.reservation, upcoming.places.total())
        nodes = counted(len(upcoming.places), "node")
        return f"{amounts_text(total) or 'nothing yet'} on {nodes}"

    # --- status ---

    def status(self, reservation: TenantReservation) -> dict[str, Any]:
        upcoming = self._upcoming[reservation.object.name]
        self._refresh(upcoming)
        places, count = upcoming.places.total(), reservation.count
        if reservation.whole_nodes:
            missing = "" if upcoming.closed else "no node matches"
            blockers = self.blockers(reservation, upcoming.closed)
        else:
            missing = f"capacity for {places} of {count} by then" if places < count else ""
            blockers = ""
        nodes = sorted(upcoming.closed or upcoming.places.elements())
        return {
            "phase": "Pending",
            "held": "",
            "message": "; ".join(filter(None, (missing, blockers))),
            "places": [{"node": name} for name in nodes],
        }

    def blockers(self, reservation: TenantReservation, nodes: frozenset[str]) -> str:
        """Pods of other tenants on these nodes that may still run when it begins, as a text."""
        texts, epoch = [], self._epoch()
        for placement in self._cache.pods_on(nodes):
            pod = placement.pod
            if pod.attributes.tenant == reservation.tenant or _stays(pod):
                continue
            end = self._run_times.end(pod, epoch)
            if end is None:
                texts.append(f"{pod.key} (no known end)")
            elif end > reservation.begins:
                texts.append(f"{pod.key} (until {timestamp(end)})")
        return f"waits for {listed(texts, most=3)}" if texts else ""

    # --- what must stay free ---

    def _refresh(self, upcoming: _UpcomingReservation) -> None:
        versions = self._snapshot.freed, self._snapshot.table.statics
        if versions == upcoming.computed_for:
            return
        nodes, reservation = self._snapshot.table.nodes, upcoming.reservation
        if reservation.whole_nodes:
            if versions[1] != upcoming.computed_for[1]:
                matching = (name for name in nodes if reservation.matches(nodes[name]))
                upcoming.closed = frozenset(matching)
        else:
            self._search(upcoming)
            upcoming.charges = tuple(self._charges(upcoming))
        upcoming.computed_for = versions

    def _search(self, upcoming: _UpcomingReservation) -> None:
        """Plan as many of the missing places as will fit when the reservation begins."""
        reservation, places = upcoming.reservation, upcoming.places
        table, epoch, memo = self._snapshot.table, self._epoch(), Memo()
        for name in [name for name in places if not self._accepts(name, reservation, memo)]:
            del places[name]
            upcoming.searched_at = float("-inf")
        missing = reservation.count - places.total()
        if missing <= 0 or epoch < upcoming.searched_at + RETRY_SECONDS:
            return
        upcoming.searched_at = epoch
        matching = [name for name, node in table.nodes.items() if reservation.matches(node)]
        ended = self._ended_by(reservation.begins, matching)
        closed = frozenset(table.nodes.keys() - matching)
        unit = Unit(reservation.key, reservation.placeholders(missing))
        reserved = [
            reservation.placement(name, _times(reservation, count))
            for name, count in places.items()
        ]
        plan = plan_without(
            self._snapshot,
            [placement for placement in ended if placement.node in self._snapshot],
            lambda memo: self._plan_beside(reserved, unit, closed, memo),
        )
        if plan is not None:
            places.update(placement.node for placement in plan.placements)

    def _plan_beside(
        self, reserved: Sequence[Placement], unit: Unit, closed: frozenset[str], memo: Memo
    ) -> Plan:
        for placement in reserved:
            self._snapshot.suppose(placement.pod, placement.node)
        return planner.plan(unit, self._snapshot, memo=memo, closed=closed)

    def _accepts(self, name: str, reservation: TenantReservation, memo: Memo) -> bool:
        node = self._snapshot.table.nodes.get(name)
        if node is None or not reservation.matches(node):
            return False
        spec = reservation.placeholder("", reservation.amounts).spec
        row = self._snapshot.table.rows[name]
        return bool(filters.candidates(self._snapshot, spec, memo)[row])

    def _charges(self, upcoming: _UpcomingReservation) -> Iterator[Placement]:
        reservation = upcoming.reservation
        freed: dict[str, Counter[str]] = {}
        for placement in self._ended_by(reservation.begins, list(upcoming.places)):
            requests = dict(placement.pod.spec.requests)
            freed.setdefault(placement.node, Counter()).update(requests)
        for name, count in sorted(upcoming.places.items()):
            in_time = freed.get(name, Counter())
            needed_now = {
                resource: amount - in_time[resource]
                for resource, amount in _times(reservation, count).items()
                if amount > in_time[resource]
            }
            if needed_now:
                yield reservation.placement(name, needed_now)

    def _ended_by(self, at: float, nodes: Sequence[str]) -> list[Placement]:
        """Pods on these nodes that are expected to have ended by then."""
        if not (self._cache.with_duration or self._run_times.durations):
            return []
        ends = self._run_times.ends(self._cache.pods_on(nodes), self._epoch())
        return [end.placement for end in ends if end.at <= at]


def _times(reservation: TenantReservation, places: int) -> Amounts:
    return {name: amount * places for name, amount in reservation.amounts.items()}


def _stays(pod: Pod) -> bool:
    """Mirror pods and pods of a DaemonSet stay on their node: no reservation waits for them."""
    return pod.attributes.mirror or from_daemon_set(pod)
