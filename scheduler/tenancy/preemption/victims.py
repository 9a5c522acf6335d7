"""
The smallest set of victims that lets a preemptor fit. Pure: nothing is evicted here.

    victim group   pods that are evicted together: a single pod, a member above its gang's minimum,
                   or the rest of a gang
    1. evict all groups on a trial; if the preemptor still does not fit, there are no victims
    2. halve: the shortest prefix of the groups, cheapest first, with which the preemptor fits
    3. reprieve: groups that the plan does not touch, then one group at a time, most expensive
       first, until the preemptor does not fit without any one of the rest

All steps share one trial of the snapshot: each moves only the groups in which it differs from the
step before. A search that exceeds its `WorkBudget` raises, and leaves the snapshot as it was.

Cost order: groups that leave their gang complete, then lower tier, lower priority, less work lost;
the key breaks ties. The members above a gang's minimum are evicted before the gang: a `core` group
is evicted only together with its gang's surplus. `within_guarantees` drops the groups whose
eviction would take a tenant below its guarantee.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.plan.memo import Memo
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import Amounts, total
from scheduler.work_budget import UNLIMITED, WorkBudget

_MAX_TRIALS: Final = 200  # plans per search


class PreemptionReason(StrEnum):
    """Why a victim is evicted, as its Event words it."""

    PRIORITY = "higher priority"
    RECLAIM = "reclaim of the preemptor's guarantee"
    PREEMPTIBLE = "this pod is preemptible"
    OVERRUN = "this pod overran its expected duration"


@dataclass(frozen=True, slots=True)
class VictimGroup:
    """Pods that are evicted together or not at all."""

    key: str
    pods: tuple[Placement, ...]
    reserved: tuple[Placement, ...] = ()
    """Pending members of the gang, with capacity reserved by its own preemption: the capacity is
    freed, and no pod is evicted."""
    gang: GangKey | None = None
    core: bool = False
    """The members without which the gang is incomplete."""
    tier: int = 0
    """Rank of the tenant's tier; lower is cheaper."""
    priority: int = 0
    work_lost: float = 0.0
    """Seconds of run time, over all pods."""
    other_tenant: bool = False
    """Not of the preemptor's tenant: its tenant's guarantee limits the eviction."""
    reason: PreemptionReason = PreemptionReason.PRIORITY

    @property
    def cost(self) -> tuple[int, int, int, float, str]:
        return (int(self.core), self.tier, self.priority, self.work_lost, self.key)

    @property
    def tenant(self) -> str:
        return (self.pods or self.reserved)[0].pod.attributes.tenant

    @property
    def placements(self) -> tuple[Placement, ...]:
        """What the group frees."""
        return self.pods + self.reserved if self.reserved else self.pods


@dataclass(frozen=True, slots=True)
class PreemptionPlan:
    """The victims, and where the preemptor is placed without them."""

    groups: tuple[VictimGroup, ...]
    plan: Placed

    @property
    def victims(self) -> tuple[Placement, ...]:
        return tuple(victim for group in self.groups for victim in group.pods)

    @property
    def displaced(self) -> tuple[GangKey, ...]:
        """Gangs that lose reserved capacity, or the members without which they are incomplete:
        what they preempt for themselves has no purpose any more."""
        return tuple(
            sorted({g.gang for g in self.groups if g.gang is not None and (g.core or g.reserved)})
        )

    @property
    def reasons(self) -> dict[str, PreemptionReason]:
        """By uid of the victim."""
        return {victim.pod.uid: group.reason for group in self.groups for victim in group.pods}


@dataclass(slots=True)
class VictimSearch:
    """One search; `plan` places the preemptor on the snapshot as it stands, with this memo."""

    snapshot: Snapshot
    plan: Callable[[Memo], Plan]
    need: int
    """How many pods of the preemptor a plan must place."""
    statics: Memo = field(default_factory=Memo)
    """Results that evictions do not change."""
    nominated: Sequence[Placement] = ()
    """Victims of earlier searches: their capacity counts as free."""
    budget: WorkBudget = UNLIMITED
    trials: int = 0
    _evicted: dict[str, VictimGroup] = field(default_factory=dict)  # on the trial, by key

    def plan_without(self, groups: Iterable[VictimGroup]) -> Placed | None:
        """The plan, if the preemptor fits once exactly these groups are evicted."""
        with self._trial():
            return self._try(groups)

    def run(self, groups: Iterable[VictimGroup]) -> PreemptionPlan | None:
        """None: the preemptor does not fit with all of the groups evicted."""
        order = sorted(groups, key=lambda group: group.cost)
        if not order:
            return None
        with self._trial():
            return self._smallest(order)

    def _smallest(self, order: list[VictimGroup]) -> PreemptionPlan | None:
        if self._try(order) is None:
            return None
        chosen = self._fewest(order)
        plan = self._try(chosen)
        if plan is None:  # fewer pods in the way is not always better for a bounded search
            chosen, plan = order, self._try(order)
        while plan is not None:
            smaller = self._reprieve(chosen, plan)
            if smaller is None:
                return PreemptionPlan(tuple(chosen), plan)
            chosen, plan = smaller
        return None

    @contextmanager
    def _trial(self) -> Iterator[None]:
        """The snapshot without the nominated victims; at the end it is as it was."""
        with self.snapshot.trial():
            self._suppose_gone(self.nominated)
            try:
                yield
            finally:
                self._evicted.clear()

    def _try(self, groups: Iterable[VictimGroup]) -> Placed | None:
        """The plan without these groups, and with all others on their nodes."""
        self.trials += 1
        without = {group.key: group for group in groups}
        for key in [key for key in self._evicted if key not in without]:
            for victim in self._evicted.pop(key).placements:
                if victim.node in self.snapshot:
                    self.snapshot.suppose(victim.pod, victim.node, victim.assignment)
        for key, group in without.items():
            if key not in self._evicted:
                self._suppose_gone(group.placements)
                self._evicted[key] = group
        self.budget.check()
        plan = self.plan(self.statics.for_trial())
        return plan if isinstance(plan, Placed) and len(plan.placements) >= self.need else None

    def _suppose_gone(self, victims: Iterable[Placement]) -> None:
        self.budget.check()
        for victim in victims:
            if victim.node in self.snapshot:
                self.snapshot.suppose_gone(victim.pod, victim.node, victim.assignment)

    def _fewest(self, order: Sequence[VictimGroup]) -> list[VictimGroup]:
        """The shortest sufficient prefix of the order, with the surplus of its gangs."""
        low, high = 1, len(order)
        while low < high and self.trials < _MAX_TRIALS:
            middle = (low + high) // 2
            if self._try(_with_surplus(order[:middle], order)) is not None:
                high = middle
            else:
                low = middle + 1
        return _with_surplus(order[:high], order)

    def _reprieve(
        self, chosen: list[VictimGroup], plan: Placed
    ) -> tuple[list[VictimGroup], Placed] | None:
        """A smaller sufficient set; None: every group is needed."""
        nodes = {placement.node for placement in plan.placements}
        touched = [group for group in chosen if any(p.node in nodes for p in group.placements)]
        if len(touched) < len(chosen):
            smaller = _with_surplus(touched, chosen)
            if len(smaller) < len(chosen) and (found := self._try(smaller)) is not None:
                return smaller, found
        for group in sorted(chosen, key=lambda group: group.cost, reverse=True):
            if self.trials >= _MAX_TRIALS:
                break
            rest = _without(group, chosen)
            if rest is not None and (found := self._try(rest)) is not None:
                return rest, found
        return None


def _with_surplus(
    evicted: Sequence[VictimGroup], among: Sequence[VictimGroup]
) -> list[VictimGroup]:
    """With a gang's core its surplus is evicted."""
    cores = {group.gang for group in evicted if group.core}
    keys = {group.key for group in evicted}
    return [
        group
        for group in among
        if group.key in keys or (group.gang is not None and group.gang in cores)
    ]


def _without(group: VictimGroup, chosen: Sequence[VictimGroup]) -> list[VictimGroup] | None:
    """The other groups; None: this one is surplus of a gang whose core is evicted."""
    surplus = group.gang is not None and not group.core
    if surplus and any(other.core and other.gang == group.gang for other in chosen):
        return None
    return [other for other in chosen if other.key != group.key]


def drop_partial_gangs(
    able: Sequence[VictimGroup], groups: Sequence[VictimGroup]
) -> list[VictimGroup]:
    """Without the core of a gang whose surplus is among `groups` and not `able`."""
    keys = {group.key for group in able}
    partial = {group.gang for group in groups if group.gang is not None and group.key not in keys}
    return [group for group in able if not (group.core and group.gang in partial)]


def within_guarantees(
    groups: Sequence[VictimGroup],
    ledger: Ledger,
    amounts: Callable[[Placement], Amounts],
    *,
    leaving: Iterable[Placement] = (),
) -> list[VictimGroup]:
    """
    The groups that can be evicted together without taking a tenant below its guarantee.

    Cheapest first. Groups of the preemptor's own tenant are not limited. Pods that are `leaving`
    are charged until they are gone, and no longer count as used here.
    """
    able: list[VictimGroup] = []
    with ledger.trial():
        for placement in leaving:
            ledger.uncharge(placement.pod.attributes.tenant, amounts(placement).items())
        for group in sorted(groups, key=lambda group: group.cost):
            released = total(amounts(victim) for victim in group.pods)
            if group.other_tenant and not _all_borrowed(group, released, ledger, amounts):
                continue
            able.append(group)
            if group.other_tenant:
                ledger.uncharge(group.tenant, released.items())
    return drop_partial_gangs(able, groups)


def _all_borrowed(
    group: VictimGroup,
    released: Amounts,
    ledger: Ledger,
    amounts: Callable[[Placement], Amounts],
) -> bool:
    """Pending members are not charged yet, and count as used here."""
    if not group.reserved:
        return ledger.all_borrowed(group.tenant, released)
    with ledger.trial():
        for placement in group.reserved:
            ledger.charge(group.tenant, amounts(placement).items())
        return ledger.all_borrowed(group.tenant, total(map(amounts, group.placements)))
