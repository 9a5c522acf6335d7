"""
Who goes, without touching what other tenants were promised.

    the cheapest of each tenant, as far as it can spare them ──somebody suffices──▶ they go
            │ nobody does
            ▼
    anybody who may go ──who suffices?──▶ spared by all ──▶ they go
            ▲                    │ a tenant would fall below its promise
            └── without one of its pods, each in turn, the dearest first

The first way takes one look, and is what happens as a rule: what a tenant can spare is an amount,
and which of its pods add up to it does not matter until only some of them are in the way. Whatever
the second way finds missing in a choice that robs somebody is missing in every other choice that
does not, so nothing is overlooked but for the number of looks. Nobody is evicted here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from scheduler.model.plan import Placement
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup, spared
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts, total

LOOKS: Final = 16
"""Searches for one unit."""

Reckon = Callable[[Placement], Amounts]
Choose = Callable[[list[VictimGroup]], PreemptionPlan | None]


class GuaranteeKeeper:
    """
    `amounts` is what a pod counts for; `unit` names the tenant that gets room, and how much: a
    group above it and a victim loses only the difference. What is `going` is in use no more.
    """

    def __init__(
        self,
        ledger: Ledger,
        amounts: Reckon,
        *,
        unit: tuple[str, Amounts] = ("", {}),
        going: Iterable[Placement] = (),
    ) -> None:
        self._ledger, self._amounts, self._unit = ledger, amounts, unit
        self._going = tuple(going)

    def choose(self, bundles: Sequence[VictimGroup], choose: Choose) -> PreemptionPlan | None:
        """`choose` finds who of some bundles suffices; None: nobody may be asked, or all of
        them together are not enough."""
        ledger, (tenant, needed) = self._ledger, self._unit
        with ledger.trial():
            ledger.charge(tenant, needed.items())
            able = spared(bundles, ledger, self._amounts, going=self._going)
            found = choose(able)
            if found is not None or len(able) == len(bundles):
                return found
            return self._look(list(bundles), choose)

    def _look(self, bundles: list[VictimGroup], choose: Choose) -> PreemptionPlan | None:
        seen: set[frozenset[str]] = set()
        stack = [bundles]
        while stack and len(seen) < LOOKS:
            able = stack.pop()
            keys = frozenset(bundle.key for bundle in able)
            if keys in seen:
                continue
            seen.add(keys)
            found = choose(able)
            if found is None:
                continue
            robbed = self._robbed(found.bundles)
            if not robbed:
                return found
            # The last one is looked at first.
            stack += [_without(one, able) for one in sorted(robbed, key=lambda one: one.cost)]
        return None

    def _robbed(self, chosen: Sequence[VictimGroup]) -> list[VictimGroup]:
        """Bundles of a tenant, or of a group, that falls below its promise without them."""
        foreign = [bundle for bundle in chosen if bundle.foreign]
        less = [(_tenant(b), total(self._amounts(one) for one in b.pods)) for b in foreign]
        gone = [(one.pod.attributes.tenant, self._amounts(one)) for one in self._going]
        member = self._ledger.robbed(less, gone)
        if member is None:
            return []
        path = self._ledger.tree.path
        return [b for b in foreign if any(one.name == member for one in path(_tenant(b)))]


def _tenant(bundle: VictimGroup) -> str:
    return bundle.pods[0].pod.attributes.tenant


def _without(staying: VictimGroup, bundles: Sequence[VictimGroup]) -> list[VictimGroup]:
    """A gang of which somebody above its minimum must stay cannot go as a whole."""
    return [
        b
        for b in bundles
        if b.key != staying.key and not (b.core and b.gang is not None and b.gang == staying.gang)
    ]
