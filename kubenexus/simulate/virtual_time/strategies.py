"""
Scheduling strategies in virtual time.

    QueueStrategy       strictly in the order of arrival: a unit that does not fit blocks all others
    KubeNexusStrategy   the scheduler's own cycle; `fair`: with quotas, fair share and preemption

`KubeNexusStrategy` drives `scheduler.cycle` where binds succeed at once and no API server answers.
`evicts`: victims are evicted as the scheduler does it, which needs a running event loop.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cluster import resources, verbs
from kubenexus.simulate.virtual_time.cluster import EPOCH, VirtualCluster
from policies import vocabulary
from scheduler.background import BackgroundTasks
from scheduler.cycle import SchedulingCycle
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, units
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics
from scheduler.tenancy.context import SchedulingContext
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.manager import TenancyManager
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.reservation.members import MemberReservations


class QueueStrategy:
    """One after the other."""

    busy: Final = False

    def __init__(self, world: VirtualCluster) -> None:
        self._world = world
        self._line: deque[Unit] = deque()

    def next_at(self) -> float | None:
        return None

    def before(self, at: float) -> None:
        """Nothing fades."""

    def take(self, came: Sequence[Pod], went: Sequence[Pod], over: Sequence[str] = ()) -> None:
        for pod in went:
            self._world.cache.drop_pod(pod.uid)
        units_left = (
            [unit for unit in self._line if unit.pods[0].uid not in over] if over else self._line
        )
        self._line = deque(units_left)
        self._line.extend(units(replace(pod, gates=()) for pod in came))

    def decide(self) -> None:
        world = self._world
        while self._line:
            world.run.decisions += 1
            unit = self._line[0]
            plan = world.plan(unit, frozenset(), world.memo)
            if not isinstance(plan, Placed):
                world.misfit(unit.key, plan)
                return
            self._line.popleft()
            world.start(unit, plan)
            if plan.unplaced:  # beyond what the gang needs
                bound = unit.bound + len(plan.placements)
                self._line.append(replace(unit, pods=plan.unplaced, bound=bound))


def _all_alike(*about: object) -> int:
    return 0


class _Api:
    """An API server that evicts whom it is asked to."""

    def __init__(self, world: VirtualCluster, freed: Callable[[Iterable[str]], None]) -> None:
        self._world, self._freed = world, freed

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        dry_run: bool = False,
        timeout: float = 0.0,
        **options: Any,
    ) -> None:
        if uid is not None and not dry_run:
            self._freed(self._world.evict(uid))

    async def patch_status(
        self,
        resource: resources.Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kind: verbs.PatchKind = verbs.PatchKind.MERGE,
        **options: Any,
    ) -> dict[str, Any]:
        return {}


async def _never(seconds: float) -> None:
    raise AssertionError("an eviction that is never refused is never tried again")


class _PlainPlanning:
    """No tenancy: each unit is planned on its own."""

    def __init__(self, world: VirtualCluster) -> None:
        self._world = world

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan:
        return self._world.plan(unit, closed, self._world.memo)

    def placed(self, unit: Unit, plan: Placed) -> None:
        """Nothing is counted."""

    def misfit(self, unit: Unit) -> None:
        """Nothing is evicted."""

    def gone(self, pod: Pod) -> None:
        """Nothing is counted."""

    def tick(self, now: float) -> None:
        """Nothing depends on the time."""

    def next_at(self) -> float | None:
        return None


class _VirtualTenancy(TenancyManager):
    """Tenancy where each bind succeeds at once, so that none is in flight."""

    def placed(self, unit: Unit, plan: Placed | None = None) -> None:
        super().placed(unit)


class KubeNexusStrategy:
    """
    The scheduler's own cycle on a virtual clock. Drive it: `take` what happened, then `decide`,
    again while it is `busy`.
    """

    def __init__(self, world: VirtualCluster, *, fair: bool, evicts: bool = False) -> None:
        self._world = world
        self._tasks = BackgroundTasks()
        cache = world.cache
        self._shares = FairShares(world.accounts.ledger)
        self.queue = SchedulingQueue(
            bound=cache.bound,
            class_of=lambda pod: (pod.spec, cache.snapshot.signature(pod)),
            fair_share_order=self._shares.order if fair else _all_alike,
            boost=lambda tier: cache.snapshot.tables.boost(tier) if fair else 0,
        )
        self._tenancy = self._fair_tenancy(evicts) if fair else None
        self._cycle = SchedulingCycle(
            cache=cache,
            queue=self.queue,
            tenancy=self._tenancy or _PlainPlanning(world),
            effects=self,
            metrics=Metrics(),
            memo=world.memo,
            now=lambda: world.now,
        )

    def _fair_tenancy(self, evicts: bool) -> TenancyManager:
        world = self._world
        api = _Api(world, self._nodes_changed)
        evictor = Evictor(api, record=world.record, may_write=lambda: True, sleep=_never)
        context = SchedulingContext(
            scheduler=vocabulary.SCHEDULER_NAME,
            cache=world.cache,
            accounts=world.accounts,
            shares=self._shares,
            budgets=DisruptionBudgets(),
            reservations=MemberReservations(world.cache.reserved, world.accounts),
            queue=self.queue,
            metrics=Metrics(),
            evictor=evictor if evicts else None,
            group=lambda gang: None,
            tasks=self._tasks,
            now=lambda: world.now,
            epoch=lambda: EPOCH + world.now,
            wake=lambda: None,
            freed=self._nodes_changed,
            is_live=lambda uid: True,
            reservation_ended=lambda gang, why: None,
        )
        return _VirtualTenancy(context, world.memo)

    def _nodes_changed(self, nodes: Iterable[str]) -> None:
        self._cycle.nodes_changed(nodes)

    @property
    def busy(self) -> bool:
        """Evictions are being asked for: let the event loop run, then decide again."""
        return self._tenancy is not None and self._tenancy.preemption.writing

    def next_at(self) -> float | None:
        return self._cycle.next_at()

    def before(self, at: float) -> None:
        """What is used now has been used until then."""
        if self._tenancy is not None:
            now, self._world.now = self._world.now, at
            self._tenancy.share_decay.advance()
            self._world.now = now

    def take(self, came: Sequence[Pod], went: Sequence[Pod], over: Sequence[str] = ()) -> None:
        for pod in went:
            self._cycle.pod_gone(pod)
        for uid in over:
            self.queue.remove(uid, self._world.now)
        for pod in came:
            self.queue.put(pod, self._world.now)

    def decide(self) -> None:
        self._tasks.check()
        self._prepare()
        while (unit := self._cycle.pop()) is not None:
            self._world.run.decisions += 1
            self._cycle.schedule(unit)
            self._prepare()

    def _prepare(self) -> None:
        self._cycle.prepare()
        for pod in self.queue.gates_to_remove():
            self.queue.put(replace(pod, gates=()), self._world.now)

    # --- outcomes of the cycle ---

    def closed_to(self, unit: Unit) -> frozenset[str]:
        return frozenset()

    def placed(self, unit: Unit, plan: Placed) -> None:
        now, uids = self._world.now, [placement.pod.uid for placement in plan.placements]
        self.queue.start_binding(unit.key, uids, now)
        self._world.start(unit, plan)
        for uid in uids:
            self.queue.finish_binding(uid, now)

    def over_quota(self, unit: Unit, rejection: NoFit) -> None:
        self._world.misfit(unit.key, rejection)

    def unschedulable(self, unit: Unit, rejection: NoFit) -> None:
        self._world.misfit(unit.key, rejection)
