"""
Planning within quotas, and the units that wait for one.

    unit ──allowed in whole or in part──▶ planned ──kinds of GPUs within limits──▶ plan
      │                                      └──beyond──▶ without these nodes, once more
      └──not even its minimum──▶ held back, until somebody gives back or policies change

What a quota says in amounts is known before planning; what it says of a kind of GPU only from the
plan, which is then made again without the nodes of that kind. Shares are let fade here too.
"""

from collections.abc import Callable
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import PODS
from scheduler.model.unit import Unit
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import OverQuota

Planning = Callable[[Unit, frozenset[str]], Plan]

FADE_EVERY: Final = 1.0  # seconds
_MOST_LOOKED_AT: Final = 256  # units that are held back, for each change


class QuotaEnforcer:
    """`epoch` is the time of day: what is remembered outlives the process. `pledged` says as how
    much of a unit others are left what they wait for."""

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        *,
        epoch: Callable[[], float] = lambda: 0.0,
        pledged: Callable[[Unit], Unit | OverQuota] = lambda unit: unit,
    ) -> None:
        self._cache, self._queue, self._epoch = cache, queue, epoch
        self._accounts, self._pledged = cache.accounts, pledged
        self._given = 0
        self._faded_at = float("-inf")
        self._statics = -1

    def tick(self, now: float) -> None:
        """Let time pass; whoever may go on is put in line again."""
        statics = self._cache.snapshot.table.statics
        if now >= self._faded_at + FADE_EVERY or statics != self._statics:
            self._faded_at, self._statics = now, statics
            self.fade()
        if self._given == self._accounts.given:
            return
        self._given = self._accounts.given
        for unit in self._queue.held_back()[:_MOST_LOOKED_AT]:
            if not isinstance(self._allow(unit), OverQuota):
                self._queue.let_go(unit.key, now)

    def fade(self) -> None:
        table = self._cache.snapshot.table
        # Also what nobody uses yet: the first to use it is not the first again.
        totals = {name: table.total(name) for name in table.resources() if name != PODS}
        self._accounts.shares.advance(totals, self._epoch())

    def plan(self, unit: Unit, plan: Planning, *, closed: frozenset[str]) -> Plan:
        """What `plan` says; a `NoFit` with `held_back` where a quota is in the way."""
        snapshot = self._cache.snapshot
        if self._accounts.plain:
            return plan(unit, closed)
        allowed = self._allow(unit)
        if isinstance(allowed, OverQuota):
            return NoFit(len(snapshot), held_back=allowed.text)
        full = self._accounts.closed(allowed, snapshot.table.rows)
        found = plan(allowed, closed | full)
        over = self._over(found)
        while over is not None:
            kind = over.excess.resource
            more = {
                node for node in snapshot.table.rows if kind in self._accounts.kinds(node)
            } - full
            if not more:
                break
            full |= more
            found = plan(allowed, closed | full)
            over = self._over(found) or (over if isinstance(found, NoFit) else None)
            if isinstance(found, NoFit):
                break
        return found if over is None else NoFit(len(snapshot), held_back=over.text)

    def _allow(self, unit: Unit) -> Unit | OverQuota:
        """By what is used now, and by what others are going to use."""
        allowed = self._accounts.allow(unit)
        return allowed if isinstance(allowed, OverQuota) else self._pledged(allowed)

    def _over(self, found: Plan) -> OverQuota | None:
        if not isinstance(found, Placed):
            return None
        return self._accounts.over((one.pod, one.node) for one in found.placements)
