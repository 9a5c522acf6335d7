"""
Plans within quotas, and retries units that wait for quota.

    unit ──within quota, in whole or in part──▶ planned ──GPU kinds within quota──▶ plan
      │                                            └──exceeded──▶ planned again without that kind
      └──the minimum exceeds the quota──▶ over quota, until usage falls or policies change

A quota of amounts is checked before planning. A quota of a GPU kind is checked on the plan, because
the kind depends on the node.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.model.over_quota import OverQuota
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.unit import Unit
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.tenancy.quota.accounting import QuotaAccounts

_CHECKED: Final = 256  # units over quota, per change


@dataclass(frozen=True, slots=True)
class QuotaConstraint:
    """The members of a unit that its quota allows, and the nodes whose GPUs it does not."""

    unit: Unit
    closed: frozenset[str] = frozenset()
    exceeded: OverQuota | None = None
    """The quota by kind of GPU that the last plan exceeded."""


class QuotaEnforcer:
    """`within_preemptor_quota` cuts a unit down to what leaves preemptors their quota."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        *,
        within_preemptor_quota: Callable[[Unit], Unit | OverQuota] = lambda unit: unit,
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._within_preemptor_quota = within_preemptor_quota
        self._seen_changes = 0

    def tick(self, now: float) -> None:
        """Activate the units whose quota allows them now."""
        if self._seen_changes == self._accounts.changes:
            return
        self._seen_changes = self._accounts.changes
        for unit in self._queue.over_quota()[:_CHECKED]:
            if not isinstance(self._within_quota(unit), OverQuota):
                self._queue.retry_over_quota(unit.key, now)

    def constraint(self, unit: Unit) -> QuotaConstraint | NoFit:
        """What the quota allows of the unit before it is planned."""
        if self._accounts.tree.empty:
            return QuotaConstraint(unit)
        allowed = self._within_quota(unit)
        if isinstance(allowed, OverQuota):
            return NoFit(len(self._cache.snapshot), over_quota=allowed.text)
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

    def _within_quota(self, unit: Unit) -> Unit | OverQuota:
        """By the usage now, and with the quota that is reserved for preemptors."""
        allowed = self._accounts.within_quota(unit)
        return allowed if isinstance(allowed, OverQuota) else self._within_preemptor_quota(allowed)

    def _over_quota(self, plan: Plan) -> OverQuota | None:
        if not isinstance(plan, Placed):
            return None
        return self._accounts.over_quota((p.pod, p.node) for p in plan.placements)
