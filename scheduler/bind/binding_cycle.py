"""
The binding cycle of a plan: assumed at once, bound in its own task, confirmed or forgotten.

    start ──▶ assume in the cache ──PreBind──▶ bind ──▶ bound     confirm; the gang may be complete
                                                        failed    forget and requeue
                                                        rejected  the same, retried after minutes
                                                        an error  the same, and quarantine the unit

Failed members of a gang are planned again with its bound members counted, before any other unit.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler.bind.binder import Binder
from scheduler.bind.prebind import PreBind
from scheduler.errors import ErrorStep
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.isolation import brief
from scheduler.model.gang import GangKey
from scheduler.model.plan import Bound, Placed, Placement, Result, Unbound
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.report.reporter import Reporter, log
from scheduler.tenancy.context import SchedulingContext

BIND_SECONDS: Final = 30.0  # how long the binder retries before the pod is planned again


@dataclass(frozen=True, slots=True)
class _Binding:
    """A plan whose binds are in flight."""

    unit: Unit
    placements: tuple[Placement, ...]
    rejected: frozenset[str]
    """uids of pods whose bind the API server rejected before"""
    since: float
    """When the unit was first queued."""
    bound_before: int
    """Members of the gang that had a node in the API when the plan was made."""


class BindingCycles:
    """`pending` returns the newest state of a pod that still needs a node, by its uid."""

    def __init__(
        self,
        context: SchedulingContext,
        *,
        partial_gangs: PartialGangTracker,
        binder: Binder,
        prebind: PreBind,
        reporter: Reporter,
        pending: Callable[[str], Pod | None],
    ) -> None:
        self.pods_in_flight = 0
        self._context = context
        self._isolation = context.isolation
        self._cache = context.cache
        self._queue = context.queue
        self._metrics = context.metrics
        self._now = context.now
        self._partial_gangs = partial_gangs
        self._binder = binder
        self._prebind = prebind
        self._reporter = reporter
        self._pending = pending
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight: set[str] = set()  # uids of pods whose task is not done with them

    def __len__(self) -> int:
        """Plans whose binds are in flight."""
        return len(self._tasks)

    def start(self, unit: Unit, plan: Placed) -> None:
        """Assume the plan and bind it in a task."""
        now = self._now()
        view = self._queue.view(unit.key)
        if view is not None and view.waiting_since is not None:
            waited = now - view.waiting_since
            (self._metrics.gang_waiting if unit.is_gang else self._metrics.waiting).observe(waited)
        uids = [placement.pod.uid for placement in plan.placements]
        rejected = frozenset(uid for uid in uids if self._queue.was_rejected(uid))
        for placement in plan.placements:
            self._cache.assume(placement)
        self._queue.start_binding(unit.key, uids, now)
        if plan.unplaced and plan.why_unplaced is not None:
            self._queue.mark_unschedulable(unit.key, now, plan.why_unplaced)
            self._reporter.unschedulable(unit, plan.unplaced, plan.why_unplaced)
        gang = unit.key if isinstance(unit.key, GangKey) else None
        bound = self._partial_gangs.live(gang) if gang else 0
        since = now if view is None else view.since
        binding = _Binding(unit, plan.placements, rejected, since, bound)
        task = self._context.tasks.start(
            self._bind(binding), partial(self._isolation.unit_failed, ErrorStep.BIND, unit.key)
        )
        # From here on the task ends what was begun; it does not run before this call has returned.
        self._tasks.add(task)
        task.add_done_callback(self._done)
        self.pods_in_flight += len(plan.placements)
        self._in_flight.update(uids)
        if gang is not None:
            self._partial_gangs.start_binding(gang)

    def abandon(self, unit: Unit, plan: Placed | None) -> list[Pod]:
        """
        An error came before the binds of this plan began: forget its placements, as after failed
        binds. Returns the pods that still need a node.
        """
        placements = plan.placements if plan is not None else ()
        aside = [p for p in placements if p.pod.uid not in self._in_flight]
        for placement in aside:
            self._context.freed(self._cache.forget(placement.pod.uid))
        if aside:
            why = "an error of the scheduler came before the bind"
            self._prebind.finish(unit, [Unbound(placement, why) for placement in aside])
        pods = (self._pending(pod.uid) for pod in unit.pods if pod.uid not in self._in_flight)
        return [pod for pod in pods if pod is not None]

    async def finish(self, seconds: float) -> None:
        """Wait at most so long for the binds in flight."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._context.wake()

    async def _bind(self, binding: _Binding) -> None:
        unit, results = binding.unit, list[Result]()
        failure: Exception | None = None
        try:
            await self._bind_all(binding, results)
        except Exception as error:
            # Before the binder, which raises nothing: none of the others is bound.
            failure = error
            done = {result.placement.pod.uid for result in results}
            results += [
                Unbound(placement, brief(error))
                for placement in binding.placements
                if placement.pod.uid not in done
            ]
        with self._isolation.step(ErrorStep.BIND, unit.key):
            await self._prebind.undo(
                [result.placement for result in results if isinstance(result, Unbound)]
            )
        self._settle(binding, results)
        failure = failure or next(
            (result.error for result in results if isinstance(result, Unbound) and result.error),
            None,
        )
        if failure is not None:
            self._isolation.unit_failed(ErrorStep.BIND, unit.key, failure)

    async def _bind_all(self, binding: _Binding, results: list[Result]) -> None:
        unit = binding.unit
        ready = await self._provision_volumes(binding, results)
        ready = await self._prebind.allocate_claims(unit, ready, results)
        ready = await self._prebind.write_reservation(unit, ready, results)
        start = self._now()
        # Half the timeout leaves a gang the time for a second plan before its members are evicted.
        seconds = min(BIND_SECONDS, unit.timeout / 2) if unit.is_gang else BIND_SECONDS
        results += await self._binder.bind(ready, deadline=start + seconds, first=binding.rejected)
        self._metrics.binding.observe(self._now() - start)

    def _settle(self, binding: _Binding, results: list[Result]) -> None:
        """The outcome of the binds, in the cache, the queue and the reports."""
        unit = binding.unit
        self.pods_in_flight -= len(binding.placements)
        self._in_flight.difference_update(p.pod.uid for p in binding.placements)
        self._apply(unit, results)
        bound = [result.placement for result in results if isinstance(result, Bound)]
        if isinstance(unit.key, GangKey):
            with self._isolation.step(ErrorStep.BIND, unit.key):
                self._finish_gang(binding, unit.key, len(bound))
        with self._isolation.step(ErrorStep.REPORT, unit.key):
            self._reporter.bound(unit, bound)

    async def _provision_volumes(
        self, binding: _Binding, results: list[Result]
    ) -> tuple[Placement, ...]:
        """Pods that wait for volumes are not in flight: other units are planned meanwhile."""
        placements = binding.placements
        if not self._prebind.waits_for_volumes(placements):
            return placements
        self.pods_in_flight -= len(placements)
        try:
            return await self._prebind.provision_volumes(binding.unit, placements, results)
        finally:
            self.pods_in_flight += len(placements)

    def _apply(self, unit: Unit, results: list[Result]) -> None:
        """Forget all failed pods before the queue takes one: it counts the members of the gang."""
        failed = [result for result in results if isinstance(result, Unbound)]
        for result in results:
            if isinstance(result, Bound):
                with self._isolation.step(ErrorStep.BIND, result.placement.pod.key):
                    self._confirm(result.placement)
        for result in failed:
            with self._isolation.step(ErrorStep.BIND, result.placement.pod.key):
                self._context.freed(self._cache.forget(result.placement.pod.uid))
        with self._isolation.step(ErrorStep.BIND, unit.key):
            self._prebind.finish(unit, results)
        self._requeue_rejected([failure for failure in failed if failure.permanent])
        self._requeue([failure for failure in failed if not failure.permanent])

    def _confirm(self, placement: Placement) -> None:
        uid = placement.pod.uid
        self._cache.confirm(uid)
        self._metrics.scheduled.inc()
        self._queue.finish_binding(uid, self._now())
        cached = self._cache.get(uid)
        if cached is not None:  # else the watch has shown that the pod is gone
            self._partial_gangs.bound(cached.pod, placement.node)

    def _requeue(self, failures: list[Unbound]) -> None:
        pods = []
        for pod, why in self._still_pending(failures, "bind_failed"):
            pods.append(pod)
            with self._isolation.step(ErrorStep.REPORT, pod.key):
                self._reporter.binding_failed(pod, why)
        if pods:
            self._queue.requeue(pods, self._now())
            self._context.wake()

    def _requeue_rejected(self, failures: list[Unbound]) -> None:
        pods = []
        for pod, why in self._still_pending(failures, "bind_refused"):
            pods.append(pod)
            with self._isolation.step(ErrorStep.REPORT, pod.key):
                delay = self._queue.rejection_delay(pod.uid)
                self._reporter.binding_rejected(pod, why, retry_after=delay)
        if pods:
            self._queue.requeue_rejected(pods, self._now())
            self._context.wake()

    def _still_pending(self, failures: list[Unbound], result: str) -> list[tuple[Pod, str]]:
        """Without pods that are gone, or that another client has bound as the watch has shown."""
        pods = []
        for failure in failures:
            self._metrics.attempts.labels(result).inc()
            log("bind failed", failure.placement, error=failure.why)
            pod = self._pending(failure.placement.pod.uid)
            if pod is not None:
                pods.append((pod, failure.why))
        return pods

    def _finish_gang(self, binding: _Binding, gang: GangKey, bound: int) -> None:
        size = binding.unit.size
        if binding.bound_before + bound >= size:
            # Complete, even if members were deleted since.
            self._partial_gangs.completed(gang)
            if binding.bound_before < size:
                self._metrics.gangs.labels("scheduled").inc()
                self._metrics.gang_completion.observe(self._now() - binding.since)
        self._partial_gangs.finish_binding(gang)
        self._queue.members_changed(gang, self._now())
