"""
Quota reserved for preemptors until their victims have terminated.

    used + requests of preemptors - usage of their victims + the unit's request ≤ max

Reserved capacity keeps a preemptor's nodes, and this keeps its quota. Otherwise another unit of the
same tenant or group would use that quota on any node, and the evictions would be wasted.
"""

from collections.abc import Callable, Collection, Iterator

from scheduler.cache.cache import Cache
from scheduler.model.over_quota import OverQuota
from scheduler.model.unit import Unit
from scheduler.tenancy.preemption.controller import Attempt
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.tree import Pairs


class PreemptorQuota:
    """`attempts` are the preemptions in progress."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        attempts: Callable[[], Collection[Attempt]],
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._attempts = attempts

    def within_quota(self, unit: Unit) -> Unit | OverQuota:
        """
        As many members of the unit as leave preemptors their quota, at least its minimum.

        A preemptor itself passes: it was checked before its victims were evicted.
        """
        attempts = self._attempts()
        ledger = self._accounts.ledger
        if not attempts or not ledger.tree.limited:
            return unit
        if any(attempt.unit.key == unit.key for attempt in attempts):
            return unit
        with ledger.trial():
            for tenant, amounts in self._requests(attempts):
                ledger.charge(tenant, amounts)
            for tenant, amounts in self._victims(attempts):
                ledger.uncharge(tenant, amounts)
            return self._accounts.within_quota(unit)

    def _requests(self, attempts: Collection[Attempt]) -> Iterator[tuple[str, Pairs]]:
        """The minimum of each preemptor, without the pods that are charged already."""
        for attempt in attempts:
            nodes = {placement.pod.uid: placement.node for placement in attempt.placements}
            placed = [pod for pod in attempt.unit.pods if pod.uid in nodes]
            for pod in placed[: attempt.unit.need]:
                if not self._accounts.charged(pod.uid):
                    amounts = self._accounts.amounts(pod, nodes[pod.uid])
                    yield pod.attributes.tenant, tuple(amounts.items())

    def _victims(self, attempts: Collection[Attempt]) -> Iterator[tuple[str, Pairs]]:
        for uid in {uid for attempt in attempts for uid in attempt.victims}:
            victim = self._cache.get(uid)
            if victim is not None:
                yield victim.pod.attributes.tenant, self._accounts.charged(uid)
