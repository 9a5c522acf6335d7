"""
The active queue: units that are ready to be planned, one heap per tenant.

    partial gangs, and pods of system priority      before all others
    then the tenant that is first in fair-share order   compared by the head of its heap
    then the head of that tenant's heap                 by its rank

Fair share orders tenants (guarantees first, then shares), the rank orders units of one tenant. With
one tenant, or with none, the rank alone decides. Stale items are dropped when they reach the head
of a heap, and all at once when a heap has many of them.
"""

import heapq
from collections.abc import Callable
from typing import Any, Final

from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.unit import UnitKey
from scheduler.queueing.unschedulable import Rank

Item = tuple[Rank, int, UnitKey]

MAX_STALE_ITEMS: Final = 1024  # per heap


class ActiveQueue:
    """`is_current` tells whether an item is not stale; `fair_share_order` is the sort key of a
    tenant, given the unit at the head of its heap: the lowest goes first."""

    def __init__(
        self,
        is_current: Callable[[UnitKey, int], bool],
        fair_share_order: Callable[[str, UnitKey], Any],
    ) -> None:
        self._is_current = is_current
        self._fair_share_order = fair_share_order
        self._heaps: dict[str, list[Item]] = {}  # by tenant

    def __len__(self) -> int:
        """Items in all heaps, stale ones included."""
        return sum(map(len, self._heaps.values()))

    def push(self, tenant: str, item: Item, *, units: int) -> None:
        """`units`: how many units the queue holds. A standby pushes for weeks and never pops."""
        heap = self._heaps.setdefault(tenant, [])
        heapq.heappush(heap, item)
        if len(heap) > 4 * units + MAX_STALE_ITEMS:
            heap[:] = [item for item in heap if self._is_current(item[2], item[1])]
            heapq.heapify(heap)

    def pop(self) -> UnitKey | None:
        """Remove and return the next unit."""
        tenants = self._tenants()
        if not tenants:
            return None
        tenant = tenants[0] if len(tenants) == 1 else min(tenants, key=self._order)
        return heapq.heappop(self._heaps[tenant])[2]

    def _tenants(self) -> list[str]:
        """Tenants with a current item at the head of their heap."""
        tenants = []
        for tenant, heap in list(self._heaps.items()):
            while heap and not self._is_current(heap[0][2], heap[0][1]):
                heapq.heappop(heap)
            if heap:
                tenants.append(tenant)
            else:
                del self._heaps[tenant]
        return tenants

    def _order(self, tenant: str) -> tuple[Any, ...]:
        rank, _, key = self._heaps[tenant][0]
        return self.tenant_order(tenant, rank, key)

    def tenant_order(self, tenant: str, rank: Rank, key: UnitKey) -> tuple[Any, ...]:
        """The sort key of a tenant, given its first unit."""
        partial, priority = rank[0], -rank[1]
        return partial, priority < SYSTEM_CRITICAL, self._fair_share_order(tenant, key), rank
