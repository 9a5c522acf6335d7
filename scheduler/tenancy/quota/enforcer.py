"""
Planning within quotas, and the units that wait for one.

    unit ──allowed in whole or in part──▶ planned ──kinds of GPUs within limits──▶ plan
      │                                      └──beyond──▶ without these nodes, once more
      └──not even its minimum──▶ held back, until somebody gives back or policies change

What a quota says in amounts is known before planning; what it says of a kind of GPU only from the
plan, which is then made again without the nodes of that kind.
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

_MOST_LOOKED_AT: Final = 256  # units that are held back, for each change


@dataclass(frozen=True, slots=True)
class QuotaConstraint:
    """The members of a unit that its quota allows, and the nodes whose GPUs it does not."""

    unit: Unit
    closed: frozenset[str] = frozenset()
    exceeded: OverQuota | None = None
    """The quota by kind of GPU that the last plan exceeded."""


class QuotaEnforcer:
    """`pledged` cuts a unit down to what leaves preemptors their quota."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        *,
        pledged: Callable[[Unit], Unit | OverQuota] = lambda unit: unit,
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._pledged = pledged
        self._seen_changes = 0

    def tick(self, now: float) -> None:
        """Activate the units whose quota allows them now."""
        if self._seen_changes == self._accounts.changes:
            return
        self._seen_changes = self._accounts.changes
        for unit in self._queue.over_quota()[:_MOST_LOOKED_AT]:
            if not isinstance(self._allow(unit), OverQuota):
                self._queue.retry_over_quota(unit.key, now)

    def constraint(self, unit: Unit) -> QuotaConstraint | NoFit:
        """What the quota allows of the unit before it is planned."""
        if self._accounts.plain:
            return QuotaConstraint(unit)
        allowed = self._allow(unit)
        if isinstance(allowed, OverQuota):
            return NoFit(len(self._cache.snapshot), over_quota=allowed.text)
        closed = self._accounts.closed(allowed, self._cache.snapshot.table.rows)
        return QuotaConstraint(allowed, closed)

    def inspect(self, constraint: QuotaConstraint, found: Plan) -> QuotaConstraint | Plan:
        """The plan; a stricter constraint where the plan exceeds a quota by kind of GPU."""
        snapshot = self._cache.snapshot
        over = self._over(found)
        if over is None:
            exceeded = constraint.exceeded if isinstance(found, NoFit) else None
            return found if exceeded is None else NoFit(len(snapshot), over_quota=exceeded.text)
        kind = over.excess.resource
        nodes = snapshot.table.rows
        more = {node for node in nodes if kind in self._accounts.kinds(node)} - constraint.closed
        if not more:
            return NoFit(len(snapshot), over_quota=over.text)
        return replace(constraint, closed=constraint.closed | more, exceeded=over)

    def _allow(self, unit: Unit) -> Unit | OverQuota:
        """By what is used now, and by what others are going to use."""
        allowed = self._accounts.allow(unit)
        return allowed if isinstance(allowed, OverQuota) else self._pledged(allowed)

    def _over(self, found: Plan) -> OverQuota | None:
        if not isinstance(found, Placed):
            return None
        return self._accounts.over((one.pod, one.node) for one in found.placements)
