"""
Retries units that become entitled to reclaim because their tenant's usage fell below its guarantee.

    does not fit, beyond the guarantee ──the tenant's usage falls──▶ within the guarantee: retried

A pod that ends may free too little capacity for such a unit, so no node event activates it; but
from then on the scheduler may reclaim borrowed quota for it. `preemption.rate_limit` activates
units that are within their guarantee from the start.
"""

from typing import Final

from scheduler.cache.cache import Cache
from scheduler.model.unit import Unit, UnitKey
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import QuotaAccounts

MAX_UNITS: Final = 4096
_CHECKED: Final = 256  # units per change


class EntitlementTracker:
    def __init__(self, cache: Cache, accounts: QuotaAccounts, queue: SchedulingQueue) -> None:
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._beyond: dict[UnitKey, None] = {}
        self._seen_changes = 0

    def __len__(self) -> int:
        return len(self._beyond)

    def misfit(self, unit: Unit) -> None:
        tree = self._accounts.tree
        if tree.empty or unit.key in self._beyond or len(self._beyond) >= MAX_UNITS:
            return
        has_guarantee = any(member.guaranteed for member in tree.path(unit.tenant))
        if has_guarantee and self._is_beyond(unit):
            self._beyond[unit.key] = None

    def placed(self, key: UnitKey) -> None:
        if self._beyond:
            self._beyond.pop(key, None)

    def tick(self, now: float) -> None:
        if self._seen_changes == self._accounts.changes:
            return
        self._seen_changes = self._accounts.changes
        for key in list(self._beyond)[:_CHECKED]:
            unit = self._queue.unit(key)
            del self._beyond[key]
            if unit is None:
                continue
            if self._is_beyond(unit):
                self._beyond[key] = None  # behind the units that the next tick checks
            else:
                self._queue.retry(key, now)

    def _is_beyond(self, unit: Unit) -> bool:
        nodes = self._cache.snapshot.table.rows
        return self._accounts.nodes_beyond_guarantee(unit, nodes) is None
