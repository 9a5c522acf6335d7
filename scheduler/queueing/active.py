"""
The active queue: units that are ready to be planned, one heap per tenant.

    partial gangs, and pods of system priority      before all others
    then the tenant that is first in fair-share order   compared by the head of its heap
    then the head of that tenant's heap                 by its rank

Fair share orders tenants (guarantees first, then shares), the rank orders units of one tenant. With
one tenant, or with none, the rank alone decides. `TenantOrder` finds the first tenant; it hears of
a tenant only when the head of its heap changes, so that a pop does not look at every tenant. The
head of a heap is never stale; other stale items are dropped at once when a heap has many of them.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.unit import UnitKey
from scheduler.queueing.entry import Rank

Item = tuple[Rank, int, UnitKey]
Requests = Mapping[str, int]
FairShareOrder = Callable[[str, Requests], Any]
"""The sort key of a tenant by fair share, given what its first unit requests."""

MAX_STALE_ITEMS: Final = 1024  # per heap


def urgency(rank: Rank) -> tuple[bool, bool]:
    """Goes before fair share: partial gangs, then system priority."""
    return rank[0] > 0, -rank[1] < SYSTEM_CRITICAL


class TenantOrder(Protocol):
    """Tenants with active units. The first is the lowest by the urgency of its first unit, then by
    fair share, then by the rank of that unit."""

    def put(self, tenant: str, rank: Rank, requests: Requests) -> None:
        """The tenant's first unit has this rank and requests this."""
        ...

    def discard(self, tenant: str) -> None: ...

    def first(self) -> str: ...


class ScannedTenants:
    """Compares all tenants for each pop: for a few tenants, and for any order."""

    def __init__(self, order: FairShareOrder) -> None:
        self._order = order
        self._heads: dict[str, tuple[Rank, Requests]] = {}

    def put(self, tenant: str, rank: Rank, requests: Requests) -> None:
        self._heads[tenant] = (rank, requests)

    def discard(self, tenant: str) -> None:
        self._heads.pop(tenant, None)

    def first(self) -> str:
        return min(self._heads, key=self._sort_key)

    def _sort_key(self, tenant: str) -> tuple[Any, ...]:
        rank, requests = self._heads[tenant]
        return urgency(rank), self._order(tenant, requests), rank


class ActiveQueue:
    """`is_current` tells whether an item is not stale, `requests` what a unit requests."""

    def __init__(
        self,
        is_current: Callable[[UnitKey, int], bool],
        requests: Callable[[UnitKey], Requests],
        tenants: TenantOrder,
    ) -> None:
        self._is_current = is_current
        self._requests = requests
        self._tenants = tenants
        self._heaps: dict[str, list[Item]] = {}  # by tenant
        self._tenant_of: dict[UnitKey, str] = {}  # active units
        self._changed: set[str] = set()  # tenants whose first unit may be another one

    def __len__(self) -> int:
        """Items in all heaps, stale ones included."""
        return sum(map(len, self._heaps.values()))

    def push(self, tenant: str, item: Item, *, units: int) -> None:
        """`units`: how many units the queue holds. A standby pushes for weeks and never pops."""
        heap = self._heaps.setdefault(tenant, [])
        heapq.heappush(heap, item)
        self._tenant_of[item[2]] = tenant
        if len(heap) > 4 * units + MAX_STALE_ITEMS:
            heap[:] = [item for item in heap if self._is_current(item[2], item[1])]
            heapq.heapify(heap)
        if heap[0] is item:
            self._changed.add(tenant)

    def discard(self, key: UnitKey) -> None:
        """The unit is not active any more, and its item is stale."""
        tenant = self._tenant_of.pop(key, None)
        if tenant is not None and self._heaps[tenant][0][2] == key:
            self._changed.add(tenant)
            self._drop_stale(tenant)

    def pop(self) -> UnitKey | None:
        """Remove and return the next unit."""
        if not self._heaps:
            return None
        tenant = next(iter(self._heaps)) if len(self._heaps) == 1 else self._first()
        key = heapq.heappop(self._heaps[tenant])[2]
        del self._tenant_of[key]
        self._changed.add(tenant)
        self._drop_stale(tenant)
        return key

    def _drop_stale(self, tenant: str) -> None:
        heap = self._heaps[tenant]
        while heap and not self._is_current(heap[0][2], heap[0][1]):
            heapq.heappop(heap)
        if not heap:
            del self._heaps[tenant]
            self._tenants.discard(tenant)
            self._changed.discard(tenant)

    def _first(self) -> str:
        """With one tenant alone none is compared, and its changes wait for the next one."""
        for tenant in self._changed:
            rank, _, key = self._heaps[tenant][0]
            self._tenants.put(tenant, rank, self._requests(key))
        self._changed.clear()
        return self._tenants.first()
