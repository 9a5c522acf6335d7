"""
The scheduler: watch events in, bindings out.

    watch events ──▶ cache, queue ──▶ 1. `recovery` evicts gangs that stay partial for too long
                                      2. `cycle` prepares: units move to the active queue
                                      3. forming gangs are reported; gates of complete ones removed
                                      4. `cycle` pops a unit and plans it
                                      5. bind in a task of its own; planning goes on
    bind answered ──▶ confirm, or forget and requeue
    an error ──▶ the step is undone, its unit quarantined, everything else goes on (`isolation`)

Everything runs in one event loop: callbacks and planning never interleave, only binds wait. Events
and conditions go through queues of their own and delay nothing. Nothing here survives a restart,
and nothing needs to: the watches deliver all of it again.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from cluster.informer import EventKind, Key, WatchEvent
from cluster.resources import NODES, PODS
from scheduler.actuators import Actuators
from scheduler.background import BackgroundTasks
from scheduler.bind.binding_cycle import BindingCycles
from scheduler.bind.prebind import PreBind
from scheduler.cache.cache import Cache
from scheduler.cache.comparer import Mismatch, compare
from scheduler.cache.snapshot import Snapshot
from scheduler.cycle import SchedulingCycle
from scheduler.errors import CorruptState, ErrorStep
from scheduler.explain.inspection import Inspection
from scheduler.explain.inspector import Inspector
from scheduler.failed_events import FailedEvents
from scheduler.feed import Feed
from scheduler.fork import ForkPolicy
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.gang.pod_groups import PodGroups
from scheduler.gang.recovery import GangRecovery
from scheduler.isolation import IsolatedPart, Isolation, brief
from scheduler.model.gang import GangKey
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod, PodKey, is_schedulable
from scheduler.model.policy import PlacementTables
from scheduler.model.unit import Unit, UnitKey, key_of
from scheduler.options import CycleSettings
from scheduler.plan import planner
from scheduler.plan.requeueing import Requeueing
from scheduler.plugins import registry as plugin_registry
from scheduler.plugins.dra.unready_pods import UnreadyPods
from scheduler.plugins.protocol import ANY_EVENT, POD_EVENT
from scheduler.plugins.registry import Registry
from scheduler.provisioning.controller import ProvisioningController
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.queueing.unschedulable import EquivalenceClass
from scheduler.report import events
from scheduler.report.metrics import Metrics
from scheduler.report.reporter import Reporter
from scheduler.report.steps import LoopStep
from scheduler.tenancy.context import SchedulingContext
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.fairshare.tenant_order import FairShareTenants
from scheduler.tenancy.manager import TenancyManager
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.gpu_kinds import GpuKinds
from scheduler.tenancy.reservation.members import MemberReservations

PAUSE_AFTER: Final = 0.01  # seconds of CPU time after which other tasks of the event loop run


class Scheduler:
    """Feed `on_pod` and `on_node` from informers, and start `run()` when both are in sync.

    Nothing is planned unless `leading`; `known` lists the pods that the watch has shown; `epoch` is
    the time of day, `now` a clock that never jumps back; `fork` runs long computations.
    """

    def __init__(
        self,
        *,
        name: str,
        actuators: Actuators,
        metrics: Metrics,
        now: Callable[[], float],
        leading: Callable[[], bool] = lambda: True,
        known: Callable[[], Iterable[Pod]] = tuple,
        epoch: Callable[[], float] = time.time,
        settings: CycleSettings = CycleSettings(),  # noqa: B008 (frozen, and without state)
        fork: ForkPolicy | None = None,
        registry: Registry = plugin_registry.DEFAULT,
    ) -> None:
        self._wake = asyncio.Event()
        self.isolation = Isolation(
            metrics, repair=lambda: self.cache.repair(), quarantine=self._quarantine
        )
        self._tasks = BackgroundTasks(partial(self.isolation.report, ErrorStep.BACKGROUND, "task"))
        self.failed_events = FailedEvents(self.isolation, now=now, wake=self._wake.set)
        snapshot = Snapshot(registry)
        self.accounts = QuotaAccounts(GpuKinds(snapshot))
        self.shares = FairShares(self.accounts.ledger)
        self.budgets = DisruptionBudgets()
        self.cache = Cache(
            snapshot, usage=self.accounts, scheduler_name=name, nodes_changed=self._note
        )
        self.reservations = MemberReservations(self.cache.reserved, self.accounts)
        self.groups = PodGroups(self._gang_changed)
        self.partial_gangs = PartialGangTracker(self.groups.find, self.reservations.outstanding)
        self._memo = planner.Memo()
        requeueing: Requeueing[EquivalenceClass] = Requeueing(snapshot, self._memo)
        self.queue = SchedulingQueue(
            bound=self.cache.bound,
            group=self.groups.find,
            is_partial=self.partial_gangs.is_partial,
            succeeded=self.partial_gangs.succeeded,
            class_of=self._class_of,
            starving_after=settings.starving_after,
            fair_share_order=self.shares.order,
            tenants=FairShareTenants(self.shares),
            boost=lambda tier: snapshot.tables.boost(tier),
            reserved=self.reservations,
            has_start_reservation=lambda key: self.tenancy.start_reservation(key) is not None,
            on_error=partial(self.isolation.unit_failed, ErrorStep.QUEUE),
            observer=requeueing,
        )
        self.recovery = GangRecovery(
            queue=self.queue,
            partial_gangs=self.partial_gangs,
            evictor=actuators.gang_evictor,
            metrics=metrics,
            now=now,
            wake=self._wake.set,
            hold_seconds=settings.hold_seconds,
            tasks=self._tasks,
            isolation=self.isolation,
        )
        self._name, self._reporter = name, actuators.reporter
        self._gates = actuators.gates
        self._metrics, self._now, self._leading, self._known = metrics, now, leading, known
        self._pods: dict[str, Pod] = {}  # uid -> own pod that has no node yet, newest state
        self._unreadable: dict[Key, Pod] = {}  # last good state of pods whose newest is unreadable
        context = SchedulingContext(
            scheduler=name,
            cache=self.cache,
            accounts=self.accounts,
            shares=self.shares,
            budgets=self.budgets,
            reservations=self.reservations,
            queue=self.queue,
            metrics=metrics,
            evictor=actuators.evictor,
            group=self.groups.find,
            tasks=self._tasks,
            isolation=self.isolation,
            now=now,
            epoch=epoch,
            wake=self._wake.set,
            freed=self._note,
            is_live=self._is_live,
            reservation_ended=self._reservation_ended,
            gang_changed=self._gang_changed,
            record=actuators.reporter.record,
            reservation_writer=actuators.reservation_writer,
            fork=fork,
        )
        self.tenancy = TenancyManager(context, self._memo)
        asked = self.tenancy.preemption.in_progress
        self.provisioning = ProvisioningController(
            actuators.request_writer,
            context,
            is_preempting=asked,
            start_reservation=self.tenancy.start_reservation,
        )
        self._inspector = Inspector(
            cache=self.cache,
            queue=self.queue,
            partial_gangs=self.partial_gangs,
            recovery=self.recovery,
            memo=self._memo,
            now=now,
            pods=self._pods,
            known=known,
            provisioning=self.provisioning.describe,
            reserved_later=self.tenancy.reserved_later,
            start_reservations=self.tenancy.backfill.start_reservations,
        )
        self._most_in_flight = settings.max_in_flight  # pods
        self._ending = False
        self._unready = UnreadyPods(self.cache.snapshot.devices.store, self._enqueue)
        self.claim_prebind = actuators.claim_prebind and actuators.claim_prebind(
            self.cache.snapshot.devices, self.cluster_event, self._tasks
        )
        volume_prebind = actuators.volume_prebind
        self.binding_cycles = BindingCycles(
            context,
            partial_gangs=self.partial_gangs,
            binder=actuators.binder,
            prebind=PreBind(
                now=now,
                volumes=volume_prebind and volume_prebind(snapshot.volumes),
                claims=self.claim_prebind,
                reservations=self.tenancy.reservation_controller,
            ),
            reporter=actuators.reporter,
            pending=self._pods.get,
        )
        self.cycle = SchedulingCycle(
            cache=self.cache,
            queue=self.queue,
            tenancy=self.tenancy,
            effects=_Effects(self, actuators.reporter, known),
            metrics=metrics,
            requeueing=requeueing,
            isolation=self.isolation,
            now=now,
        )

        part = partial(IsolatedPart, self.isolation, now=now)
        self._parts = (
            part(ErrorStep.WATCH, self.failed_events.tick, next_at=self.failed_events.next_at),
            part(
                ErrorStep.RECOVERY,
                lambda: self._note(self.recovery.tick()),
                next_at=self.recovery.next_at,
            ),
            part(
                ErrorStep.PROVISIONING,
                self.provisioning.tick,
                next_at=self.provisioning.next_at,
            ),
        )

    @property
    def binding(self) -> int:
        """Plans whose binds are in flight."""
        return len(self.binding_cycles)

    def waits(self, uid: str) -> bool:
        """Whether this pod still needs a node, as far as the watch has shown."""
        return uid in self._pods

    def _class_of(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods that fit the same nodes; members with a node may pin a gang to theirs."""
        signature = self.cache.snapshot.signature(pod)
        if pod.gang is None or not pod.spec.fabric.co_located or not self.cache.bound(pod.gang.key):
            return pod.spec, signature
        return pod.spec, signature, pod.gang.key

    # --- watch events ---

    def on_node(self, event: WatchEvent[Node | None]) -> None:
        with self._metrics.steps(LoopStep.WATCH):
            self.failed_events.apply(NODES.kind, self._on_node, event)

    def on_pod(self, event: WatchEvent[Pod | None]) -> None:
        with self._metrics.steps(LoopStep.WATCH):
            self.failed_events.apply(PODS.kind, self._on_pod, event)

    def on_feed(self, feed: Feed, event: WatchEvent[Any]) -> None:
        """An object such as a volume has changed: it may help the pods that depend on its kind."""
        with self._metrics.steps(LoopStep.WATCH):
            self.failed_events.apply(feed.resource.kind, partial(self._on_feed, feed), event)

    def _on_node(self, event: WatchEvent[Node | None]) -> None:
        node = event.object
        if event.kind is EventKind.DELETED or node is None:
            if event.old is not None:
                self.cache.drop_node(event.old.name)
        elif self.cache.put_node(node):
            self._note((node.name,))

    def _on_pod(self, event: WatchEvent[Pod | None]) -> None:
        pod = event.object
        if event.kind is EventKind.DELETED or pod is None:
            self._gone(event)
            return
        if self._unreadable:
            self._unreadable.pop(event.key, None)
        try:
            self._put(pod)
        except Exception as error:
            waits = pod.scheduler == self._name and is_schedulable(pod)
            if not waits or self.cache.get(pod.uid) is not None:
                raise
            self._pods[pod.uid] = pod
            self.isolation.unit_failed(ErrorStep.WATCH, key_of(pod), error, [pod])

    def _gone(self, event: WatchEvent[Pod | None]) -> None:
        """Deleted, or unreadable. An unreadable pod that is known to be on a node counts there
        until it is deleted, so that no other pod is planned in its place."""
        pod = event.old or event.object or self._unreadable.get(event.key)
        if pod is None:
            return
        if event.kind is not EventKind.DELETED and self.cache.get(pod.uid) is not None:
            self._unreadable[event.key] = pod
            return
        self._unreadable.pop(event.key, None)
        self._deleted(pod)

    def _put(self, pod: Pod) -> None:
        moved = self.cache.snapshot.moved
        self._note(self.cache.put_pod(pod))
        if self.cache.snapshot.moved != moved:
            self.cycle.cluster_event(POD_EVENT)
        held = self.cache.get(pod.uid)
        if pod.node or held is None:
            self.partial_gangs.put(pod)
        if not pod.gates:
            self._gates.drop(pod.uid)
        if pod.scheduler == self._name and is_schedulable(pod):
            self._pods[pod.uid] = pod
            if held is None and not self._unready.hold_unready(pod):
                self._enqueue(pod)
        else:
            self._forget_pending(pod)

    def _on_feed(self, feed: Feed, event: WatchEvent[Any]) -> None:
        if feed.apply(event):
            self.cluster_event(feed.resource.kind)

    def cluster_event(self, kind: str = ANY_EVENT) -> None:
        """An object of this kind, neither a node nor a pod, has changed."""
        self.cache.snapshot.cluster_event()
        self.cycle.cluster_event(kind)
        self._wake.set()

    def _enqueue(self, pod: Pod) -> None:
        self.queue.put(pod, self._now())
        self._wake.set()

    def adopt(self, tables: PlacementTables) -> None:
        """Other policies are in force: any node may fit any pod now. Policies that cannot be used
        leave the others in force."""
        before = self.cache.snapshot.tables
        with self._metrics.steps(LoopStep.POLICIES):
            try:
                self._adopt(tables)
            except Exception as error:
                self.isolation.report(ErrorStep.POLICY, "policies", error)
                self._adopt_again(before)

    def _adopt_again(self, tables: PlacementTables) -> None:
        try:
            self._adopt(tables)
        except Exception as failure:
            raise CorruptState("the policies before are not in force again") from failure

    def _adopt(self, tables: PlacementTables) -> None:
        models, kinds = self.cache.snapshot.tables.models, self.accounts.tree.gpu_kinds
        self.cache.snapshot.adopt(tables)
        self.accounts.adopt(tables.policy)
        if tables.models != models:
            self.cache.know_models(tables.vram)
        if tables.models != models or self.accounts.tree.gpu_kinds != kinds:
            self.cache.recount_gpus()
        self.cycle.cluster_event()
        self._note(tuple(self.cache.snapshot.table.rows))

    def _deleted(self, pod: Pod) -> None:
        """Each part forgets the pod, even if another one fails."""
        self._wake.set()
        steps: tuple[Callable[[], None], ...] = (
            partial(self.cycle.pod_gone, pod),
            partial(self.partial_gangs.drop, pod.uid),
            partial(self.recovery.deleted, pod),
            partial(self._forget_pending, pod),
        )
        failure: Exception | None = None
        for forget in steps:
            try:
                forget()
            except Exception as error:
                failure = error
                self.isolation.report(ErrorStep.WATCH, pod.key, error)
        if failure is not None and self.cache.get(pod.uid) is not None:
            raise failure  # tried again: the pod still counts

    def _forget_pending(self, pod: Pod) -> None:
        """The pod has a node, or needs none any more."""
        self._pods.pop(pod.uid, None)
        self._unready.drop(pod.uid)
        self.queue.remove(pod.uid, self._now())
        self._reporter.drop(pod.uid)
        self._gates.drop(pod.uid)
        if pod.gang is not None:
            self.queue.members_changed(pod.gang.key, self._now())
            self._wake.set()

    def _is_live(self, uid: str) -> bool:
        """Whether the pod waits for a node, or has one and is not terminating."""
        held = self.cache.get(uid)
        return uid in self._pods or (held is not None and not held.pod.terminating)

    def _reservation_ended(self, gang: GangKey, why: str) -> None:
        reported = self._reporter.reservation_ended(gang, why, self._known())
        if not reported and self.tenancy.reservation_controller is not None:
            self.tenancy.reservation_controller.record_dropped(gang, why)
        self._gang_changed(gang)

    def _gang_changed(self, gang: GangKey) -> None:
        self.partial_gangs.pod_group_changed(gang)
        self.queue.pod_group_changed(gang, self._now())
        self._wake.set()

    def _note(self, nodes: Iterable[str]) -> None:
        if nodes:
            self.cycle.nodes_changed(nodes)
            self._wake.set()

    # --- errors ---

    def _quarantine(self, key: UnitKey, error: Exception, pods: Sequence[Pod] = ()) -> None:
        text = brief(error)
        delay = self.queue.quarantine(key, self._now(), text, pods)
        if delay is None:
            return
        with self.isolation.step(ErrorStep.REPORT, key):
            note = events.error_text(
                f"{'pod group' if isinstance(key, GangKey) else 'pod'} {key}",
                text,
                retry_after=delay,
            )
            self._reporter.quarantined(self.queue.pods(key), note)

    # --- the cycle ---

    async def run(self) -> None:
        """Until cancelled; an exception that leaves it is a bug of this program."""
        async with self._tasks.group():
            while True:
                self._wake.clear()
                await self.drain()
                due = self._next_at()
                wait = None if due is None else max(0.0, due - self._now())
                # Not `wait_for`: in Python 3.11 it swallows a cancellation that meets the wake-up.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._wake.wait()

    async def drain(self) -> None:
        """Plan everything that can be planned now, as long as binds keep up."""
        self._tasks.check()
        await self._prepare_in_steps()
        while self._may_plan() and (
            (unit := self.cycle.pop()) is not None or self.cycle.requeueing
        ):
            if unit is not None:
                self.cycle.schedule(unit)
            # Binds and watches go on between two plans, and between two slices of requeueing.
            await asyncio.sleep(0)
            await self._prepare_in_steps()

    async def _prepare_in_steps(self) -> None:
        """The next plan is a step of its own, unless preparing took no time."""
        began = time.thread_time()
        self._prepare()
        if time.thread_time() - began > PAUSE_AFTER:
            await asyncio.sleep(0)

    def _prepare(self) -> None:
        if not self._leading():
            return
        with self._metrics.steps(LoopStep.TIMERS):
            for part in self._parts:
                part.tick()
        for unit in self.cycle.prepare():
            with self.isolation.unit(ErrorStep.REPORT, unit.key):
                timed_out = self.queue.timed_out(unit, self._now())
                self._reporter.forming(unit, timed_out=timed_out)
                if timed_out:
                    self._metrics.gangs.labels("timed_out").inc()
        self._gates.remove(self.queue.gates_to_remove())

    def _may_plan(self) -> bool:
        """A gang may exceed the limit on pods in flight, because it is bound whole."""
        return (
            not self._ending
            and self.binding_cycles.pods_in_flight < self._most_in_flight
            and self._leading()
        )

    async def finish(self, seconds: float) -> None:
        """Plan nothing more, and wait at most so long for binds in flight."""
        self._ending = True
        await self.binding_cycles.finish(seconds)

    def _next_at(self) -> float | None:
        due = [part.next_at() for part in (self.cycle, *self._parts)]
        return min((at for at in due if at is not None), default=None)

    # --- inspection ---

    def inspect(self, which: str | PodKey) -> Inspection | None:
        """A pod by its uid or its key; None: no such pod is known."""
        return self._inspector.inspect(which)

    def explain(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Why a pod is pending (`explain.response`); None: no such pod is known."""
        try:
            with self._metrics.steps(LoopStep.EXPLAIN):
                return self._inspector.explain(PodKey(namespace, name))
        except Exception as error:
            self.isolation.report(ErrorStep.EXPLAIN, f"{namespace}/{name}", error)
            state = "not explained: the scheduler failed to explain it"
            return {"pod": f"{namespace}/{name}", "state": state, "message": brief(error)}

    def cache_mismatches(self) -> Mismatch:
        """Differences between the cache and the watched pods; any is a bug."""
        return compare(self.cache, (pod.uid for pod in self._known()))


class _Effects:
    """Outcomes of the cycle: bind, report, hold nodes."""

    def __init__(
        self, scheduler: Scheduler, reporter: Reporter, known: Callable[[], Iterable[Pod]]
    ) -> None:
        self._scheduler = scheduler
        self._reporter = reporter
        self._known = known

    def closed_to(self, unit: Unit) -> frozenset[str]:
        return self._scheduler.recovery.closed_to(unit)

    def placed(self, unit: Unit, plan: Placed) -> None:
        self._scheduler.binding_cycles.start(unit, plan)

    def over_quota(self, unit: Unit, rejection: NoFit) -> None:
        self._reporter.over_quota(unit, rejection)

    def failed(self, unit: Unit, plan: Plan | None, error: Exception) -> None:
        scheduler = self._scheduler
        pods: list[Pod] = []
        with scheduler.isolation.step(ErrorStep.PLAN, unit.key):
            placed = plan if isinstance(plan, Placed) else None
            pods = scheduler.binding_cycles.abandon(unit, placed)
        scheduler.reservations.drop_plan(unit.key)
        scheduler.isolation.unit_failed(ErrorStep.PLAN, unit.key, error, pods)

    def unschedulable(self, unit: Unit, rejection: NoFit) -> None:
        scheduler = self._scheduler
        self._report(unit, rejection)
        scheduler.recovery.hold(unit, scheduler.cache.snapshot, self._known)
        if scheduler.claim_prebind is not None:
            scheduler.claim_prebind.free(unit.pods, rejection)

    def _report(self, unit: Unit, rejection: NoFit) -> None:
        """Members that lack capacity are reported apart from those over the tenant's quota."""
        scheduler = self._scheduler
        with scheduler.reservations.uncharged(unit.key):
            allowed = scheduler.accounts.within_quota(unit)
            within = allowed if isinstance(allowed, Unit) else unit
            over = scheduler.accounts.excess_members(unit, within) if within is not unit else None
        provisioning = scheduler.provisioning.misfit(within, rejection)
        self._reporter.unschedulable(unit, within.pods, rejection, provisioning=provisioning)
        if over is not None:
            allowed_uids = {pod.uid for pod in within.pods}
            self._reporter.members_over_quota(
                [pod for pod in unit.pods if pod.uid not in allowed_uids], over
            )
