"""
Gang recovery: when partially bound gangs are evicted and when nodes are held for starving gangs.

    partial ──timeout, no bind in flight──▶ suspended ──members evicted──▶ backs off, forms again
    starving, does not fit ──▶ nodes held ──placed, gone, expired──▶ open again

`partial_gangs` and `starvation` hold the state, `stale_gang_eviction` evicts; this module decides
when. The timeout counts from when the leader first saw a gang partial, so that a new leader gives
each gang its time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from scheduler.background import BackgroundTasks
from scheduler.cache.snapshot import Snapshot
from scheduler.errors import ErrorStep
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.gang.stale_gang_eviction import MemberFate, StaleGangEvictor
from scheduler.gang.starvation import StarvationProtection, choose
from scheduler.isolation import Isolation, Pauses
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import PartialGang, Unit
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics

logger = logging.getLogger(__name__)

_PLACED_OR_FORMING: Final = (None, QueueState.BINDING, QueueState.FORMING)


class GangRecovery:
    """`wake` is called when a unit becomes plannable."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        partial_gangs: PartialGangTracker,
        evictor: StaleGangEvictor,
        metrics: Metrics,
        now: Callable[[], float],
        wake: Callable[[], None],
        hold_seconds: float,
        tasks: BackgroundTasks,
        isolation: Isolation,
    ) -> None:
        self._queue = queue
        self._partial_gangs = partial_gangs
        self._evictor = evictor
        self._metrics = metrics
        self._now = now
        self._wake = wake
        self._starvation = StarvationProtection(seconds=hold_seconds)
        self._tasks = tasks
        self._isolation = isolation
        self._pauses = Pauses[GangKey]()
        self._evictions: dict[GangKey, asyncio.Task[None]] = {}

    @property
    def evicting(self) -> int:
        """Gangs whose members are being evicted."""
        return len(self._evictions)

    @property
    def held_nodes(self) -> frozenset[str]:
        """The nodes that are held for a starving gang."""
        hold = self._starvation.hold
        return hold.nodes if hold is not None else frozenset()

    def deleted(self, pod: Pod) -> None:
        self._evictor.forget(pod.uid)

    def tick(self) -> frozenset[str]:
        """Evict gangs whose timeout is over; returns the nodes that are no longer held."""
        now = self._now()
        self._partial_gangs.tick(now)
        for gang in list(self._partial_gangs.partial()):
            try:
                if self._is_idle(gang, now) and self._partial_gangs.due_at(gang) <= now:
                    self._start_eviction(gang, now)
            except Exception as error:
                self._failed(gang, error)
        hold = self._starvation.hold
        if hold is None:
            return frozenset()
        if self._queue.state(hold.key) in _PLACED_OR_FORMING:
            return self._starvation.end(hold.key)
        return self._starvation.expire(now)

    def next_at(self) -> float | None:
        """When the next timeout is due."""
        now = self._now()
        due = [
            self._partial_gangs.due_at(gang)
            for gang in self._partial_gangs.partial()
            if self._is_idle(gang, now)
        ]
        if (at := self._pauses.next_at(now)) is not None:
            due.append(at)
        if self._starvation.hold is not None:
            due.append(self._starvation.hold.until)
        return min(due, default=None)

    # --- stale gang eviction ---

    def _is_idle(self, gang: GangKey, now: float) -> bool:
        """Neither eviction nor binds of its members are in flight, and no error pauses it."""
        in_flight = gang in self._evictions or self._partial_gangs.is_binding(gang)
        return not in_flight and not self._pauses.is_paused(gang, now)

    def _failed(self, gang: GangKey, error: Exception) -> None:
        self._pauses.failed(gang, self._now())
        self._isolation.unit_failed(ErrorStep.RECOVERY, gang, error)

    def _start_eviction(self, gang: GangKey, now: float) -> None:
        partial = self._partial_gangs.describe(gang)
        unit = self._queue.unit(gang)
        waiting = (*unit.pods, *unit.gated) if unit is not None else ()
        if not partial.witnessed and not waiting:
            self._partial_gangs.restart_timeout(gang, now)
            return
        self._queue.suspend(gang, now)
        task = self._tasks.start(
            self._evict(partial, waiting), lambda error: self._failed(gang, error)
        )
        self._evictions[gang] = task
        task.add_done_callback(lambda _: self._evicted(gang))

    async def _evict(self, partial: PartialGang, waiting: tuple[Pod, ...]) -> None:
        outcome = await self._evictor.evict(partial, waiting)
        if outcome.was_complete:
            self._partial_gangs.completed(partial.key)
        elif outcome.evicted:
            self._metrics.gangs.labels("released").inc()
        elif any(fate in (MemberFate.BARE, MemberFate.RETAINED) for _, fate in outcome.fates):
            self._metrics.gangs.labels("retained").inc()

    def _evicted(self, gang: GangKey) -> None:
        del self._evictions[gang]
        self._partial_gangs.restart_timeout(gang, self._now())
        self._queue.resume(gang, self._now())
        self._wake()

    # --- starvation protection ---

    def closed_to(self, unit: Unit) -> frozenset[str]:
        """The nodes that are held for another unit; holds do not bind a partial gang."""
        if isinstance(unit.key, GangKey) and self._partial_gangs.is_partial(unit.key):
            return frozenset()
        return self._starvation.closed_to(unit)

    def hold(self, unit: Unit, snapshot: Snapshot, known: Callable[[], Iterable[Pod]]) -> None:
        """Called for a unit that did not fit: hold nodes for it if it starves."""
        now = self._now()
        if not self._queue.starving(unit.key, now) or not self._starvation.may_hold(unit, now):
            return
        nodes = choose(unit, snapshot, _permanent(known()), _bound_members(unit, known()))
        self._starvation.begin(unit, nodes, now)
        if nodes:
            self._metrics.holds.inc()
        fields = {"unit": str(unit.key), "nodes": len(nodes)}
        logger.info("held nodes for a starving gang", extra=fields)


def _bound_members(unit: Unit, pods: Iterable[Pod]) -> list[tuple[Pod, str]]:
    """Members of the gang that have a node."""
    return [
        (pod, pod.node)
        for pod in pods
        if pod.gang and pod.gang.key == unit.key and pod.node and not pod.finished
    ]


def _permanent(pods: Iterable[Pod]) -> Iterable[tuple[Pod, str]]:
    """DaemonSet pods: their controller recreates them, so their capacity never becomes free."""
    for pod in pods:
        if pod.node and not pod.finished and from_daemon_set(pod):
            yield pod, pod.node
