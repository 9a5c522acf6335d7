"""
Room that an administrator keeps for a tenant, from a time until a time.

    Pending ──its time comes──▶ Active ──its time ends──▶ Expired        deleted: open at once
    (`coming`)                    │
              an amount    so many places are planned once, and again where some are missing, or
                           unused on a node that is lost; on each node the tenant's pods that start
                           there use of it, and leave it
              whole nodes  whatever is free there

What is kept counts on its nodes (`holds`), and a unit of that tenant is planned as if it did not.
How much is kept follows at every tick from who is there, so that nothing needs to be remembered but
the places, which stand in the object's status. Nobody is evicted for it, and no quota counts it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cluster.events import correlator
from policies.text import counted, listed
from scheduler.cache.cache import Cache
from scheduler.model.plan import Placed
from scheduler.model.resources import PODS
from scheduler.model.unit import Unit, UnitKey
from scheduler.plan import filters, planner
from scheduler.plan.memo import Memo
from scheduler.report import events
from scheduler.tenancy.reservation.objects import Reservation
from scheduler.tenancy.reservation.tenant_reservation import (
    Amounts,
    TenantReservation,
    text,
)
from scheduler.tenancy.reservation.tenant_upcoming import UpcomingReservations

Json = dict[str, Any]

ACTIVE: Final = "Active"
AGAIN: Final = 5.0  # seconds between two searches for places that are missing


class TenantReservations:
    """`epoch` is the time of day; `publish` takes an object's new status, `say` tells people that
    something began or ended, `lack` that places were lost, `freed` hears of nodes on which less is
    kept."""

    def __init__(
        self,
        cache: Cache,
        *,
        epoch: Callable[[], float],
        publish: Callable[[Reservation, Json], None],
        record: Callable[[correlator.EventReport], None],
        freed: Callable[[Iterable[str]], None],
    ) -> None:
        self._cache, self._snapshot, self._holds = cache, cache.snapshot, cache.reserved
        self._epoch, self._publish, self._freed = epoch, publish, freed
        self._record = record
        self._known: dict[tuple[str, str], TenantReservation] = {}
        self._moved = self._statics = -1
        self.coming = UpcomingReservations(cache, epoch=epoch)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, one: Reservation) -> None:
        """An object that came or changed: other times move it, anything else begins it anew."""
        known = self._known.get(one.name)
        if known is not None and (known.one.uid, known.one.spec) == (one.uid, one.spec):
            return
        self._moved = -1
        if known is not None and known.differs_in_time(one):
            known.one, known.said_at = one, (float("-inf"), -1)
            self._freed(self.coming.drop(one.name))
            return
        self.drop(one.name)
        made = TenantReservation.of(one)
        if known is None and one.phase == ACTIVE and one.spec.resources:
            made.base = Counter(place.node for place in one.places)
        self._known[one.name] = made

    def drop(self, name: tuple[str, str]) -> None:
        gone = self._known.pop(name, None)
        self._freed(self.coming.drop(name))
        if gone is not None and gone.active:
            self._freed(self._holds.end(gone.key))
            self._record_end(gone, "the object was deleted or changed")

    def of(self, tenant: str) -> list[UnitKey]:
        """Under which keys room is kept that this tenant may use."""
        rows = self._known.values()
        return [one.key for one in rows if one.active and one.tenant == tenant]

    def lend(self, tenant: str) -> None:
        """Pods of the tenant are given nodes; what is left is kept again at the next tick."""
        for key in self.of(tenant):
            self._holds.end(key)

    def next_at(self) -> float | None:
        """Seconds of the epoch, when the next begins, ends or is looked at again."""
        now = self._epoch()
        due = [at for one in self._known.values() for at in (one.begins, one.ends) if at > now]
        due += [one.tried[0] + AGAIN for one in self._known.values() if one.short]
        due += [one.said_at[0] + AGAIN for one in self._known.values() if self._stale(one, now)]
        return min(due, default=None)

    def tick(self) -> None:
        """Before every plan: what is kept is what should be."""
        if not self._known:
            return
        now, active = self._epoch(), []
        for name in sorted(self._known):
            one = self._known[name]
            if one.begins <= now < one.ends:
                active.append(one)
                self.coming.drop(name)
            elif now < one.begins:
                self._await(one, now)
            else:
                self._rest(one)
        if self._moved == self._snapshot.moved and not any(self._due(one, now) for one in active):
            return
        used: dict[tuple[str, str], Amounts] = {}
        memo = Memo() if self._statics != self._snapshot.table.statics else None
        self._statics = self._snapshot.table.statics
        for one in active:
            if memo is not None:
                self._look(one, memo)
            self._keep(one, used, now)
        self._moved = self._snapshot.moved

    # --- one of them ---

    def _await(self, one: TenantReservation, now: float) -> None:
        self.coming.put(one)
        self._stop(one, "its start was moved to a later time")
        if self._stale(one, now) and now >= one.said_at[0] + AGAIN:
            one.said_at = (now, self._snapshot.moved)
            self._publish(one.one, self.coming.status(one))

    def _rest(self, one: TenantReservation) -> None:
        self._stop(one, "its time has ended")
        self._publish(one.one, {"phase": "Expired", "held": "", "message": "", "places": []})

    def _stop(self, one: TenantReservation, why: str) -> None:
        if one.active:
            one.active = False
            self._freed(self._holds.end(one.key))
            self._record_end(one, why)

    def _record_end(self, one: TenantReservation, why: str) -> None:
        report = events.tenant_reservation_ended
        self._record(report(*one.one.name, one.one.uid, one.tenant, why))

    def _keep(
        self, one: TenantReservation, used: dict[tuple[str, str], Amounts], now: float
    ) -> None:
        begun = not one.active
        if begun:
            one.active, one.said_at = True, (float("-inf"), -1)
        if one.short:
            self._search(one, now)
        wanted = dict(self._whole(one) if one.whole else self._amount(one, used))
        kept = {row.node: dict(row.pod.spec.requests) for row in self._holds.of(one.key)}
        if wanted != kept:
            self._holds.put(one.key, [one.occupant(*row) for row in sorted(wanted.items())])
            self._freed(node for node in kept if _less(wanted.get(node, {}), kept[node]))
        if begun:
            report = events.tenant_reservation_started
            self._record(report(*one.one.name, one.one.uid, one.tenant, self._held(one)))
        self._publish(one.one, self._status(one, now))

    def _look(self, one: TenantReservation, memo: Memo) -> None:
        """Places that nobody uses are given up on nodes that are gone or take no such pod."""
        if one.whole or not one.base:
            return
        table, lost = self._snapshot.table, []
        open_ = filters.candidates(self._snapshot, one.stand_in("", one.each).spec, memo)
        for name in sorted(one.base):
            row = table.rows.get(name)
            if row is not None and open_[row] and one.takes(table.nodes[name]):
                continue
            used = {} if row is None else self._used(one.tenant, name, one.begins)
            if (left := min(one.base[name], one.in_use(used))) < one.base[name]:
                one.base[name] = left
                lost.append(
                    f"node {name} {'was deleted' if row is None else 'no longer accepts such pods'}"
                )
        one.base = +one.base
        if lost:
            one.tried = (one.tried[0], -1)
            report = events.tenant_reservation_incomplete
            self._record(report(*one.one.name, one.one.uid, one.tenant, listed(lost, most=3)))

    def _due(self, one: TenantReservation, now: float) -> bool:
        again = one.short and now >= one.tried[0] + AGAIN
        heard = self._stale(one, now) and now >= one.said_at[0] + AGAIN
        return not one.active or again or heard

    def _stale(self, one: TenantReservation, now: float) -> bool:
        """Others may be in its way than was last said."""
        told = one.active and not one.whole
        return now < one.ends and not told and one.said_at[1] != self._snapshot.moved

    def _search(self, one: TenantReservation, now: float) -> None:
        """Places for what is missing, as far as there are any."""
        nodes = self._snapshot.table.nodes
        if one.tried[1] == self._snapshot.freed and one.base:
            one.tried = (now, self._snapshot.freed)
            return
        missing = max(0, one.count - one.base.total())
        pods = one.placeholders(missing)
        closed = frozenset(name for name, node in nodes.items() if not one.takes(node))
        if pods and len(closed) < len(nodes):
            found = planner.plan(Unit(one.key, pods), self._snapshot, closed=closed)
            if isinstance(found, Placed):
                one.base.update(row.node for row in found.placements)
        one.tried = (now, self._snapshot.freed)

    def _amount(
        self, one: TenantReservation, used: dict[tuple[str, str], Amounts]
    ) -> Iterator[tuple[str, Amounts]]:
        """What is left of the places on each node; `used` is what others of the tenant have not
        been charged with yet."""
        tenant = one.tenant
        for node, places in sorted(one.base.items()):
            if node not in self._snapshot:
                continue
            spent = used.setdefault((tenant, node), self._used(tenant, node, one.begins))
            left = {}
            for name, each in {**one.each, PODS: 1}.items():
                taken = min(each * places, spent.get(name, 0))
                spent[name] = spent.get(name, 0) - taken
                left[name] = each * places - taken
            if any(count for name, count in left.items() if name != PODS):
                yield node, {name: count for name, count in left.items() if count}

    def _used(self, tenant: str, node: str, begins: float) -> Amounts:
        total: Counter[str] = Counter()
        for held in self._cache.on((node,)):
            terms = held.pod.attributes
            if terms.tenant == tenant and not 0 < terms.started_at < begins:
                total.update(dict(held.pod.spec.requests))
        return dict(total)

    def _whole(self, one: TenantReservation) -> Iterator[tuple[str, Amounts]]:
        table = self._snapshot.table
        mine = {row.node: dict(row.pod.spec.requests) for row in self._holds.of(one.key)}
        for name, node in sorted(table.nodes.items()):
            if one.takes(node):
                kept = mine.get(name, {})
                row = table.rows[name]
                free = {
                    resource: table.free_at(row, resource) + kept.get(resource, 0)
                    for resource, _ in node.allocatable
                }
                if left := {resource: count for resource, count in free.items() if count > 0}:
                    yield name, left

    # --- what is said ---

    def _held(self, one: TenantReservation) -> str:
        if one.whole:
            return counted(len(self._holds.of(one.key)), "node")
        return f"{one.base.total()} x {text(one.each)}"

    def _status(self, one: TenantReservation, now: float) -> Json:
        nodes = [row.node for row in self._holds.of(one.key)] if one.whole else []
        places = nodes or sorted(one.base.elements())
        kept: Counter[str] = Counter()
        for row in self._holds.of(one.key):
            kept.update(dict(row.pod.spec.requests))
        free = f" ({text(kept) or 'nothing'} free)" if places else ""
        return {
            "phase": ACTIVE,
            "held": f"{self._held(one)}{free}",
            "message": self._message(one, now),
            "places": [{"node": name} for name in places],
        }

    def _message(self, one: TenantReservation, now: float) -> str:
        if not one.whole:
            short = f"reserved capacity for {one.base.total()} of {one.count}"
            return f"{short}; the rest follows as it becomes free" if one.short else ""
        if now >= one.said_at[0] + AGAIN:
            nodes = self._snapshot.table.nodes
            meant = frozenset(name for name, node in nodes.items() if one.takes(node))
            one.said = self.coming.in_the_way(one, meant) if meant else "no node matches"
            one.said_at = (now, self._snapshot.moved)
        return one.said


def _less(new: Amounts, old: Amounts) -> bool:
    return any(new.get(name, 0) < count for name, count in old.items())
