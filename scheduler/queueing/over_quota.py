"""
Units over quota, by the limit that each exceeds.

    limit (member, resource)   looked at when that member uses less of that resource again
    unknown                    only planning tells what the unit waits for (a kind of GPU, quota
                               that is reserved for others): looked at after every change

A released limit has a pass: its units are looked at in planning order, each at most once, and only
while the limit leaves enough for the smallest of them. The units that a pass moves to the active
queue request together no more than the limit leaves. The pass goes on when they have been planned.
A pod that ends therefore costs nothing for the units of other limits, and little for its own.

Heaps hold stale items: an item counts while `_units` has its number.
"""

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scheduler.model.unit import UnitKey
from scheduler.queueing.entry import Rank

Limit = tuple[str, str]  # the tenant or group that has the limit, and the resource

_Item = tuple[Rank, int, UnitKey]

_MAX_STALE: Final = 64  # items per limit


@dataclass(frozen=True, slots=True)
class _Waiting:
    number: int
    limit: Limit | None
    tenant: str
    rank: Rank
    amount: int


@dataclass(slots=True)
class _LimitUnits:
    """The units of one limit, by tenant: those that the pass has still to look at, and the rest."""

    units: int = 0
    due: dict[str, list[_Item]] = field(default_factory=dict)
    seen: dict[str, list[_Item]] = field(default_factory=dict)
    amounts: list[tuple[int, int, UnitKey]] = field(default_factory=list)
    activated: list[UnitKey] = field(default_factory=list)
    """Units that the pass has moved to the active queue, the last one last."""


class OverQuotaUnits:
    """`tenant_order` is the sort key of a tenant, given its first unit: the lowest goes first."""

    def __init__(self, tenant_order: Callable[[str, Rank, UnitKey], Any]) -> None:
        self._tenant_order = tenant_order
        self._units: dict[UnitKey, _Waiting] = {}
        self._limits: dict[Limit, _LimitUnits] = {}
        self._passes: dict[Limit, None] = {}  # limits whose pass is not over, in rotation
        self._unknown: dict[UnitKey, None] = {}  # in rotation
        self._unknown_due = 0  # how many of those have still to be looked at
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._units)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._units

    def add(self, key: UnitKey, tenant: str, rank: Rank, limit: Limit | None, amount: int) -> None:
        """`amount` of the limited resource is what the unit requests; a pass that is under way
        does not look at it."""
        self.discard(key)
        number = next(self._numbers)
        self._units[key] = _Waiting(number, limit, tenant, rank, amount)
        if limit is None:
            self._unknown[key] = None
            return
        units = self._limits.setdefault(limit, _LimitUnits())
        units.units += 1
        heapq.heappush(units.seen.setdefault(tenant, []), (rank, number, key))
        heapq.heappush(units.amounts, (amount, number, key))
        if len(units.amounts) > 2 * units.units + _MAX_STALE:
            self._drop_stale(limit)

    def move(self, key: UnitKey, limit: Limit | None, amount: int) -> None:
        """The unit exceeds another limit now."""
        unit = self._units[key]
        if (unit.limit, unit.amount) != (limit, amount):
            self.add(key, unit.tenant, unit.rank, limit, amount)

    def discard(self, key: UnitKey) -> None:
        unit = self._units.pop(key, None)
        if unit is None:
            return
        if unit.limit is None:
            del self._unknown[key]
            self._unknown_due = min(self._unknown_due, len(self._unknown))
        else:
            self._limits[unit.limit].units -= 1
            self._drop_if_empty(unit.limit)

    # --- what has changed ---

    def released(self, limit: Limit) -> None:
        """The member uses less of the resource than before: its pass begins again."""
        units = self._limits.get(limit)
        if units is None:
            return
        self._passes.setdefault(limit)
        for tenant, items in units.seen.items():
            heap = units.due.get(tenant, [])
            few, many = sorted((heap, items), key=len)
            for item in few:
                heapq.heappush(many, item)
            units.due[tenant] = many
        units.seen = {}

    def any_released(self) -> None:
        """Something has changed on which a unit of the unknown kind may depend."""
        self._unknown_due = len(self._unknown)

    def limits_changed(self) -> None:
        """Other policies are in force: any unit may be within its quota, or exceed another one."""
        self._unknown = dict.fromkeys(self._units)
        self._units = {key: replace(unit, limit=None) for key, unit in self._units.items()}
        self._limits.clear()
        self._passes.clear()
        self.any_released()

    # --- passes ---

    def passes(self) -> list[Limit]:
        """Limits whose pass is not over; the one that was visited last comes last."""
        return list(self._passes)

    def visit(self, limit: Limit, is_planned: Callable[[UnitKey], bool]) -> bool:
        """Whether the pass goes on now: every unit that it has activated has been planned."""
        units = self._limits[limit]
        self._passes[limit] = self._passes.pop(limit)
        while units.activated and is_planned(units.activated[-1]):
            units.activated.pop()
        return not (units.activated or self._drop_if_empty(limit))

    def activate(self, limit: Limit, key: UnitKey) -> int:
        """The caller moves the unit to the active queue. Returns the amount that it requests."""
        self._limits[limit].activated.append(key)
        return self._units[key].amount

    def end_pass(self, limit: Limit) -> None:
        """The limit leaves too little for the other units, or the pass has looked at all."""
        units = self._limits.get(limit)
        if units is not None and not units.activated:
            self._passes.pop(limit, None)

    def least(self, limit: Limit) -> int | None:
        """The smallest request of a unit of the limit; None: it has no unit."""
        units = self._limits.get(limit)
        amounts = [] if units is None else units.amounts
        while amounts and not self._is_current(amounts[0], limit):
            heapq.heappop(amounts)
        return amounts[0][0] if amounts else None

    def in_order(self, limit: Limit) -> Iterator[UnitKey]:
        """The units that the pass has still to look at: the first of each tenant in the order of
        tenants, then the second of each, and so on. Each that is drawn counts as looked at."""
        units = self._limits[limit]
        while tenants := self._tenants(limit, units):
            for tenant in tenants:
                item = heapq.heappop(units.due[tenant])
                heapq.heappush(units.seen.setdefault(tenant, []), item)
                yield item[2]

    def unknown(self) -> Iterator[UnitKey]:
        """The units of the unknown kind that have still to be looked at."""
        while self._unknown_due:
            self._unknown_due -= 1
            key = next(iter(self._unknown))
            self._unknown[key] = self._unknown.pop(key)
            yield key

    def _tenants(self, limit: Limit, units: _LimitUnits) -> list[str]:
        """Tenants that have units to look at, in order."""
        for tenant, heap in list(units.due.items()):
            while heap and not self._is_current(heap[0], limit):
                heapq.heappop(heap)
            if not heap:
                del units.due[tenant]
        if len(units.due) <= 1:
            return list(units.due)
        return sorted(
            units.due, key=lambda tenant: self._tenant_order(tenant, *units.due[tenant][0][::2])
        )

    def _is_current(self, item: tuple[Any, int, UnitKey], limit: Limit) -> bool:
        unit = self._units.get(item[2])
        return unit is not None and unit.number == item[1] and unit.limit == limit

    def _drop_if_empty(self, limit: Limit) -> bool:
        units = self._limits[limit]
        if units.units or units.activated:
            return False
        del self._limits[limit]
        self._passes.pop(limit, None)
        return True

    def _drop_stale(self, limit: Limit) -> None:
        """Each unit has one item in `due` or `seen`, and one in `amounts`."""
        units = self._limits[limit]
        units.amounts = [item for item in units.amounts if self._is_current(item, limit)]
        heapq.heapify(units.amounts)
        for heaps in (units.due, units.seen):
            for tenant, heap in list(heaps.items()):
                heap[:] = [item for item in heap if self._is_current(item, limit)]
                heapq.heapify(heap)
                if not heap:
                    del heaps[tenant]
