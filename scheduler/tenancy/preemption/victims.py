"""
Who has to go so that a unit can be placed. Pure: nobody is evicted here.

    bundles     what may go, each as it would go: a single pod, a member above its gang's minimum,
                or the rest of a gang as a whole
    1. all of them away, on a trial: is the unit placed? If not, nobody goes
    2. the fewest of the cheapest first that suffice, by halving
    3. reprieve: whoever the plan does not touch stays, then each in turn, the dearest first,
       until putting any one back makes the plan fail

Cheap means: no gang disrupted, then a lower tier, a lower priority, less work lost; the key ends
every tie. What a gang has above its minimum goes before the gang: `core` bundles go only together
with the gang's surplus. Of what a tenant was promised nothing goes to another tenant: `spared`
leaves out what all victims together may not take.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.plan.memo import Memo
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts, total

_MOST_TRIALS: Final = 200  # plans made for one search


@dataclass(frozen=True, slots=True)
class VictimGroup:
    """Pods that go together or stay together."""

    key: str
    pods: tuple[Placement, ...]
    gang: GangKey | None = None
    core: bool = False
    """What keeps its gang alive: without it the whole gang goes."""
    tier: int = 0
    """Rank of the tenant's tier; the lower, the cheaper."""
    priority: int = 0
    lost: float = 0.0
    """Seconds of work that would be lost, over all pods."""
    foreign: bool = False
    """Of another tenant than the unit: goes only as far as the tenant can spare it."""

    @property
    def cost(self) -> tuple[int, int, int, float, str]:
        return (int(self.core), self.tier, self.priority, self.lost, self.key)


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """Who goes, and the plan that this makes possible."""

    bundles: tuple[VictimGroup, ...]
    plan: Placed

    @property
    def pods(self) -> tuple[Placement, ...]:
        return tuple(one for bundle in self.bundles for one in bundle.pods)


@dataclass(slots=True)
class VictimSearch:
    """One search; `plan` places the unit on the snapshot as it stands, with the memo given."""

    snapshot: Snapshot
    plan: Callable[[Memo], Plan]
    need: int
    """How many of the unit's pods a plan must place."""
    statics: Memo = field(default_factory=Memo)
    """What was derived from facts that evictions do not change."""
    going: Sequence[Placement] = ()
    """Pods that are on their way out: their room counts as free."""
    trials: int = 0

    def fits(self) -> Placed | None:
        """The plan, if nobody else has to go."""
        return self._try(())

    def run(self, bundles: Iterable[VictimGroup]) -> PreemptionPlan | None:
        """None: evicting would not help."""
        order = sorted(bundles, key=lambda bundle: bundle.cost)
        if not order or self._try(order) is None:
            return None
        chosen = self._fewest(order)
        found = self._try(chosen)
        if found is None:  # fewer pods in the way is not always better for a bounded search
            chosen, found = order, self._try(order)
        while found is not None:
            better = self._reprieve(chosen, found)
            if better is None:
                return PreemptionPlan(tuple(chosen), found)
            chosen, found = better
        return None

    def _try(self, going: Sequence[VictimGroup]) -> Placed | None:
        self.trials += 1
        memo = self.statics.for_trial()
        with self.snapshot.trial():
            for one in (*self.going, *(one for bundle in going for one in bundle.pods)):
                if one.node in self.snapshot:
                    self.snapshot.suppose_gone(one.pod, one.node, one.assignment)
            found = self.plan(memo)
        placed = isinstance(found, Placed) and len(found.placements) >= self.need
        return found if placed and isinstance(found, Placed) else None

    def _fewest(self, order: Sequence[VictimGroup]) -> list[VictimGroup]:
        """The shortest beginning of the order that suffices, each with what must go with it."""
        low, high = 1, len(order)
        while low < high and self.trials < _MOST_TRIALS:
            middle = (low + high) // 2
            if self._try(_closed(order[:middle], order)) is not None:
                high = middle
            else:
                low = middle + 1
        return _closed(order[:high], order)

    def _reprieve(
        self, chosen: list[VictimGroup], found: Placed
    ) -> tuple[list[VictimGroup], Placed] | None:
        """A smaller choice that suffices; None: putting back any one makes the plan fail."""
        nodes = {one.node for one in found.placements}
        touched = [b for b in chosen if any(one.node in nodes for one in b.pods)]
        if len(touched) < len(chosen):
            smaller = _closed(touched, chosen)
            if len(smaller) < len(chosen) and (plan := self._try(smaller)) is not None:
                return smaller, plan
        for bundle in sorted(chosen, key=lambda one: one.cost, reverse=True):
            if self.trials >= _MOST_TRIALS:
                break
            rest = _without(bundle, chosen)
            if rest is not None and (plan := self._try(rest)) is not None:
                return rest, plan
        return None


def _closed(going: Sequence[VictimGroup], among: Sequence[VictimGroup]) -> list[VictimGroup]:
    """With a gang's core goes all of it."""
    cores = {bundle.gang for bundle in going if bundle.core}
    kept = {bundle.key for bundle in going}
    return [b for b in among if b.key in kept or (b.gang is not None and b.gang in cores)]


def _without(bundle: VictimGroup, chosen: Sequence[VictimGroup]) -> list[VictimGroup] | None:
    """The others; None where this one must go with its gang."""
    bound = bundle.gang is not None and not bundle.core
    if bound and any(one.core and one.gang == bundle.gang for one in chosen):
        return None
    return [one for one in chosen if one.key != bundle.key]


def spared(
    bundles: Sequence[VictimGroup],
    ledger: Ledger,
    amounts: Callable[[Placement], Amounts],
    *,
    going: Iterable[Placement] = (),
) -> list[VictimGroup]:
    """
    The bundles that may go together without touching what their tenants were promised.

    The cheapest first; a bundle of the unit's own tenant is no matter of promises. What is `going`
    already is in use no more, though it counts until it is gone.
    """
    kept: list[VictimGroup] = []
    with ledger.trial():
        for one in going:
            ledger.uncharge(one.pod.attributes.tenant, amounts(one).items())
        for bundle in sorted(bundles, key=lambda one: one.cost):
            less = total(amounts(one) for one in bundle.pods)
            tenant = bundle.pods[0].pod.attributes.tenant
            if bundle.foreign and not ledger.spares(tenant, less):
                continue
            kept.append(bundle)
            if bundle.foreign:
                ledger.uncharge(tenant, less.items())
    # A gang whose surplus must stay cannot go as a whole.
    keys = {bundle.key for bundle in kept}
    staying = {bundle.gang for bundle in bundles if bundle.key not in keys}
    return [b for b in kept if not (b.core and b.gang in staying)]
