"""
Capacity that an administrator reserves for a tenant, from a time until a time.

    Pending ──begins──▶ Active ──ends──▶ Expired                        deleted: released at once
    (`tenant_upcoming`)   │
          an amount    places are planned once, and again for those that are missing, or that are
                       unused on a node that was lost; pods of the tenant that start on a node use
                       places there, and return them when they end
          whole nodes  all that is free on them

Reserved capacity is charged to its nodes (`cache.reserved`), and a unit of that tenant is planned
without the charge. Every tick computes the charge from the pods on the nodes. Only the places are
state, and the object's status keeps them. No pod is evicted for it, and no quota counts it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from cluster.events import correlator
from policies.text import counted, listed
from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation, Pauses
from scheduler.model.plan import Placed
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, UnitKey
from scheduler.plan import filters, planner
from scheduler.plan.memo import Memo
from scheduler.report import events
from scheduler.tenancy.reservation.objects import ReservationObject
from scheduler.tenancy.reservation.tenant_reservation import (
    NEVER,
    Amounts,
    TenantReservation,
    amounts_text,
)
from scheduler.tenancy.reservation.tenant_upcoming import UpcomingReservations
from scheduler.tenancy.reservation.writer import Name

Json = dict[str, Any]

ACTIVE: Final = "Active"
RETRY_SECONDS: Final = 5.0  # between two searches for missing places


class TenantReservations:
    """`epoch` is the time of day; `publish` takes an object's new status; `freed` is called with
    nodes on which less is reserved."""

    def __init__(
        self,
        cache: Cache,
        *,
        epoch: Callable[[], float],
        publish: Callable[[ReservationObject, Json], None],
        record: Callable[[correlator.EventReport], None],
        freed: Callable[[Iterable[str]], None],
        isolation: Isolation,
    ) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._reserved = cache.reserved
        self._epoch = epoch
        self._publish = publish
        self._record = record
        self._freed = freed
        self._isolation = isolation
        self._pauses = Pauses[Name]()
        self._reservations: dict[Name, TenantReservation] = {}
        self._moved = -1
        self._statics = -1
        self.upcoming = UpcomingReservations(cache, epoch=epoch)

    def __len__(self) -> int:
        return len(self._reservations)

    def put(self, obj: ReservationObject) -> None:
        """A new or changed object: another time moves the reservation, any other change replaces
        it."""
        known = self._reservations.get(obj.name)
        if known is not None and (known.object.uid, known.object.spec) == (obj.uid, obj.spec):
            return
        self._moved = -1
        if known is not None and known.differs_in_time(obj):
            known.object = obj
            known.blockers_checked = NEVER
            self._freed(self.upcoming.drop(obj.name))
            return
        self.drop(obj.name)
        reservation = TenantReservation.of(obj)
        if known is None and obj.phase == ACTIVE and obj.spec.resources:
            reservation.places = Counter(place.node for place in obj.places)
        self._reservations[obj.name] = reservation

    def drop(self, name: Name) -> None:
        reservation = self._reservations.pop(name, None)
        self._freed(self.upcoming.drop(name))
        if reservation is not None and reservation.active:
            self._freed(self._reserved.end(reservation.key))
            self._record_end(reservation, "the object was deleted or changed")

    def keys_of(self, tenant: str) -> list[UnitKey]:
        """Keys of the reserved capacity that this tenant may use."""
        active = (reservation for reservation in self._reservations.values() if reservation.active)
        return [reservation.key for reservation in active if reservation.tenant == tenant]

    def release_until_tick(self, tenant: str) -> None:
        """Pods of the tenant were placed: the next tick reserves what they leave."""
        for key in self.keys_of(tenant):
            self._reserved.end(key)

    def next_at(self) -> float | None:
        """Seconds of the epoch, when `tick` next has something to do."""
        now = self._epoch()
        reservations = [
            reservation
            for name, reservation in self._reservations.items()
            if not self._pauses.is_paused(name, now)
        ]
        due = [
            at
            for reservation in reservations
            for at in (reservation.begins, reservation.ends)
            if at > now
        ]
        if (paused := self._pauses.next_at(now)) is not None:
            due.append(paused)
        due += [
            reservation.searched[0] + RETRY_SECONDS
            for reservation in reservations
            if reservation.incomplete
        ]
        stale = (reservation for reservation in reservations if self._is_stale(reservation, now))
        due += [reservation.blockers_checked[0] + RETRY_SECONDS for reservation in stale]
        return min(due, default=None)

    def tick(self) -> None:
        """Before every plan: make the reserved capacity what it should be."""
        if not self._reservations:
            return
        now, active = self._epoch(), []
        for name in sorted(self._reservations):
            if self._pauses.is_paused(name, now):
                continue
            reservation = self._reservations[name]
            with self._isolated(reservation, now):
                if reservation.begins <= now < reservation.ends:
                    active.append(reservation)
                    self.upcoming.drop(name)
                elif now < reservation.begins:
                    self._wait(reservation, now)
                else:
                    self._expire(reservation)
        if self._moved == self._snapshot.moved and not any(
            self._is_due(reservation, now) for reservation in active
        ):
            return
        used: dict[tuple[str, str], Amounts] = {}
        memo = Memo() if self._statics != self._snapshot.table.statics else None
        self._statics = self._snapshot.table.statics
        for reservation in active:
            with self._isolated(reservation, now):
                if memo is not None:
                    self._drop_lost(reservation, memo)
                self._reserve(reservation, used, now)
        self._moved = self._snapshot.moved

    @contextmanager
    def _isolated(self, reservation: TenantReservation, now: float) -> Iterator[None]:
        """An error about one reservation pauses it, and the others go on."""
        try:
            yield
        except Exception as error:
            name = reservation.object.name
            self._pauses.failed(name, now)
            self._isolation.report(ErrorStep.RESERVATION, "/".join(name), error)

    # --- one reservation ---

    def _wait(self, reservation: TenantReservation, now: float) -> None:
        self.upcoming.put(reservation)
        self._end(reservation, "its start was moved to a later time")
        if self._checks_blockers(reservation, now):
            reservation.blockers_checked = (now, self._snapshot.moved)
            self._publish(reservation.object, self.upcoming.status(reservation))

    def _expire(self, reservation: TenantReservation) -> None:
        self._end(reservation, "its time has ended")
        status: Json = {"phase": "Expired", "held": "", "message": "", "places": []}
        self._publish(reservation.object, status)

    def _end(self, reservation: TenantReservation, why: str) -> None:
        if reservation.active:
            reservation.active = False
            self._freed(self._reserved.end(reservation.key))
            self._record_end(reservation, why)

    def _record_end(self, reservation: TenantReservation, why: str) -> None:
        obj = reservation.object
        report = events.tenant_reservation_ended(*obj.name, obj.uid, reservation.tenant, why)
        self._record(report)

    def _reserve(
        self, reservation: TenantReservation, used: dict[tuple[str, str], Amounts], now: float
    ) -> None:
        begins = not reservation.active
        if begins:
            reservation.active = True
            reservation.blockers_checked = NEVER
        if reservation.incomplete:
            self._search(reservation, now)
        if reservation.whole_nodes:
            unused = dict(self._free_of_nodes(reservation))
        else:
            unused = dict(self._unused_places(reservation, used))
        reserved = self._reserved_by_node(reservation)
        if unused != reserved:
            placements = [reservation.placement(*row) for row in sorted(unused.items())]
            self._reserved.put(reservation.key, placements)
            self._freed(n for n in reserved if _is_less(unused.get(n, {}), reserved[n]))
        obj = reservation.object
        if begins:
            report = events.tenant_reservation_started
            held = self._held_text(reservation)
            self._record(report(*obj.name, obj.uid, reservation.tenant, held))
        self._publish(obj, self._status(reservation, now))

    def _reserved_by_node(self, reservation: TenantReservation) -> dict[str, Amounts]:
        placements = self._reserved.of(reservation.key)
        return {placement.node: dict(placement.pod.spec.requests) for placement in placements}

    def _drop_lost(self, reservation: TenantReservation, memo: Memo) -> None:
        """Drop unused places on nodes that were deleted or no longer accept such pods."""
        if reservation.whole_nodes or not reservation.places:
            return
        table, lost = self._snapshot.table, []
        spec = reservation.placeholder("", reservation.amounts).spec
        accepting = filters.candidates(self._snapshot, spec, memo)
        for name in sorted(reservation.places):
            row = table.rows.get(name)
            if row is not None and accepting[row] and reservation.matches(table.nodes[name]):
                continue
            used = {} if row is None else self._used(reservation.tenant, name, reservation.begins)
            in_use = reservation.places_in_use(used)
            if in_use < reservation.places[name]:
                reservation.places[name] = in_use
                why = "was deleted" if row is None else "no longer accepts such pods"
                lost.append(f"node {name} {why}")
        reservation.places = +reservation.places
        if lost:
            reservation.searched = (reservation.searched[0], -1)
            obj, why = reservation.object, listed(lost, most=3)
            report = events.tenant_reservation_incomplete
            self._record(report(*obj.name, obj.uid, reservation.tenant, why))

    def _is_due(self, reservation: TenantReservation, now: float) -> bool:
        searches = reservation.incomplete and now >= reservation.searched[0] + RETRY_SECONDS
        return not reservation.active or searches or self._checks_blockers(reservation, now)

    def _checks_blockers(self, reservation: TenantReservation, now: float) -> bool:
        due = now >= reservation.blockers_checked[0] + RETRY_SECONDS
        return due and self._is_stale(reservation, now)

    def _is_stale(self, reservation: TenantReservation, now: float) -> bool:
        """Whether other pods may be in its way than at the last check."""
        if now >= reservation.ends or (reservation.active and not reservation.whole_nodes):
            return False
        return reservation.blockers_checked[1] != self._snapshot.moved

    def _search(self, reservation: TenantReservation, now: float) -> None:
        """Plan as many of the missing places as fit."""
        nodes = self._snapshot.table.nodes
        if reservation.searched[1] == self._snapshot.freed and reservation.places:
            reservation.searched = (now, self._snapshot.freed)
            return
        missing = max(0, reservation.count - reservation.places.total())
        pods = reservation.placeholders(missing)
        closed = frozenset(name for name, node in nodes.items() if not reservation.matches(node))
        if pods and len(closed) < len(nodes):
            plan = planner.plan(Unit(reservation.key, pods), self._snapshot, closed=closed)
            if isinstance(plan, Placed):
                reservation.places.update(placement.node for placement in plan.placements)
        reservation.searched = (now, self._snapshot.freed)

    def _unused_places(
        self, reservation: TenantReservation, used: dict[tuple[str, str], Amounts]
    ) -> Iterator[tuple[str, Amounts]]:
        """By node; `used` is the tenant's usage that no other reservation has counted yet."""
        tenant = reservation.tenant
        for node, places in sorted(reservation.places.items()):
            if node not in self._snapshot:
                continue
            usage = used.setdefault((tenant, node), self._used(tenant, node, reservation.begins))
            unused = {}
            for name, amount in {**reservation.amounts, PODS: 1}.items():
                counted_here = min(amount * places, usage.get(name, 0))
                usage[name] = usage.get(name, 0) - counted_here
                unused[name] = amount * places - counted_here
            if any(count for name, count in unused.items() if name != PODS):
                yield node, {name: count for name, count in unused.items() if count}

    def _used(self, tenant: str, node: str, begins: float) -> Amounts:
        """By pods of the tenant that started after the reservation began."""
        total: Counter[str] = Counter()
        for placement in self._cache.pods_on((node,)):
            attributes = placement.pod.attributes
            if attributes.tenant == tenant and not 0 < attributes.started_at < begins:
                total.update(dict(placement.pod.spec.requests))
        return dict(total)

    def _free_of_nodes(self, reservation: TenantReservation) -> Iterator[tuple[str, Amounts]]:
        """By node; its own charge counts as free."""
        table, reserved = self._snapshot.table, self._reserved_by_node(reservation)
        for name, node in sorted(table.nodes.items()):
            if reservation.matches(node):
                own, row = reserved.get(name, {}), table.rows[name]
                free = {
                    resource: table.free_at(row, resource) + own.get(resource, 0)
                    for resource, _ in node.allocatable
                }
                if some := {resource: count for resource, count in free.items() if count > 0}:
                    yield name, some

    # --- status ---

    def _held_text(self, reservation: TenantReservation) -> str:
        if reservation.whole_nodes:
            return counted(len(self._reserved.of(reservation.key)), "node")
        return f"{reservation.places.total()} x {amounts_text(reservation.amounts)}"

    def _status(self, reservation: TenantReservation, now: float) -> Json:
        placements = self._reserved.of(reservation.key)
        nodes = [placement.node for placement in placements] if reservation.whole_nodes else []
        places = nodes or sorted(reservation.places.elements())
        unused: Counter[str] = Counter()
        for placement in placements:
            unused.update(dict(placement.pod.spec.requests))
        free = f" ({amounts_text(unused) or 'nothing'} free)" if places else ""
        return {
            "phase": ACTIVE,
            "held": f"{self._held_text(reservation)}{free}",
            "message": self._message(reservation, now),
            "places": [{"node": name} for name in places],
        }

    def _message(self, reservation: TenantReservation, now: float) -> str:
        if not reservation.whole_nodes:
            if not reservation.incomplete:
                return ""
            reserved = f"reserved capacity for {reservation.places.total()} of {reservation.count}"
            return f"{reserved}; the rest follows as it becomes free"
        if now >= reservation.blockers_checked[0] + RETRY_SECONDS:
            nodes = self._snapshot.table.nodes
            matching = frozenset(name for name, node in nodes.items() if reservation.matches(node))
            if matching:
                reservation.blockers = self.upcoming.blockers(reservation, matching)
            else:
                reservation.blockers = "no node matches"
            reservation.blockers_checked = (now, self._snapshot.moved)
        return reservation.blockers


def _is_less(new: Amounts, old: Amounts) -> bool:
    return any(new.get(name, 0) < count for name, count in old.items())
