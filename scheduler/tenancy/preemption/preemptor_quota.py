"""
What quotas must still allow when those have gone who were asked to go for somebody.

    used now + what units need for whom others go, less those who go, + the unit itself ≤ max

Room that is made for a unit is kept (`holds`), and so is what it needs of its quota: otherwise
another unit of the same tenant or group would use that up on whatever node, and the evictions
would have been in vain. Nothing is counted for good: the books are as before after each question.
"""

from collections.abc import Callable, Collection, Iterator

from scheduler.cache.cache import Cache
from scheduler.model.over_quota import OverQuota
from scheduler.model.unit import Unit
from scheduler.tenancy.preemption.controller import Attempt
from scheduler.tenancy.quota.accounting import QuotaAccounts

Row = tuple[str, tuple[tuple[str, int], ...]]  # tenant, amounts


class PreemptorQuota:
    """`attempts` are the units for which others go."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        attempts: Callable[[], Collection[Attempt]],
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._attempts = attempts

    def allow(self, unit: Unit) -> Unit | OverQuota:
        """As many members of the unit as leave the others theirs, at least those that it needs.

        A unit for which others go had to leave the others theirs before anybody went."""
        attempts = self._attempts()
        ledger = self._accounts.ledger
        if not attempts or not ledger.tree.limited:
            return unit
        if any(one.unit.key == unit.key for one in attempts):
            return unit
        with ledger.trial():
            for tenant, amounts in self._needed(attempts):
                ledger.charge(tenant, amounts)
            for tenant, amounts in self._going(attempts):
                ledger.uncharge(tenant, amounts)
            return self._accounts.allow(unit)

    def _needed(self, attempts: Collection[Attempt]) -> Iterator[Row]:
        """Of each what it needs at the least, as far as it does not count already."""
        for attempt in attempts:
            nodes = {one.pod.uid: one.node for one in attempt.places}
            placed = [pod for pod in attempt.unit.pods if pod.uid in nodes]
            for pod in placed[: attempt.unit.need]:
                if not self._accounts.charged(pod.uid):
                    amounts = self._accounts.amounts(pod, nodes[pod.uid])
                    yield pod.attributes.tenant, tuple(amounts.items())

    def _going(self, attempts: Collection[Attempt]) -> Iterator[Row]:
        for uid in {uid for attempt in attempts for uid in attempt.victims}:
            held = self._cache.held(uid)
            if held is not None:
                yield held.pod.attributes.tenant, self._accounts.charged(uid)
