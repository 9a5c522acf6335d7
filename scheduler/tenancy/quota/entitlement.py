"""
Retries units that become entitled to reclaim because their tenant's usage fell below its guarantee.

    does not fit, beyond the guarantee ──the tenant's usage falls──▶ within the guarantee: retried

A pod that ends may free too little capacity for such a unit, so no node event activates it; but
from then on the scheduler may reclaim borrowed quota for it. `preemption.rate_limit` activates
units that are within their guarantee from the start.

Units are kept by tenant, and tenants by the members of the tree whose guarantee covers them. A tick
looks at a bounded number of units of tenants whose guaranteed usage has fallen.
"""

from itertools import islice
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation
from scheduler.model.unit import Unit, UnitKey
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import QuotaAccounts

LOOKS: Final = 128  # units that one tick looks at
_MAX_STALE: Final = 1024  # units that have left the queue


class EntitlementTracker:
    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        *,
        isolation: Isolation,
    ) -> None:
        self._isolation = isolation
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._tenant_of: dict[UnitKey, str] = {}
        self._beyond: dict[str, dict[UnitKey, None]] = {}  # tenant -> units beyond its guarantee
        self._covered: dict[str, set[str]] = {}  # member with a guarantee -> tenants with units
        self._due: dict[str, int] = {}  # tenant -> how many of its units to look at, in rotation
        self._seen_changes = 0
        self._more_at: float | None = None
        self.looked_at = 0
        """How many units the ticks have looked at."""

    def __len__(self) -> int:
        return len(self._tenant_of)

    def misfit(self, unit: Unit) -> None:
        known = unit.key in self._tenant_of
        if known or self._accounts.tree.empty or not self._guarantees(unit.tenant):
            return
        if self._is_beyond(unit):
            self._tenant_of[unit.key] = unit.tenant
            self._beyond.setdefault(unit.tenant, {})[unit.key] = None
            self._cover(unit.tenant)
            self._drop_stale()

    def placed(self, key: UnitKey) -> None:
        self._discard(key)

    def tick(self, now: float) -> None:
        self._note_changes()
        looks = LOOKS
        while self._due and looks:
            tenant, due = next(iter(self._due.items()))
            del self._due[tenant]
            for key in list(islice(self._beyond[tenant], min(due, looks))):
                due, looks = due - 1, looks - 1
                try:
                    self._look(tenant, key, now)
                except Exception as error:
                    self._discard(key)
                    self._isolation.unit_failed(ErrorStep.QUOTA, key, error)
            if due and tenant in self._beyond:
                self._due[tenant] = due
        self.looked_at += LOOKS - looks
        self._more_at = now if self._due else None

    def next_at(self) -> float | None:
        """Due at once while tenants whose usage has fallen have units to look at."""
        return self._more_at

    def _look(self, tenant: str, key: UnitKey, now: float) -> None:
        unit = self._queue.unit(key)
        if unit is not None and self._is_beyond(unit):
            units = self._beyond[tenant]
            units[key] = units.pop(key)  # behind the units that the next tick looks at
            return
        self._discard(key)
        if unit is not None:
            self._queue.retry(key, now)

    def _note_changes(self) -> None:
        if self._seen_changes == self._accounts.changes:
            return
        released = self._accounts.released_since(self._seen_changes)
        self._seen_changes = self._accounts.changes
        if released is None:
            self._regroup()
            self._due = {tenant: len(units) for tenant, units in self._beyond.items()}
            return
        for member, _ in released:
            for tenant in self._covered.get(member, ()):
                if tenant in self._beyond:
                    self._due[tenant] = len(self._beyond[tenant])

    def _regroup(self) -> None:
        """Other policies are in force: other members may have guarantees."""
        self._covered = {}
        for tenant in self._beyond:
            self._cover(tenant)

    def _cover(self, tenant: str) -> None:
        for member in self._guarantees(tenant):
            self._covered.setdefault(member, set()).add(tenant)

    def _guarantees(self, tenant: str) -> list[str]:
        """The members of the tree whose guarantee covers the tenant."""
        return [member.name for member in self._accounts.tree.path(tenant) if member.guaranteed]

    def _discard(self, key: UnitKey) -> None:
        tenant = self._tenant_of.pop(key, None)
        if tenant is None:
            return
        units = self._beyond[tenant]
        del units[key]
        if units:
            return
        del self._beyond[tenant]
        self._due.pop(tenant, None)
        for member in self._guarantees(tenant):
            tenants = self._covered.get(member, set())
            tenants.discard(tenant)
            if not tenants:
                self._covered.pop(member, None)

    def _drop_stale(self) -> None:
        """Units that were deleted are never placed."""
        if len(self._tenant_of) > 2 * len(self._queue) + _MAX_STALE:
            for key in [key for key in self._tenant_of if self._queue.state(key) is None]:
                self._discard(key)

    def _is_beyond(self, unit: Unit) -> bool:
        nodes = self._cache.snapshot.table.rows
        return self._accounts.nodes_beyond_guarantee(unit, nodes) is None
