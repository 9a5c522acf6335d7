"""
The scheduling cycle, without I/O: which unit is planned next, and what becomes of it.

    1. changed nodes and cluster events move unschedulable units back to the active queue, in slices
    2. tenancy acts on the time that has passed: quotas, reservations, preemption, backfill
    3. pop the first unit of the active queue
    4. plan it on the snapshot, within its limits
    5. placed ──▶ bind;   over quota, unschedulable ──▶ requeue and report
       an error ──▶ that unit is quarantined, and the cycle goes on

The scheduler drives the cycle with the real clock and binds through the API server. `kubenexus
simulate` drives the same cycle with a virtual clock, where each bind succeeds at once. What either
does about an outcome is its `CycleEffects`.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.isolation import Isolation
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.plan.requeueing import Requeueing
from scheduler.plugins.protocol import ANY_EVENT, POD_EVENT
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.queueing.unschedulable import EquivalenceClass
from scheduler.report.metrics import Metrics
from scheduler.report.steps import LoopStep

EVENTS_EVERY: Final = 0.2  # seconds between two rounds of requeueing by cluster events


class CycleEffects(Protocol):
    """What is done about the outcomes of planning."""

    def closed_to(self, unit: Unit) -> frozenset[str]:
        """Nodes held for other units."""
        ...

    def placed(self, unit: Unit, plan: Placed) -> None: ...

    def over_quota(self, unit: Unit, rejection: NoFit) -> None: ...

    def unschedulable(self, unit: Unit, rejection: NoFit) -> None: ...

    def failed(self, unit: Unit, plan: Plan | None, error: Exception) -> None:
        """The attempt ended with an error, after this plan or without one: undo what it did, and
        quarantine the unit. Raises the error if it does not concern this unit alone."""
        ...


class Tenancy(Protocol):
    """What the cycle needs of `tenancy.manager`."""

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan: ...

    def placed(self, unit: Unit, plan: Placed) -> None: ...

    def misfit(self, unit: Unit) -> None: ...

    def gone(self, pod: Pod) -> None: ...

    def tick(self, now: float) -> None: ...

    def next_at(self) -> float | None: ...


class SchedulingCycle:
    """`now` is a clock that never jumps back; `requeueing` tests the queue's classes."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        tenancy: Tenancy,
        effects: CycleEffects,
        metrics: Metrics,
        requeueing: Requeueing[EquivalenceClass],
        isolation: Isolation,
        now: Callable[[], float],
    ) -> None:
        self._isolation = isolation
        self._cache = cache
        self._queue = queue
        self._tenancy = tenancy
        self._effects = effects
        self._metrics = metrics
        self._requeueing = requeueing
        self._now = now
        self._events: set[str] = set()  # kinds of objects, other than nodes, that have changed
        self._events_at = float("-inf")  # not before, so that a stream of such changes costs little

    # --- what changes ---

    def nodes_changed(self, nodes: Iterable[str]) -> None:
        """Capacity may have become free on these nodes."""
        self._requeueing.nodes_changed(nodes)

    def cluster_event(self, kind: str = ANY_EVENT) -> None:
        """An object of this kind, which is not a node, has changed."""
        self._events.add(kind)

    def pod_gone(self, pod: Pod) -> None:
        self.nodes_changed(self._cache.drop_pod(pod.uid))
        self.cluster_event(POD_EVENT)
        self._tenancy.gone(pod)

    # --- the cycle ---

    def prepare(self) -> list[Unit]:
        """Before each plan. The forming gangs that gained no member for a while."""
        step = self._metrics.steps
        with step(LoopStep.REQUEUE):
            try:
                self._move_to_active()
            except Exception as error:
                self._requeueing.end_round()
                self._isolation.report(ErrorStep.REQUEUE, "unschedulable units", error)
        now = self._now()
        with step(LoopStep.TENANCY):
            self._tenancy.tick(now)
        with step(LoopStep.QUEUE):
            return self._queue.tick(now)

    @property
    def requeueing(self) -> bool:
        """Whether `prepare` must be called again before a unit is planned: changes that may help
        older units are not worked off."""
        return self._requeueing.in_round

    def pop(self) -> Unit | None:
        if self.requeueing:
            return None
        try:
            return self._queue.pop(self._now())
        except Exception as error:
            self._isolation.report(ErrorStep.QUEUE, "active queue", error)
            return None

    def schedule(self, unit: Unit) -> None:
        """Plan a popped unit, and hand over the outcome."""
        plan: Plan | None = None
        start = self._now()
        with self._metrics.steps(LoopStep.PLAN):
            try:
                plan = self._tenancy.plan(unit, self._effects.closed_to(unit))
                now = self._now()
                self._metrics.planning.observe(now - start)
                self._hand_over(unit, plan, now)
            except Exception as error:
                self._metrics.attempts.labels("error").inc()
                self._effects.failed(unit, plan, error)

    def _hand_over(self, unit: Unit, plan: Plan, now: float) -> None:
        match plan:
            case Placed():
                self._metrics.attempts.labels("placed").inc()
                self._tenancy.placed(unit, plan)
                self._effects.placed(unit, plan)
                self.cluster_event(POD_EVENT)
                return
            case NoFit() if plan.over_quota:
                self._metrics.attempts.labels("over_quota").inc()
                self._queue.mark_over_quota(unit.key, now, plan)
                self._effects.over_quota(unit, plan)
            case NoFit():
                self._metrics.attempts.labels("unschedulable").inc()
                if unit.is_gang:
                    self._metrics.gangs.labels("unschedulable").inc()
                self._queue.mark_unschedulable(unit.key, now, plan)
                self._tenancy.misfit(unit)
                self._effects.unschedulable(unit, plan)
        self._queue.tried(unit.key)

    def next_at(self) -> float | None:
        """When `prepare` next has something to do, by the clock."""
        due = [self._queue.next_at(), self._tenancy.next_at()]
        if self._requeueing.pending:
            due.append(self._now())
        if self._events:
            due.append(self._events_at)
        return min((at for at in due if at is not None), default=None)

    def _move_to_active(self) -> None:
        """One slice: what is left of it makes `next_at` due at once."""
        now = self._now()
        if self._events and now >= self._events_at:
            for kind in sorted(self._events):
                self._requeueing.cluster_event(kind)
            self._events.clear()
            self._events_at = now + EVENTS_EVERY
        if self._requeueing.pending:
            self._queue.move_to_active(now, self._requeueing.slice())
