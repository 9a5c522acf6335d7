"""
Plans on their way into the API: assumed at once, bound in a task each, answered one way or another.

    start ──▶ assumed in the cache ──volumes, devices, room for members──▶ bind ──▶ each answered
                                               bound    confirmed; a gang may be whole now
                                               failed   forgotten, and back in the queue
                                               refused  the same, and left alone for minutes

A gang's failed members are planned again with the bound ones counted, before anything else.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.bind.binder import Binder
from scheduler.cache.cache import Cache
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.model.gang import GangKey
from scheduler.model.plan import Bound, Placed, Placement, Result, Unbound
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.plugins.dra.prebind import SECONDS as CLAIM_SECONDS
from scheduler.plugins.dra.prebind import ClaimPreBind
from scheduler.plugins.volumes.prebind import SECONDS as VOLUME_SECONDS
from scheduler.plugins.volumes.prebind import VolumePreBind
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics
from scheduler.report.reporter import Reporter, log
from scheduler.tenancy.reservation.controller import ReservationController

BIND_SECONDS: Final = 30.0  # how long a bind is tried before the pod is planned again


@dataclass(frozen=True, slots=True)
class _Binding:
    """A plan whose binds are in flight."""

    unit: Unit
    placements: tuple[Placement, ...]
    first: frozenset[str]
    """uids of pods whose bind was refused before"""
    since: float
    """When the unit came."""
    live: int
    """Members of the gang that had a node in the API when the plan was made."""


class BindingCycles:
    """`pending` gives the newest state of a pod that still wants a node; `freed` hears of nodes
    that have room again, `wake` that there is something to plan."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: SchedulingQueue,
        partial_gangs: PartialGangTracker,
        binder: Binder,
        reporter: Reporter,
        metrics: Metrics,
        now: Callable[[], float],
        pending: Callable[[str], Pod | None],
        freed: Callable[[Iterable[str]], None],
        wake: Callable[[], None],
        preparing: VolumePreBind | None = None,
        claiming: ClaimPreBind | None = None,
        reserving: ReservationController | None = None,
    ) -> None:
        self._preparing, self._claiming, self._reserving = preparing, claiming, reserving
        self._cache, self._queue, self._partial_gangs = cache, queue, partial_gangs
        self._binder, self._reporter, self._metrics, self._now = binder, reporter, metrics, now
        self._pending, self._freed, self._wake = pending, freed, wake
        self._tasks: set[asyncio.Task[None]] = set()
        self.pods = 0  # whose binds are in flight
        self.broken: BaseException | None = None

    def __len__(self) -> int:
        """Plans whose binds are in flight."""
        return len(self._tasks)

    def start(self, unit: Unit, plan: Placed) -> None:
        """Take the plan: from here on its pods count on their nodes."""
        now, look = self._now(), self._queue.view(unit.key)
        if look is not None and look.waiting_since is not None:
            waited = now - look.waiting_since
            (self._metrics.gang_waiting if unit.is_gang else self._metrics.waiting).observe(waited)
        uids = [one.pod.uid for one in plan.placements]
        first = frozenset(uid for uid in uids if self._queue.was_rejected(uid))
        for placement in plan.placements:
            self._cache.assume(placement)
        self._queue.start_binding(unit.key, uids, now)
        if plan.unplaced and plan.why_unplaced is not None:
            self._queue.mark_unschedulable(unit.key, now, plan.why_unplaced)
            self._reporter.misfit(unit, plan.unplaced, plan.why_unplaced)
        live = 0
        if isinstance(unit.key, GangKey):
            live = self._partial_gangs.live(unit.key)
            self._partial_gangs.committed(unit.key)
        since = now if look is None else look.since
        self.pods += len(plan.placements)
        task = asyncio.create_task(self._bind(_Binding(unit, plan.placements, first, since, live)))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def finish(self, seconds: float) -> None:
        """Wait for what is in flight, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wake()
        if not task.cancelled() and (exc := task.exception()) is not None:
            # A bug, not a refusal: the books may be wrong, so nobody must go on with them.
            self.broken = exc

    async def _bind(self, flight: _Binding) -> None:
        unit = flight.unit
        ready, results = await self._prepare(flight)
        ready = await self._claim(flight, ready, results)
        ready = await self._reserve(unit, ready, results)
        start = self._now()
        # A gang has time to be planned and bound once more before its timeout takes it apart.
        seconds = min(BIND_SECONDS, unit.timeout / 2) if unit.is_gang else BIND_SECONDS
        results += await self._binder.bind(ready, deadline=start + seconds, first=flight.first)
        self._metrics.binding.observe(self._now() - start)
        if self._claiming is not None:
            await self._claiming.undo(
                [one.placement for one in results if isinstance(one, Unbound)]
            )
        self.pods -= len(flight.placements)
        bound = [one.placement for one in results if isinstance(one, Bound)]
        self._take(unit, results)
        if isinstance(unit.key, GangKey):
            self._end(flight, unit.key, len(bound))
        self._reporter.bound(unit, bound)

    async def _prepare(self, flight: _Binding) -> tuple[tuple[Placement, ...], list[Result]]:
        """
        Who may be bound once volumes are there, and who failed for want of them.

        Members of a gang that could not be whole then are not bound at all. What waits for its
        volumes keeps nobody else from being planned.
        """
        placements = flight.placements
        if self._preparing is None or not self._preparing.needed(placements):
            return placements, []
        self.pods -= len(placements)
        found = await self._preparing.prepare(placements, deadline=self._now() + VOLUME_SECONDS)
        self.pods += len(placements)
        failed: list[Result] = [Unbound(one.placement, one.why) for one in found.failed]
        if failed and len(found.ready) < flight.unit.need:
            why = "other members of the pod group have no volumes yet"
            return (), [*failed, *(Unbound(one, why) for one in found.ready)]
        return found.ready, failed

    async def _claim(
        self, flight: _Binding, ready: tuple[Placement, ...], results: list[Result]
    ) -> tuple[Placement, ...]:
        """Who may be bound once claims have their devices; who failed is added to the results."""
        if self._claiming is None or not self._claiming.needed(ready):
            return ready
        found = await self._claiming.prepare(ready, deadline=self._now() + CLAIM_SECONDS)
        results += [Unbound(one.placement, one.why) for one in found.failed]
        if found.failed and len(found.ready) < flight.unit.need:
            why = "other members of the pod group have no devices yet"
            results += [Unbound(one, why) for one in found.ready]
            return ()
        return found.ready

    async def _reserve(
        self, unit: Unit, ready: tuple[Placement, ...], results: list[Result]
    ) -> tuple[Placement, ...]:
        """Nobody, where room for members to come could not be written down."""
        if self._reserving is None or not self._reserving.needed(unit, ready):
            return ready
        why = await self._reserving.write(unit, ready)
        results += [Unbound(one, why) for one in ready if why]
        return () if why else ready

    def _take(self, unit: Unit, results: list[Result]) -> None:
        """Forget all that failed before any is put back: a gang counts its members only then."""
        failed = [one for one in results if isinstance(one, Unbound)]
        for one in results:
            if isinstance(one, Bound):
                self._confirm(one.placement)
        for one in failed:
            self._freed(self._cache.forget(one.placement.pod.uid))
        if self._reserving is not None:
            self._reserving.answered(unit, results)
        self._put_back([one for one in failed if one.permanent], permanent=True)
        self._put_back([one for one in failed if not one.permanent], permanent=False)

    def _confirm(self, placement: Placement) -> None:
        uid = placement.pod.uid
        self._cache.confirm(uid)
        self._metrics.scheduled.inc()
        self._queue.finish_binding(uid, self._now())
        held = self._cache.held(uid)
        if held is not None:  # else it is gone already, and the watch has said so
            self._partial_gangs.bound(held.pod, placement.node)

    def _put_back(self, failures: list[Unbound], *, permanent: bool) -> None:
        pods: list[Pod] = []
        for failure in failures:
            self._metrics.attempts.labels("bind_refused" if permanent else "bind_failed").inc()
            log("not bound", failure.placement, error=failure.why)
            pod = self._pending(failure.placement.pod.uid)
            if pod is not None:  # else gone, or bound by somebody else and shown so by the watch
                pods.append(pod)
                self._reporter.not_bound(pod, failure.why, permanent=permanent)
        if pods:
            put_back = self._queue.requeue_rejected if permanent else self._queue.requeue
            put_back(pods, self._now())
            self._wake()

    def _end(self, flight: _Binding, gang: GangKey, bound: int) -> None:
        size = flight.unit.size
        if flight.live + bound >= size:
            # Whole, whoever may have gone since.
            self._partial_gangs.completed(gang)
            if flight.live < size:
                self._metrics.gangs.labels("scheduled").inc()
                self._metrics.gang_completion.observe(self._now() - flight.since)
        self._partial_gangs.ended(gang)
        self._queue.members_changed(gang, self._now())
