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
from scheduler.isolation import NoIsolation
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, units
from scheduler.plan.requeueing import Requeueing
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.queueing.unschedulable import EquivalenceClass
from scheduler.report.metrics import Metrics
from scheduler.tenancy.context import SchedulingContext
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.fairshare.tenant_order import FairShareTenants
from scheduler.tenancy.manager import TenancyManager
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.reservation.members import MemberReservations


class QueueStrategy:
    """One after the other."""

    busy: Final = False

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._queue: deque[Unit] = deque()

    def next_at(self) -> float | None:
        return None

    def before(self, at: float) -> None:
        """Nothing fades."""

    def take(
        self, arrived: Sequence[Pod], ended: Sequence[Pod], withdrawn: Sequence[str] = ()
    ) -> None:
        for pod in ended:
            self._cluster.cache.drop_pod(pod.uid)
        units_left = (
            [unit for unit in self._queue if unit.pods[0].uid not in withdrawn]
            if withdrawn
            else self._queue
        )
        self._queue = deque(units_left)
        self._queue.extend(units(replace(pod, gates=()) for pod in arrived))

    def decide(self) -> None:
        cluster = self._cluster
        while self._queue:
            cluster.run.decisions += 1
            unit = self._queue[0]
            plan = cluster.plan(unit, frozenset(), cluster.memo)
            if not isinstance(plan, Placed):
                cluster.misfit(unit.key, plan)
                return
            self._queue.popleft()
            cluster.start(unit, plan)
            if plan.unplaced:  # beyond what the gang needs
                bound = unit.bound + len(plan.placements)
                self._queue.append(replace(unit, pods=plan.unplaced, bound=bound))


def _all_alike(*about: object) -> int:
    return 0


class _Api:
    """An API server that evicts whom it is asked to."""

    def __init__(self, cluster: VirtualCluster, freed: Callable[[Iterable[str]], None]) -> None:
        self._cluster, self._freed = cluster, freed

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
            self._freed(self._cluster.evict(uid))

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

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan:
        return self._cluster.plan(unit, closed, self._cluster.memo)

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

    def __init__(self, cluster: VirtualCluster, *, fair: bool, evicts: bool = False) -> None:
        self._cluster = cluster
        self._tasks = BackgroundTasks()
        cache = cluster.cache
        self._shares = FairShares(cluster.accounts.ledger)
        requeueing: Requeueing[EquivalenceClass] = Requeueing(cache.snapshot, cluster.memo)
        self.queue = SchedulingQueue(
            bound=cache.bound,
            class_of=lambda pod: (pod.spec, cache.snapshot.signature(pod)),
            fair_share_order=self._shares.order if fair else _all_alike,
            tenants=FairShareTenants(self._shares) if fair else None,
            boost=lambda tier: cache.snapshot.tables.boost(tier) if fair else 0,
            observer=requeueing,
        )
        self._tenancy = self._fair_tenancy(evicts) if fair else None
        self._cycle = SchedulingCycle(
            cache=cache,
            queue=self.queue,
            tenancy=self._tenancy or _PlainPlanning(cluster),
            effects=self,
            metrics=Metrics(),
            requeueing=requeueing,
            isolation=NoIsolation(),
            now=lambda: cluster.now,
        )

    def _fair_tenancy(self, evicts: bool) -> TenancyManager:
        cluster = self._cluster
        api = _Api(cluster, self._nodes_changed)
        evictor = Evictor(api, record=cluster.record, may_write=lambda: True, sleep=_never)
        context = SchedulingContext(
            scheduler=vocabulary.SCHEDULER_NAME,
            cache=cluster.cache,
            accounts=cluster.accounts,
            shares=self._shares,
            budgets=DisruptionBudgets(),
            reservations=MemberReservations(cluster.cache.reserved, cluster.accounts),
            queue=self.queue,
            metrics=Metrics(),
            evictor=evictor if evicts else None,
            group=lambda gang: None,
            tasks=self._tasks,
            isolation=NoIsolation(),
            now=lambda: cluster.now,
            epoch=lambda: EPOCH + cluster.now,
            wake=lambda: None,
            freed=self._nodes_changed,
            is_live=lambda uid: True,
            reservation_ended=lambda gang, why: None,
        )
        return _VirtualTenancy(context, cluster.memo)

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
            now, self._cluster.now = self._cluster.now, at
            self._tenancy.share_decay.advance()
            self._cluster.now = now

    def take(
        self, arrived: Sequence[Pod], ended: Sequence[Pod], withdrawn: Sequence[str] = ()
    ) -> None:
        for pod in ended:
            self._cycle.pod_gone(pod)
        for uid in withdrawn:
            self.queue.remove(uid, self._cluster.now)
        for pod in arrived:
            self.queue.put(pod, self._cluster.now)

    def decide(self) -> None:
        self._tasks.check()
        self._prepare()
        while (unit := self._cycle.pop()) is not None or self._cycle.requeueing:
            if unit is not None:
                self._cluster.run.decisions += 1
                self._cycle.schedule(unit)
            self._prepare()

    def _prepare(self) -> None:
        self._cycle.prepare()
        for pod in self.queue.gates_to_remove():
            self.queue.put(replace(pod, gates=()), self._cluster.now)

    # --- outcomes of the cycle ---

    def closed_to(self, unit: Unit) -> frozenset[str]:
        return frozenset()

    def placed(self, unit: Unit, plan: Placed) -> None:
        now, uids = self._cluster.now, [placement.pod.uid for placement in plan.placements]
        self.queue.start_binding(unit.key, uids, now)
        self._cluster.start(unit, plan)
        for uid in uids:
            self.queue.finish_binding(uid, now)

    def over_quota(self, unit: Unit, rejection: NoFit) -> None:
        self._cluster.misfit(unit.key, rejection)

    def unschedulable(self, unit: Unit, rejection: NoFit) -> None:
        self._cluster.misfit(unit.key, rejection)

    def failed(self, unit: Unit, plan: Plan | None, error: Exception) -> None:
        """A simulation ends with the error: its figures would leave the unit out."""
        raise error
