"""
The scheduler at work: what the watches say in, bindings out.

    watch events ──▶ cache, queue ──▶ 1. what changed wakes the units it may help
                                      2. forming gangs that stand still are told about
                                      3. pop a unit, plan it, assume the plan
                                      4. bind in a task of its own; planning goes on
    bind answered ──▶ confirm, or forget and put back

Everything runs in one event loop: callbacks and planning never interleave, only binds wait. What
is told (events, conditions) goes through queues of its own and holds nothing up. Nothing here
survives a restart, and nothing needs to: the watches tell all of it again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cluster import correlation
from cluster.watch import Event, Kind

from . import conditions, events, planner, units
from .binder import Binder, Bound, Result, Unbound
from .cache import Cache
from .metrics import Metrics
from .model import GangKey, Node, Pod, Shape
from .outcome import NoFit, Placed, Placement
from .queueing import Queue
from .units import Unit

logger = logging.getLogger(__name__)

BIND_SECONDS: Final = 30.0  # how long a bind is tried before the pod is planned again
# Binds beyond what the connections carry would only wait there, grow old, and be decided too early.
MOST_IN_FLIGHT: Final = 128


@dataclass(frozen=True, slots=True)
class Telling:
    """Where what people read goes."""

    record: Callable[[correlation.Report], None]
    conditions: conditions.Conditions


class Scheduler:
    """Feed `on_pod` and `on_node` from informers, and start `run()` when both are in sync."""

    def __init__(
        self,
        *,
        name: str,
        binder: Binder,
        telling: Telling,
        metrics: Metrics,
        now: Callable[[], float],
        most_in_flight: int = MOST_IN_FLIGHT,
    ) -> None:
        self.cache = Cache()
        self.queue = Queue(bound=self.cache.bound)
        self._name, self._binder, self._telling = name, binder, telling
        self._metrics, self._now = metrics, now
        self._memo = planner.Memo()
        self._pods: dict[str, Pod] = {}  # uid -> own pod that has no node yet, newest state
        self._changed: set[str] = set()  # nodes on which something may have become possible
        self._wake = asyncio.Event()
        self._binds: set[asyncio.Task[None]] = set()
        self._flying, self._most_flying = 0, most_in_flight  # pods
        self._broken: BaseException | None = None
        self._ending = False

    @property
    def binding(self) -> int:
        """Plans whose binds are in flight."""
        return len(self._binds)

    # --- what the watches say ---

    def on_node(self, event: Event[Node | None]) -> None:
        node = event.object
        if event.kind is Kind.DELETED or node is None:
            if event.old is not None:
                self.cache.drop_node(event.old.name)
        elif self.cache.put_node(node):
            self._note((node.name,))

    def on_pod(self, event: Event[Pod | None]) -> None:
        pod = event.object
        if event.kind is Kind.DELETED or pod is None:
            gone = event.old or pod
            if gone is not None:
                self._lost(gone)
            return
        self._note(self.cache.put_pod(pod))
        if pod.scheduler == self._name and pod.pending:
            self._pods[pod.uid] = pod
            if self.cache.held(pod.uid) is None:
                self.queue.put(pod, self._now())
                self._wake.set()
        else:
            self._settle(pod)

    def _lost(self, pod: Pod) -> None:
        self._note(self.cache.drop_pod(pod.uid))
        self._settle(pod)

    def _settle(self, pod: Pod) -> None:
        """The pod has a node, or wants none any more."""
        self._pods.pop(pod.uid, None)
        self.queue.remove(pod.uid, self._now())
        self._telling.conditions.drop(pod.uid)
        if pod.gang is not None:
            self.queue.reconsider(pod.gang.key, self._now())
            self._wake.set()

    def _note(self, nodes: tuple[str, ...]) -> None:
        if nodes:
            self._changed.update(nodes)
            self._wake.set()

    # --- the cycle ---

    async def run(self) -> None:
        """Until cancelled; an exception that leaves it is a bug of this program."""
        while True:
            self._wake.clear()
            if self._broken is not None:
                raise self._broken
            await self.drain()
            due = self.queue.next_at()
            wait = None if due is None else max(0.0, due - self._now())
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that meets the wake-up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def drain(self) -> None:
        """Plan everything that can be planned now, as long as binds keep up."""
        self._wake_parked()
        for forming in self.queue.tick(self._now()):
            self._tell_forming(forming)
        while self._may_plan() and (unit := self.queue.pop(self._now())) is not None:
            self._schedule(unit)
            # Binds and watches go on between two plans.
            await asyncio.sleep(0)
            if self._changed:
                self._wake_parked()

    def _may_plan(self) -> bool:
        """A gang goes whole, so the limit is one to begin under, not one to stay under."""
        return not self._ending and self._flying < self._most_flying

    async def finish(self, seconds: float) -> None:
        """Plan nothing more, and wait for binds in flight, at most so long."""
        self._ending = True
        if self._binds:
            await asyncio.wait(self._binds, timeout=seconds)

    def _wake_parked(self) -> None:
        if not self._changed:
            return
        nodes, self._changed = sorted(self._changed), set()
        verdicts: dict[Shape, bool] = {}

        def helps(unit: Unit) -> bool:
            for pod in unit.pods:
                if pod.shape not in verdicts:
                    verdicts[pod.shape] = any(
                        planner.helps(pod.shape, self.cache.snapshot, node, self._memo)
                        for node in nodes
                    )
                if verdicts[pod.shape]:
                    return True
            return False

        self.queue.wake(self._now(), helps)

    def _schedule(self, unit: Unit) -> None:
        start = self._now()
        found = planner.plan(unit, self.cache.snapshot, memo=self._memo)
        self._metrics.planning.observe(self._now() - start)
        match found:
            case Placed():
                self._metrics.attempts.labels("placed").inc()
                self._commit(unit, found)
            case NoFit():
                self._metrics.attempts.labels("no_fit").inc()
                self.queue.park(unit.key, self._now())
                self._tell_misfit(unit, unit.pods, found)

    def _commit(self, unit: Unit, plan: Placed) -> None:
        for placement in plan.placements:
            self.cache.assume(placement)
            self.queue.take(placement.pod.uid)
        if plan.left and plan.why_left is not None:
            self.queue.park(unit.key, self._now())
            self._tell_misfit(unit, plan.left, plan.why_left)
        self._flying += len(plan.placements)
        task = asyncio.create_task(self._bind(unit, plan.placements))
        self._binds.add(task)
        task.add_done_callback(self._bind_done)

    def _bind_done(self, task: asyncio.Task[None]) -> None:
        self._binds.discard(task)
        self._wake.set()
        if not task.cancelled() and (exc := task.exception()) is not None:
            # A bug, not a refusal: the books may be wrong, so `run` must not go on.
            self._broken = exc

    async def _bind(self, unit: Unit, placements: tuple[Placement, ...]) -> None:
        start = self._now()
        seconds = max(BIND_SECONDS, unit.timeout if unit.is_gang else 0.0)
        results = await self._binder.bind(placements, deadline=start + seconds)
        self._metrics.binding.observe(self._now() - start)
        self._flying -= len(placements)
        self._take_results(results)
        self._tell_bound(unit, [one.placement for one in results if isinstance(one, Bound)])

    def _take_results(self, results: list[Result]) -> None:
        """Forget all that failed before any is put back: a gang counts its members only then."""
        failed = [one for one in results if isinstance(one, Unbound)]
        for one in results:
            if isinstance(one, Bound):
                self.cache.confirm(one.placement.pod.uid)
                self._metrics.scheduled.inc()
        for one in failed:
            self._note(self.cache.forget(one.placement.pod.uid))
        for one in failed:
            self._metrics.attempts.labels("bind_failed").inc()
            self._put_back(one)

    def _put_back(self, failure: Unbound) -> None:
        pod = self._pods.get(failure.placement.pod.uid)
        _log("not bound", failure.placement, error=failure.why)
        if pod is None:
            return  # gone, or bound by somebody else and shown so by the watch
        self.queue.put_back(pod, self._now())
        self._telling.record(events.failed_binding(pod, failure.why))
        self._wake.set()

    # --- telling ---

    def _tell_bound(self, unit: Unit, bound: list[Placement]) -> None:
        for placement in bound:
            _log("bound", placement)
            self._telling.record(events.scheduled(placement))
        if bound and isinstance(unit.key, GangKey):
            nodes = len({placement.node for placement in bound})
            self._telling.record(
                events.gang_scheduled(bound[0].pod, unit.key.name, len(bound), nodes)
            )

    def _tell_misfit(self, unit: Unit, pods: tuple[Pod, ...], why: NoFit) -> None:
        logger.info(
            "does not fit", extra={"unit": str(unit.key), "pods": len(pods), "why": why.text}
        )
        for pod in pods:
            self._telling.record(events.failed_scheduling(pod, why))
            self._telling.conditions.tell(pod, conditions.UNSCHEDULABLE, why.text)

    def _tell_forming(self, unit: Unit) -> None:
        count = units.forming_count(unit)
        logger.info("waiting", extra={"unit": str(unit.key), "why": count.text})
        for pod in unit.pods:
            self._telling.record(events.gang_waiting(pod, count))
            self._telling.conditions.tell(pod, conditions.WAITING, count.text)


def _log(what: str, placement: Placement, **more: str) -> None:
    fields = {"pod": str(placement.pod.key), "node": placement.node, **more}
    if placement.assignment:
        fields["assigned"] = placement.assignment.render()
    logger.info(what, extra=fields)
