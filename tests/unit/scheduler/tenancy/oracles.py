"""
Independent checks of preemption on small clusters, which try every choice of victims.

    ClusterState          nodes and the pods on them at one moment; plans are made on copies of it
    needless_victims      victims without whose eviction the plan holds as well
    possible              whether some choice of candidates lets a unit be placed
    breached_guarantees   tenants and groups that a preemption left below their guarantee

Candidates follow the documentation, amounts come from the API server.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Self

from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan import planner
from scheduler.report import events
from scheduler.tenancy.preemption.evaluator import RuleOnNodes
from scheduler.tenancy.preemption.victims import PreemptionPlan
from scheduler.work_budget import UNLIMITED, WorkBudget
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import Workload, unit_of

VictimGroup = tuple[Pod, ...]
_MOST = 9
"""Victim groups of which every choice is tried."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    nodes: tuple[Node, ...]
    pods: tuple[tuple[Pod, str], ...]
    reserved: tuple[tuple[UnitKey, Pod, str], ...]
    """Reserved capacity, by unit."""
    start_reservations: tuple[StartReservation, ...] = ()
    nominated: frozenset[str] = frozenset()
    """uids of victims of all preemptors: their capacity is reserved already."""

    @classmethod
    def of(cls, story: Story) -> Self:
        cache = story.bench.scheduler.cache
        reserved = (
            (key, one.pod, one.node) for key in cache.reserved for one in cache.reserved.of(key)
        )
        return cls(
            tuple(cache.snapshot.table.nodes.values()),
            tuple((one.pod, one.node) for one in cache.pods_on()),
            tuple(reserved),
            tuple(story.bench.scheduler.tenancy.backfill.start_reservations()),
            frozenset(story.bench.scheduler.tenancy.preemption.nominated_victims()),
        )

    def without_reserved(self, keys: Iterable[UnitKey]) -> Self:
        """The capacity that is reserved for these units is free."""
        freed = frozenset(keys)
        return replace(self, reserved=tuple(row for row in self.reserved if row[0] not in freed))

    def fits(
        self, unit: Unit, gone: Iterable[str] = (), *, avoid_start_reservations: bool = False
    ) -> bool:
        """Whether the unit's minimum is placed when these pods are gone, if requested away from
        the nodes of start reservations of at least its priority."""
        away = frozenset(gone)
        placed = [row for row in self.pods if row[0].uid not in away]
        placed += [(pod, node) for key, pod, node in self.reserved if key != unit.key]
        bound_members = tuple(
            (pod, node)
            for pod, node in self.pods
            if pod.gang is not None and pod.gang.key == unit.key and pod.uid not in away
        )
        others = (
            p for p in self.start_reservations if p.key != unit.key and p.priority >= unit.priority
        )
        shut = (
            frozenset(node for one in others for node in one.nodes)
            if avoid_start_reservations
            else frozenset()
        )
        found = planner.plan(
            unit, Snapshot.of(self.nodes, placed), bound_members=bound_members, closed=shut
        )
        return isinstance(found, Placed) and len(found.placements) >= unit.need


def victim_groups(pods: Iterable[Pod], *, placed: Iterable[Pod]) -> list[VictimGroup]:
    """The pods as victim groups: the surplus of a gang, then the whole gang."""
    own = list(pods)
    found: list[VictimGroup] = [(pod,) for pod in own if pod.gang is None]
    gangs = sorted({pod.gang.key for pod in own if pod.gang is not None})
    for gang in gangs:
        alive = [pod for pod in placed if _in(pod, gang) and not pod.terminating]
        members = [pod for pod in own if _in(pod, gang)]
        size = max(pod.gang.min_available or 1 for pod in alive if pod.gang is not None)
        members.sort(key=lambda pod: (pod.created, pod.uid), reverse=True)
        above = max(0, len(alive) - size)
        found += [(pod,) for pod in members[:above]]
        if len(members) > above:
            found.append(tuple(members[above:]))
    return found


def needless_victims(
    before: ClusterState, unit: Unit, victims: Iterable[str], displaced: Sequence[GangKey] = ()
) -> list[str]:
    """Names of victims that the plan did not need, beside the victims of other preemptors, and
    displaced gangs; `?` where the plan fails with all of them evicted."""
    uids = frozenset(victims)
    state = before.without_reserved(displaced)
    if not state.fits(unit, uids | state.nominated):
        return ["?"]
    pods = [pod for pod, _ in state.pods]
    found = []
    for group in victim_groups((pod for pod in pods if pod.uid in uids), placed=pods):
        if _follows(group, uids, pods):
            continue
        gone = (uids - {pod.uid for pod in group}) | state.nominated
        if state.fits(unit, gone, avoid_start_reservations=True):
            found.append(group[0].key.name)
    evicted = {pod.gang.key for pod in pods if pod.gang is not None and pod.uid in uids}
    for gang in displaced:
        kept = before.without_reserved(other for other in displaced if other != gang)
        if gang not in evicted and kept.fits(
            unit, uids | state.nominated, avoid_start_reservations=True
        ):
            found.append(str(gang))
    return found


def _follows(group: VictimGroup, evicted: frozenset[str], pods: Sequence[Pod]) -> bool:
    """Evicted because the rest of its gang is."""
    gang = group[0].gang
    bound_members = [pod for pod in pods if gang is not None and _in(pod, gang.key)]
    alive = [pod for pod in bound_members if not pod.terminating and pod not in group]
    return bool(alive) and all(pod.uid in evicted for pod in alive) and len(group) == 1


def _in(pod: Pod, gang: GangKey) -> bool:
    return pod.gang is not None and pod.gang.key == gang


def possible(story: Story, name: str, unit: Unit) -> bool:
    """Whether the unit, within its tenant's guarantee, fits, with victims or without."""
    state, workload = ClusterState.of(story), story.workloads[name]
    if state.fits(unit):
        return True
    pods = [pod for pod, _ in state.pods]
    able = victim_groups((pod for pod in pods if _is_candidate(story, pod, workload)), placed=pods)
    able = [b for b in able if not _breaks_up(b, pods, story, workload)]
    if len(able) > _MOST:
        able = able[:_MOST]
    if not state.fits(unit, (pod.uid for group in able for pod in group)):
        return False
    return any(
        _keeps_guarantees(story, workload, choice)
        and state.fits(unit, (p.uid for b in choice for p in b))
        for choice in _choices(able)
    )


def _choices(able: Sequence[VictimGroup]) -> Iterator[tuple[VictimGroup, ...]]:
    return chain.from_iterable(combinations(able, n) for n in range(1, len(able) + 1))


def _is_candidate(story: Story, pod: Pod, workload: Workload) -> bool:
    if pod.terminating:
        return False
    other = story.workloads[unit_of(pod.key.name)]
    return other.tenant != workload.tenant or other.priority < workload.priority


def _breaks_up(group: VictimGroup, pods: Sequence[Pod], story: Story, workload: Workload) -> bool:
    """Leaves its gang below its minimum, while other members are no candidates."""
    gang = group[0].gang
    if gang is None:
        return False
    bound_members = [pod for pod in pods if _in(pod, gang.key) and not pod.terminating]
    short = len(bound_members) - len(group) < (gang.min_available or 1)
    return short and not all(_is_candidate(story, pod, workload) for pod in bound_members)


def _keeps_guarantees(story: Story, workload: Workload, choice: Sequence[VictimGroup]) -> bool:
    """Whether no other member falls below its guarantee, and surplus is evicted before its gang."""
    gone = [pod for group in choice for pod in group]
    for member in {m for pod in gone for m in story.scenario.path(pod.attributes.tenant)}:
        if member == workload.tenant:
            continue
        own = [pod for pod in gone if pod.attributes.tenant in story.scenario.tenants_of(member)]
        foreign = [pod for pod in own if pod.attributes.tenant != workload.tenant]
        if not foreign:
            continue
        left = story.api.used(member, terminating=False) - sum(
            pod.spec.host_request.gpus for pod in own
        )
        if workload.tenant in story.scenario.tenants_of(member):
            left += workload.minimum
        if left < story.scenario.guaranteed(member):
            return False
    return _surplus_first(story, gone)


def _surplus_first(story: Story, gone: Sequence[Pod]) -> bool:
    uids = {pod.uid for pod in gone}
    cache = story.bench.scheduler.cache
    for gang in {pod.gang.key for pod in gone if pod.gang is not None}:
        bound_members = [pod for pod, _ in cache.bound_members(gang)]
        left = [pod for pod in bound_members if pod.uid not in uids]
        size = max(pod.gang.min_available or 1 for pod in bound_members if pod.gang is not None)
        if left and len(left) < size:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Preemption:
    """The preemptor, the state of the cluster, and the number of Events by then."""

    unit: Unit
    state: ClusterState
    before: int
    victims: tuple[str, ...] = ()
    """uids"""
    displaced: tuple[GangKey, ...] = ()
    """Gangs whose own preemption ends."""


def record(story: Story) -> list[Preemption]:
    """Every preemption of this scheduler from now on."""
    preemptions: list[Preemption] = []
    preempting = story.bench.scheduler.tenancy.preemption
    preempt: Callable[[Unit], bool] = preempting.preempt
    evaluator = preempting._evaluator
    search = evaluator.search
    displaced: list[GangKey] = []

    def searched(
        unit: Unit, rules: Sequence[RuleOnNodes], budget: WorkBudget = UNLIMITED
    ) -> PreemptionPlan | None:
        plan = search(unit, rules, budget)
        displaced.extend(plan.displaced if plan is not None else ())
        return plan

    def recorded(unit: Unit) -> bool:
        displaced.clear()
        known, state = preempting.in_progress(unit.key), ClusterState.of(story)
        found = preempt(unit)
        if found and not known:
            number = len(story.events_of(events.PREEMPTED))
            preemptions.append(Preemption(unit, state, number, displaced=tuple(displaced)))
        return found

    evaluator.search = searched  # type: ignore[method-assign]
    preempting.preempt = recorded  # type: ignore[method-assign]  # records each call
    return preemptions


def breached_guarantees(story: Story, one: Preemption) -> list[str]:
    """Tenants and groups that the preemption left below their guarantee."""
    scenario, own = story.scenario, one.unit.tenant
    nominated = one.state.nominated
    stay = [pod for pod, _ in one.state.pods if not (pod.terminating or pod.uid in nominated)]
    gone = [pod for pod in stay if pod.uid in one.victims and pod.attributes.tenant != own]
    found = []
    for member in sorted({m for pod in gone for m in scenario.path(pod.attributes.tenant)}):
        left = [
            pod
            for pod in stay
            if pod.attributes.tenant in scenario.tenants_of(member) and pod not in gone
        ]
        amount = sum(pod.spec.host_request.gpus for pod in left)
        if own in scenario.tenants_of(member):
            amount += sum(pod.spec.host_request.gpus for pod in one.unit.pods[: one.unit.need])
        found += [member] if amount < scenario.guaranteed(member) else []
    return found


def victims(story: Story, preemptions: Sequence[Preemption]) -> list[Preemption]:
    """Each with its victims, as the Events name them."""
    preempted = story.events_of(events.PREEMPTED)
    found = []
    for number, one in enumerate(preemptions):
        later = [two.before for two in preemptions[number + 1 :] if two.unit.key == one.unit.key]
        rows = preempted[one.before : min(later, default=len(preempted))]
        own = tuple(f"uid-{name}" for name, note in rows if f" {one.unit.key} " in f"{note} ")
        found.append(replace(one, victims=own))
    return found
