"""
Finds victims for a preemptor: rules, guarantees and disruption budgets in one search.

    rules          which pods the unit may evict, and on which nodes; none: no search is needed
    search         victims for a unit that does not fit
    search_again   further victims for a unit whose victims terminate; on the same nodes first
    confirm        victims that a search found on an earlier state of the cluster

Capacity of nominated victims counts as free, for every preemptor they were chosen for; the reserved
capacity of other preemptors is charged. A search can therefore end without new victims. Capacity
reserved for the surplus of a running gang is a candidate like a running surplus member: it is taken
before the gang is evicted. Pods whose eviction the API server refused are protected for a while.
`controller` evicts the victims.

A search with a limited `WorkBudget` raises `BudgetExceeded` where it needs more. The controller
then repeats it in a fork, and `confirm` checks what that finds against the cluster of by then: the
same pods are still candidates, within the same rules, guarantees and budgets, and the unit fits
without them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

from scheduler import bounded
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.tenancy.preemption import candidates, pdb
from scheduler.tenancy.preemption.candidates import PreemptionRule
from scheduler.tenancy.preemption.context import PreemptionContext
from scheduler.tenancy.preemption.guarantees import GuaranteeKeeper
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup, VictimSearch
from scheduler.tenancy.quota.tree import total
from scheduler.work_budget import UNLIMITED, BudgetExceeded, WorkBudget

_MAX_PROTECTED: Final = 4096
_MAX_PODS_IN_BUDGET: Final = 4000  # on nodes; to list more as candidates exceeds any limited budget

RuleOnNodes = tuple[PreemptionRule, frozenset[str]]
"""A rule, and the nodes on which it does not hold."""


VictimNames = dict[str, frozenset[str]]
"""Victim groups by key, each with the uids of its pods and of its pending members."""


class Evaluator:
    """
    `nominated` lists the uids of victims that have not left their nodes, `displaceable` the pending
    members of gangs whose reserved capacity a search may choose.
    """

    def __init__(
        self,
        context: PreemptionContext,
        *,
        nominated: Callable[[], Iterable[str]],
        displaceable: Callable[[], Mapping[GangKey, tuple[Placement, ...]]],
    ) -> None:
        self._context = context
        self._cache = context.cache
        self._accounts = context.accounts
        self._nominated = nominated
        self._displaceable = displaceable
        self._protected: dict[str, float] = {}  # pod uid -> until when

    def protect(self, pod: Pod, seconds: float) -> None:
        until = self._context.now() + seconds
        bounded.remember(self._protected, pod.uid, until, _MAX_PROTECTED)

    def forget(self, uid: str) -> None:
        """The pod left its node."""
        self._protected.pop(uid, None)

    def rules(self, unit: Unit) -> list[RuleOnNodes]:
        """
        The rules by which the unit may evict pods.

        First reclaim, on the nodes that are within its tenant's guarantee. Then priority and
        preemptible pods, on nodes without a start reservation of at least the unit's priority.
        """
        beyond = self._accounts.nodes_beyond_guarantee(unit, self._cache.snapshot.table.rows)
        closed_nodes = [(True, beyond)] if beyond is not None else []
        if beyond is None or beyond:
            closed_nodes.append((False, self._nodes_of_start_reservations(unit)))
        rules = (
            (candidates.rule_for(unit, reclaims=reclaims), closed)
            for reclaims, closed in closed_nodes
        )
        return [
            (rule, closed)
            for rule, closed in rules
            if rule is not None and self._may_have_candidates(rule)
        ]

    def _nodes_of_start_reservations(self, unit: Unit) -> frozenset[str]:
        reservations = self._context.start_reservations()
        return frozenset().union(
            *(
                reservation.nodes
                for reservation in reservations
                if reservation.key != unit.key and reservation.priority >= unit.priority
            )
        )

    def unit_class(self, unit: Unit, rules: Sequence[RuleOnNodes]) -> Hashable:
        """Equal for units whose searches have the same result."""
        if unit.bound:
            return unit.key
        specs = {pod.spec: pod for pod in unit.pods}
        signatures = frozenset((s, self._cache.snapshot.signature(p)) for s, p in specs.items())
        flags = tuple((rule.reclaims, rule.preemptible) for rule, _ in rules)
        return unit.tenant, unit.priority, unit.need, signatures, flags

    def state(self) -> Hashable:
        """Changes with everything that can let a search succeed which failed."""
        now = self._context.now()
        return (
            self._cache.changes,
            self._cache.snapshot.freed,
            self._context.budgets.changes,
            self._accounts.changes,
            sum(until > now for until in self._protected.values()),
            tuple(sorted(r.start for r in self._context.start_reservations())),
        )

    def search(
        self, unit: Unit, rules: Sequence[RuleOnNodes], budget: WorkBudget = UNLIMITED
    ) -> PreemptionPlan | None:
        """Without new victims, if those nominated for other units are sufficient."""
        nominated = self._nominated_victims()
        if nominated:
            plan = self._victim_search(unit, frozenset(), nominated, budget).plan_without(())
            if plan is not None:
                return PreemptionPlan((), plan)
        return self._first_plan(unit, rules, nominated, budget)

    def search_again(
        self, unit: Unit, nodes: frozenset[str], budget: WorkBudget = UNLIMITED
    ) -> PreemptionPlan | None:
        """Further victims, if any are needed; those on `nodes` first."""
        nominated = self._nominated_victims()
        plan = self._victim_search(unit, frozenset(), nominated, budget).plan_without(())
        if plan is not None:
            return PreemptionPlan((), plan)
        rules = self.rules(unit)
        near = self._first_plan(unit, rules, nominated, budget, near=nodes)
        return self._first_plan(unit, rules, nominated, budget) if near is None else near

    def confirm(self, unit: Unit, names: VictimNames) -> PreemptionPlan | None:
        """The plan with these victims; None: the cluster has changed, and they are not right, or
        not needed."""
        nominated = self._nominated_victims()
        if not names:
            plan = self._victim_search(unit, frozenset(), nominated).plan_without(())
            return None if plan is None else PreemptionPlan((), plan)
        placements = self._placements(names)
        for rule, closed in self.rules(unit):
            able = {
                group.key: group
                for group in self._candidates(placements, rule, nominated)
                if names.get(group.key) == _uids(group)
            }
            if len(able) < len(names):
                continue
            groups = tuple(able[key] for key in names)
            leaving = self._leaving(nominated)
            if not self._guarantees(unit, leaving).keeps(groups):
                continue
            if self._context.budgets.exceeding(groups, _not_terminating(leaving)):
                continue
            search = self._victim_search(unit, closed, nominated)
            if search.plan_without(()) is not None:
                return None
            plan = search.plan_without(groups)
            if plan is not None:
                return PreemptionPlan(groups, plan)
        return None

    def _placements(self, names: VictimNames) -> list[Placement]:
        """The named pods, and the other members of their gangs, as they are now."""
        uids = frozenset().union(*names.values())
        gangs = {
            gang
            for gang, reserved in self._displaceable().items()
            if any(placement.pod.uid in uids for placement in reserved)
        }
        named = [held for held in map(self._cache.get, uids) if held is not None]
        gangs |= {held.pod.gang.key for held in named if held.pod.gang is not None}
        members = (pod.uid for gang in gangs for pod, _ in self._cache.bound_members(gang))
        held = (self._cache.get(uid) for uid in sorted(uids.union(members)))
        return [cached.placement for cached in held if cached is not None and not cached.assumed]

    def _nominated_victims(self) -> list[Placement]:
        """Those that have not left their nodes."""
        held = (self._cache.get(uid) for uid in sorted(set(self._nominated())))
        return [Placement(v.pod, v.node, v.assignment) for v in held if v is not None]

    def _leaving(self, nominated: Sequence[Placement]) -> list[Placement]:
        """Pods that are terminating, and nominated victims."""
        uids = self._cache.terminating.union(victim.pod.uid for victim in nominated)
        held = (self._cache.get(uid) for uid in sorted(uids))
        return [cached.placement for cached in held if cached is not None and not cached.assumed]

    def _first_plan(
        self,
        unit: Unit,
        rules: Sequence[RuleOnNodes],
        nominated: Sequence[Placement],
        budget: WorkBudget,
        near: frozenset[str] | None = None,
    ) -> PreemptionPlan | None:
        if rules and budget.limited and len(self._cache) > _MAX_PODS_IN_BUDGET:
            raise BudgetExceeded
        plans = (
            self._search(unit, rule, closed, nominated, budget, near) for rule, closed in rules
        )
        return next((plan for plan in plans if plan is not None), None)

    def _search(
        self,
        unit: Unit,
        rule: PreemptionRule,
        closed: frozenset[str],
        nominated: Sequence[Placement],
        budget: WorkBudget,
        near: frozenset[str] | None,
    ) -> PreemptionPlan | None:
        groups = self._candidates(self._cache.bound_pods(), rule, nominated)
        if near is not None:
            groups = _near(groups, near)
        budget.check()
        leaving = self._leaving(nominated)
        return self._guarantees(unit, leaving).choose(
            groups,
            lambda able: pdb.choose_within_budgets(
                self._context.budgets,
                able,
                lambda: self._victim_search(unit, closed, nominated, budget),
                nominated=_not_terminating(leaving),
            ),
        )

    def _candidates(
        self, placements: Iterable[Placement], rule: PreemptionRule, nominated: Sequence[Placement]
    ) -> list[VictimGroup]:
        context, now = self._context, self._context.now()
        uids = {victim.pod.uid for victim in nominated}
        return candidates.victim_groups(
            placements,
            rule,
            candidates.CandidateContext(
                context.scheduler,
                context.epoch(),
                context.tier_rank,
                context.pod_group,
                lambda pod: pod.uid in uids or self._protected.get(pod.uid, 0.0) > now,
                self._displaceable(),
            ),
        )

    def _guarantees(self, unit: Unit, leaving: Sequence[Placement]) -> GuaranteeKeeper:
        accounts = self._accounts
        return GuaranteeKeeper(
            accounts.ledger,
            lambda victim: accounts.amounts(victim.pod, victim.node),
            preemptor=(unit.tenant, total(accounts.amounts(pod) for pod in unit.pods[: unit.need])),
            leaving=leaving,
        )

    def _victim_search(
        self,
        unit: Unit,
        closed: frozenset[str],
        nominated: Sequence[Placement],
        budget: WorkBudget = UNLIMITED,
    ) -> VictimSearch:
        return VictimSearch(
            self._cache.snapshot,
            lambda memo: self._context.plan(unit, closed, memo),
            unit.need,
            nominated=nominated,
            budget=budget,
        )

    def _may_have_candidates(self, rule: PreemptionRule) -> bool:
        """A quick check: most units that do not fit have no candidates."""
        lowest = self._cache.lowest_priority(rule.tenant)
        if lowest is not None and lowest < rule.priority:
            return True
        if self._cache.preemptible and not rule.preemptible:
            return True
        members = self._accounts.ledger.members()
        return rule.reclaims and any(name != rule.tenant for name in members)


def names_of(plan: PreemptionPlan) -> VictimNames:
    """The victims of a plan in a form that leaves a process, for `Evaluator.confirm`."""
    return {group.key: _uids(group) for group in plan.groups}


def _uids(group: VictimGroup) -> frozenset[str]:
    return frozenset(placement.pod.uid for placement in group.placements)


def _not_terminating(placements: Iterable[Placement]) -> list[Pod]:
    return [placement.pod for placement in placements if not placement.pod.terminating]


def _near(groups: Sequence[VictimGroup], nodes: frozenset[str]) -> list[VictimGroup]:
    """Groups that free capacity on these nodes, and the other groups of their gangs."""
    there = [group for group in groups if any(p.node in nodes for p in group.placements)]
    keys = {group.key for group in there}
    gangs = {group.gang for group in there if group.gang is not None}
    return [group for group in groups if group.key in keys or group.gang in gangs]
