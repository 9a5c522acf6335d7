"""
Units that wait beyond their tenant's promise, and come to be within it while they wait.

    did not fit, beyond the promise ──the tenant gives something back──▶ within it: tried at once

A pod that ends may leave no room in which such a unit fits, so no node calls it; but what others
borrowed is to be taken back for it from then on. A unit within its promise from the start is none
of this: see `pacing` for when it is looked at again.
"""

from typing import Final

from scheduler.cache.cache import Cache
from scheduler.model.unit import Unit, UnitKey
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import QuotaAccounts

MOST: Final = 4096  # units that are remembered
_LOOKED_AT: Final = 256  # for each change


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
        if self._accounts.plain or unit.key in self._beyond or len(self._beyond) >= MOST:
            return
        promised = any(one.guaranteed for one in self._accounts.ledger.tree.path(unit.tenant))
        if promised and self._is_beyond(unit):
            self._beyond[unit.key] = None

    def placed(self, key: UnitKey) -> None:
        if self._beyond:
            self._beyond.pop(key, None)

    def tick(self, now: float) -> None:
        if self._seen_changes == self._accounts.changes:
            return
        self._seen_changes = self._accounts.changes
        for key in list(self._beyond)[:_LOOKED_AT]:
            unit = self._queue.unit(key)
            del self._beyond[key]
            if unit is None:
                continue
            if self._is_beyond(unit):
                self._beyond[key] = None  # behind those that are looked at next time
            else:
                self._queue.retry(key, now)

    def _is_beyond(self, unit: Unit) -> bool:
        return self._accounts.beyond(unit, self._cache.snapshot.table.rows) is None
