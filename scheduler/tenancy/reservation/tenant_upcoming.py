"""
Room that is to be kept for a tenant from a time on: how it is gathered until then.

    a unit of somebody else    ends before that time          goes anywhere
                               runs on, as it says itself     leaves the room alone
                               nobody knows how long          goes elsewhere while there is room
    what runs already          is waited for; nobody is evicted

Of an amount, the places are planned once on a trial without the work that will have ended by then,
and planned again where some are missing. Whole nodes are those that the object means. On its nodes,
the room that must stay free now is what is wanted less what comes free in time. From its time on,
`allotments` keeps it.
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
    text,
)

RESERVED: Final = "node(s) will be reserved for another tenant before it ends"
AGAIN: Final = 30.0  # seconds until places are looked for again that were not found


@dataclass(slots=True)
class _UpcomingReservation:
    """One of them, and what was found out about it."""

    one: TenantReservation
    places: Counter[str] = field(default_factory=Counter)  # node -> places there, of an amount
    looked_at: float = float("-inf")
    shut: frozenset[str] = frozenset()
    shades: tuple[Placement, ...] = ()
    moment: tuple[int, int] = (-1, -1)
    """What was free, and which nodes there were, when the last two were found out."""


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
        self._cache, self._snapshot, self._epoch = cache, cache.snapshot, epoch
        self._run_times = RunTimes(cache.snapshot)
        self._rows: dict[tuple[str, str], _UpcomingReservation] = {}

    def put(self, one: TenantReservation) -> None:
        known = self._rows.get(one.one.name)
        if known is None or known.one is not one:
            self._rows[one.one.name] = _UpcomingReservation(one)

    def drop(self, name: tuple[str, str]) -> frozenset[str]:
        """The nodes of which others may use more now."""
        gone = self._rows.pop(name, None)
        if gone is None:
            return frozenset()
        return gone.shut | {one.node for one in gone.shades}

    # --- who may start ---

    def constraint(self, unit: Unit) -> UpcomingConstraint | None:
        """What the unit must leave free because it would still run when a reservation begins."""
        if not self._rows:
            return None
        duration = self._run_times.of_unit(unit)
        ends = self._epoch() + duration
        rows = [
            row
            for row in self._rows.values()
            if row.one.tenant != unit.tenant and ends > row.one.begins
        ]
        if not rows:
            return None
        for row in rows:
            self._renew(row)
        charges = (one for row in rows for one in row.shades if one.node in self._snapshot)
        return UpcomingConstraint(
            closed=frozenset[str]().union(*(row.shut for row in rows)),
            charges=tuple(charges),
            optional=math.isinf(duration),
        )

    def kept_from(self, pod: Pod) -> Iterator[str]:
        """What is going to be kept for others, as sentences."""
        for name in sorted(self._rows):
            row = self._rows[name]
            if row.one.tenant != pod.attributes.tenant:
                yield f"{self._what(row)} from {timestamp(row.one.begins)} on for {_whom(row)}"

    def _what(self, row: _UpcomingReservation) -> str:
        self._renew(row)
        if row.one.whole:
            return counted(len(row.shut), "node")
        total = {name: count * row.places.total() for name, count in row.one.each.items()}
        return f"{text(total) or 'nothing yet'} on {counted(len(row.places), 'node')}"

    # --- what is in the way ---

    def status(self, one: TenantReservation) -> dict[str, Any]:
        """Of one whose time has not come."""
        row = self._rows[one.one.name]
        self._renew(row)
        found = row.places.total()
        if one.whole:
            short = "" if row.shut else "no node matches"
            held = self.in_the_way(one, row.shut)
        else:
            short = f"capacity for {found} of {one.count} by then" if found < one.count else ""
            held = ""
        return {
            "phase": "Pending",
            "held": "",
            "message": "; ".join(filter(None, (short, held))),
            "places": [{"node": name} for name in sorted(row.shut or row.places.elements())],
        }

    def in_the_way(self, one: TenantReservation, nodes: frozenset[str]) -> str:
        """Work of others on these nodes that is not known to have ended by the time it begins."""
        found, epoch = [], self._epoch()
        for held in self._cache.on(nodes):
            if held.pod.attributes.tenant == one.tenant or _stays(held.pod):
                continue
            at = self._run_times.end(held.pod, epoch)
            if at is None:
                found.append(f"{held.pod.key} (no known end)")
            elif at > one.begins:
                found.append(f"{held.pod.key} (until {timestamp(at)})")
        return f"waits for {listed(found, most=3)}" if found else ""

    # --- what must stay free ---

    def _renew(self, row: _UpcomingReservation) -> None:
        moment = self._snapshot.freed, self._snapshot.table.statics
        if moment == row.moment:
            return
        nodes = self._snapshot.table.nodes
        if row.one.whole:
            if moment[1] != row.moment[1]:
                row.shut = frozenset(name for name in nodes if row.one.takes(nodes[name]))
        else:
            self._place(row)
            row.shades = tuple(self._shades(row))
        row.moment = moment

    def _place(self, row: _UpcomingReservation) -> None:
        """Where there will be room, for as many as there will be."""
        one, table = row.one, self._snapshot.table
        memo, epoch = Memo(), self._epoch()
        for name in [name for name in row.places if not self._open(one, name, memo)]:
            del row.places[name]
            row.looked_at = float("-inf")
        missing = one.count - row.places.total()
        if missing <= 0 or epoch < row.looked_at + AGAIN:
            return
        row.looked_at = epoch
        nodes = [name for name, node in table.nodes.items() if one.takes(node)]
        gone = self._gone_by(one.begins, nodes)
        closed = frozenset(table.nodes.keys() - nodes)
        ahead = [one.occupant(name, self._all(one, count)) for name, count in row.places.items()]
        unit = Unit(one.key, one.placeholders(missing))
        found = plan_without(
            self._snapshot,
            [held for held in gone if held.node in self._snapshot],
            lambda memo: self._supposed(unit, closed, ahead, memo),
        )
        if found is not None:
            row.places.update(placed.node for placed in found.placements)

    def _supposed(
        self, unit: Unit, closed: frozenset[str], ahead: Sequence[Placement], memo: Memo
    ) -> Plan:
        for held in ahead:
            self._snapshot.suppose(held.pod, held.node)
        return planner.plan(unit, self._snapshot, memo=memo, closed=closed)

    def _open(self, one: TenantReservation, name: str, memo: Memo) -> bool:
        node = self._snapshot.table.nodes.get(name)
        if node is None or not one.takes(node):
            return False
        spec = one.stand_in("", one.each).spec
        row = self._snapshot.table.rows[name]
        return bool(filters.candidates(self._snapshot, spec, memo)[row])

    def _shades(self, row: _UpcomingReservation) -> Iterator[Placement]:
        coming: dict[str, Counter[str]] = {}
        for held in self._gone_by(row.one.begins, list(row.places)):
            coming.setdefault(held.node, Counter()).update(dict(held.pod.spec.requests))
        for name, count in sorted(row.places.items()):
            free = coming.get(name, Counter())
            left = {
                resource: amount - free[resource]
                for resource, amount in self._all(row.one, count).items()
                if amount > free[resource]
            }
            if left:
                yield row.one.occupant(name, left)

    def _gone_by(self, at: float, nodes: Sequence[str]) -> list[Placement]:
        """What is expected to have ended there by then."""
        if not (self._cache.with_duration or self._run_times.durations):
            return []
        ends = self._run_times.ends(self._cache.on(nodes), self._epoch())
        return [end.placement for end in ends if end.at <= at]

    @staticmethod
    def _all(one: TenantReservation, count: int) -> Amounts:
        return {name: amount * count for name, amount in one.each.items()}


def _whom(row: _UpcomingReservation) -> str:
    return f"tenant {row.one.tenant} (ResourceReservation {'/'.join(row.one.one.name)})"


def _stays(pod: Pod) -> bool:
    """Belongs to its node: nobody waits for its room."""
    return pod.attributes.mirror or from_daemon_set(pod)
