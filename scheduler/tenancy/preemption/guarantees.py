"""
Victims that leave the guarantees of other tenants intact.

    1. the cheapest groups of each tenant, up to the amount it borrows ──sufficient──▶ victims
            │ not sufficient
            ▼
    2. all groups ──sufficient?──▶ no guarantee breached ──▶ victims
            ▲              │ a tenant or group falls below its guarantee
            └── again without one of its groups, each in turn, most expensive first

The first pass takes one search and is the usual case: a tenant borrows an amount, and it rarely
matters which of its pods add up to it. The second pass excludes one offending victim group at a
time. It finds a valid set if one exists, up to `MAX_SEARCHES` searches.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from scheduler.model.plan import Placement
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup, within_guarantees
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts, total

MAX_SEARCHES: Final = 16  # per preemptor

AmountsOf = Callable[[Placement], Amounts]
Search = Callable[[list[VictimGroup]], PreemptionPlan | None]


class GuaranteeKeeper:
    """
    `amounts` is the charge of a pod; `preemptor` its tenant and its request.

    A group above both the preemptor and a victim loses only the difference. Pods that are
    `leaving` no longer count as used.
    """

    def __init__(
        self,
        ledger: Ledger,
        amounts: AmountsOf,
        *,
        preemptor: tuple[str, Amounts] = ("", {}),
        leaving: Iterable[Placement] = (),
    ) -> None:
        self._ledger = ledger
        self._amounts = amounts
        self._preemptor = preemptor
        self._leaving = tuple(leaving)

    def choose(self, groups: Sequence[VictimGroup], search: Search) -> PreemptionPlan | None:
        """`search` finds a sufficient set among some groups; None: there is no valid set."""
        tenant, requested = self._preemptor
        with self._ledger.trial():
            self._ledger.charge(tenant, requested.items())
            able = within_guarantees(groups, self._ledger, self._amounts, leaving=self._leaving)
            plan = search(able)
            if plan is not None or len(able) == len(groups):
                return plan
            return self._exclude_offenders(list(groups), search)

    def keeps(self, chosen: Sequence[VictimGroup]) -> bool:
        """Whether every guarantee stays intact once these groups are evicted."""
        tenant, requested = self._preemptor
        with self._ledger.trial():
            self._ledger.charge(tenant, requested.items())
            return not self._offenders(chosen)

    def _exclude_offenders(
        self, groups: list[VictimGroup], search: Search
    ) -> PreemptionPlan | None:
        searched: set[frozenset[str]] = set()
        stack = [groups]
        while stack and len(searched) < MAX_SEARCHES:
            able = stack.pop()
            keys = frozenset(group.key for group in able)
            if keys in searched:
                continue
            searched.add(keys)
            plan = search(able)
            if plan is None:
                continue
            offenders = self._offenders(plan.groups)
            if not offenders:
                return plan
            # The top of the stack is searched first: without the most expensive offender.
            stack += [_without(group, able) for group in sorted(offenders, key=lambda g: g.cost)]
        return None

    def _offenders(self, chosen: Sequence[VictimGroup]) -> list[VictimGroup]:
        """Groups of a tenant, or of a group of tenants, that falls below its guarantee."""
        others = [group for group in chosen if group.other_tenant]
        released = [
            (group.tenant, total(self._amounts(victim) for victim in group.placements))
            for group in others
        ]
        leaving = [(p.pod.attributes.tenant, self._amounts(p)) for p in self._leaving]
        with self._ledger.trial():
            for group in others:  # pending members are not charged yet
                for placement in group.reserved:
                    self._ledger.charge(group.tenant, self._amounts(placement).items())
            breached = self._ledger.breached_guarantee(released, leaving)
        if breached is None:
            return []
        path = self._ledger.tree.path
        return [
            group
            for group in others
            if any(member.name == breached for member in path(group.tenant))
        ]


def _without(excluded: VictimGroup, groups: Sequence[VictimGroup]) -> list[VictimGroup]:
    """Also without the core of a gang whose surplus is excluded."""
    return [
        group
        for group in groups
        if group.key != excluded.key
        and not (group.core and group.gang is not None and group.gang == excluded.gang)
    ]
