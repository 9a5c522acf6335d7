"""
Units that are ready to be planned: a line for each tenant, and whose turn it is.

    half-bound gangs, and pods of the cluster itself      before everybody
    then the tenant that stands first                     asked anew, for the first in its line
    then the first in that tenant's line                  by its rank

Between tenants the standing decides (promises, then shares), within one the rank. With a single
tenant, or where nobody is told apart, the rank alone orders. Items that are void are dropped when
they come up, and now and then all at once.
"""

import heapq
from collections.abc import Callable
from typing import Any, Final

from scheduler.model.attributes import SYSTEM_CRITICAL
from scheduler.model.unit import UnitKey
from scheduler.queueing.unschedulable import Rank

Item = tuple[Rank, int, UnitKey]

SPARE: Final = 1024  # void items that a line may hold


class ActiveQueue:
    """`stands` says whether an item is still valid; `standing` orders tenants, each by the first
    in its line, the lowest first."""

    def __init__(
        self, stands: Callable[[UnitKey, int], bool], standing: Callable[[str, UnitKey], Any]
    ) -> None:
        self._stands, self._standing = stands, standing
        self._lines: dict[str, list[Item]] = {}  # tenant -> heap

    def __len__(self) -> int:
        """Items in all lines, the void ones included."""
        return sum(map(len, self._lines.values()))

    def push(self, tenant: str, item: Item, *, units: int) -> None:
        """`units`: how many there are in all. A standby pushes for weeks and never pops."""
        line = self._lines.setdefault(tenant, [])
        heapq.heappush(line, item)
        if len(line) > 4 * units + SPARE:
            line[:] = [one for one in line if self._stands(one[2], one[1])]
            heapq.heapify(line)

    def pop(self) -> UnitKey | None:
        """The next one, which is then in no line any more."""
        heads = self._heads()
        if not heads:
            return None
        tenant = heads[0] if len(heads) == 1 else min(heads, key=self._turn)
        return heapq.heappop(self._lines[tenant])[2]

    def _heads(self) -> list[str]:
        """Tenants with somebody in line."""
        found = []
        for tenant, line in list(self._lines.items()):
            while line and not self._stands(line[0][2], line[0][1]):
                heapq.heappop(line)
            if line:
                found.append(tenant)
            else:
                del self._lines[tenant]
        return found

    def _turn(self, tenant: str) -> tuple[Any, ...]:
        rank, _, key = self._lines[tenant][0]
        half_bound, priority = rank[0], -rank[1]
        return half_bound, priority < SYSTEM_CRITICAL, self._standing(tenant, key), rank
