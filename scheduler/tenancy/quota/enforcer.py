"""
Plans within quotas, and retries units that wait for quota.

    unit ──within quota, in whole or in part──▶ planned ──GPU kinds within quota──▶ plan
      │                                            └──exceeded──▶ planned again without that kind
      └──the minimum exceeds the quota──▶ over quota, until usage falls or policies change

A quota of amounts is checked before planning. A quota of a GPU kind is checked on the plan, because
the kind depends on the node. `queueing.over_quota` has the units that wait, by the limit that each
exceeds; a tick looks at a bounded number of those whose limit has been released, and `next_at` is
due at once while more of them remain.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation
from scheduler.model.over_quota import Excess, OverQuota
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.unit import Unit, UnitKey
from scheduler.queueing.entry import QueueState
from scheduler.queueing.over_quota import Limit
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import QuotaAccounts

LOOKS: Final = 128  # units over quota that one tick looks at, of each kind
_VISITS: Final = 256  # limits that one tick visits
_TO_PLAN: Final = (QueueState.ACTIVE, QueueState.PLANNING)


@dataclass(frozen=True, slots=True)
class QuotaConstraint:
    """The members of a unit that its quota allows, and the nodes whose GPUs it does not."""

    unit: Unit
    closed: frozenset[str] = frozenset()
    exceeded: OverQuota | None = None
    """The quota by kind of GPU that the last plan exceeded."""


@dataclass(frozen=True, slots=True)
class _Exceeded:
    over: OverQuota
    excess: Excess | None
    """The limit whose usage must fall; None: the usage alone does not tell."""


class QuotaEnforcer:
    """`within_preemptor_quota` cuts a unit down to what leaves preemptors their quota."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        *,
        isolation: Isolation,
        within_preemptor_quota: Callable[[Unit], Unit | OverQuota] = lambda unit: unit,
    ) -> None:
        self._isolation = isolation
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._within_preemptor_quota = within_preemptor_quota
        self._seen_changes = 0
        self._more_at: float | None = None
        self.looked_at = 0
        """How many units over quota the ticks have looked at."""

    def tick(self, now: float) -> None:
        """Activate units whose quota allows them now."""
        self._note_changes()
        over_quota = self._queue.over_quota
        before = self.looked_at
        for limit in over_quota.passes()[:_VISITS]:
            if self.looked_at - before >= LOOKS:
                break
            if over_quota.visit(limit, self._was_planned):
                self._go_on(limit, before + LOOKS, now)
        more = self.looked_at - before >= LOOKS
        for looks, key in enumerate(over_quota.unknown(), start=1):
            if self._within_limit(key):
                self._queue.retry_over_quota(key, now)
            if looks == LOOKS:
                more = True
                break
        self._more_at = now if more else None

    def next_at(self) -> float | None:
        """Due at once while released limits have units to look at."""
        return self._more_at

    def _note_changes(self) -> None:
        if self._seen_changes == self._accounts.changes:
            return
        over_quota = self._queue.over_quota
        released = self._accounts.released_since(self._seen_changes)
        self._seen_changes = self._accounts.changes
        if released is None:
            over_quota.limits_changed()
            return
        over_quota.any_released()
        for limit in released:
            over_quota.released(limit)

    def _go_on(self, limit: Limit, until: int, now: float) -> None:
        """Go on with the pass of a limit, until so many units have been looked at."""
        over_quota = self._queue.over_quota
        remaining = self._accounts.ledger.remaining_of(*limit)
        units = over_quota.in_order(limit)
        while remaining is not None and (over_quota.least(limit) or 0) <= remaining:
            if self.looked_at >= until:
                return
            key = next(units, None)
            if key is None:
                break
            if self._within_limit(key):
                remaining -= over_quota.activate(limit, key)
                self._queue.retry_over_quota(key, now)
        over_quota.end_pass(limit)

    def _within_limit(self, key: UnitKey) -> bool:
        """Whether the quota allows the unit now; the limit that it exceeds is noted otherwise."""
        self.looked_at += 1
        try:
            return self._allows(key)
        except Exception as error:
            self._isolation.unit_failed(ErrorStep.QUOTA, key, error)
            return False

    def _allows(self, key: UnitKey) -> bool:
        unit = self._queue.unit(key)
        if unit is None or not unit.pods:
            return True
        allowed = self._within_quota(unit)
        if isinstance(allowed, Unit):
            return True
        over_quota, excess = self._queue.over_quota, allowed.excess
        if excess is None:
            over_quota.move(key, None, 0)
        else:
            over_quota.move(key, (excess.member, excess.resource), excess.requested)
        return False

    def _was_planned(self, key: UnitKey) -> bool:
        return self._queue.state(key) not in _TO_PLAN

    def constraint(self, unit: Unit) -> QuotaConstraint | NoFit:
        """What the quota allows of the unit before it is planned."""
        if self._accounts.tree.empty:
            return QuotaConstraint(unit)
        allowed = self._within_quota(unit)
        if isinstance(allowed, _Exceeded):
            return NoFit(
                len(self._cache.snapshot), over_quota=allowed.over.text, excess=allowed.excess
            )
        closed = self._accounts.nodes_without_quota(allowed, self._cache.snapshot.table.rows)
        return QuotaConstraint(allowed, closed)

    def inspect(self, constraint: QuotaConstraint, plan: Plan) -> QuotaConstraint | Plan:
        """The plan; a stricter constraint where the plan exceeds a quota by kind of GPU."""
        snapshot = self._cache.snapshot
        over = self._over_quota(plan)
        if over is None:
            exceeded = constraint.exceeded if isinstance(plan, NoFit) else None
            return plan if exceeded is None else NoFit(len(snapshot), over_quota=exceeded.text)
        kind = over.excess.resource
        nodes = snapshot.table.rows
        more = {
            node for node in nodes if kind in self._accounts.gpu_kinds(node)
        } - constraint.closed
        if not more:
            return NoFit(len(snapshot), over_quota=over.text)
        return replace(constraint, closed=constraint.closed | more, exceeded=over)

    def _within_quota(self, unit: Unit) -> Unit | _Exceeded:
        """By the usage now, and with the quota that is reserved for preemptors."""
        allowed = self._accounts.within_quota(unit)
        if isinstance(allowed, OverQuota):
            # What is reserved for the unit itself is charged now, and not when it is planned.
            is_reserved = unit.key in self._cache.reserved
            return _Exceeded(allowed, None if is_reserved else allowed.excess)
        allowed = self._within_preemptor_quota(allowed)
        return _Exceeded(allowed, None) if isinstance(allowed, OverQuota) else allowed

    def _over_quota(self, plan: Plan) -> OverQuota | None:
        if not isinstance(plan, Placed):
            return None
        return self._accounts.over_quota((p.pod, p.node) for p in plan.placements)
