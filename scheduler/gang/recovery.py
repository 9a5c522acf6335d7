"""
Keeping gangs from standing half bound, and from waiting for ever: when release and holds happen.

    half bound ──its timeout, nothing in flight──▶ suspended ──released──▶ backs off, forms anew
    starving, does not fit ──▶ nodes held ──placed, gone, too long──▶ open again

`partial_gangs` and `holding` keep the books, `release` acts; here is decided when. Time counts from
when the working leader first saw a gang half bound, so that a new leader gives each its chance.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from scheduler.background import BackgroundTasks
from scheduler.cache.snapshot import Snapshot
from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.gang.stale_gang_eviction import MemberFate, StaleGangEvictor
from scheduler.gang.starvation import StarvationProtection, choose
from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod, from_daemon_set
from scheduler.model.unit import PartialGang, Unit
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics

logger = logging.getLogger(__name__)

_PLACED_OR_FORMING: Final = (None, QueueState.BINDING, QueueState.FORMING)


class GangRecovery:
    """`wake` is called when there is something to plan."""

    def __init__(
        self,
        *,
        queue: SchedulingQueue,
        partial_gangs: PartialGangTracker,
        releaser: StaleGangEvictor,
        metrics: Metrics,
        now: Callable[[], float],
        wake: Callable[[], None],
        hold_seconds: float,
        tasks: BackgroundTasks,
    ) -> None:
        self._tasks = tasks
        self._queue, self._partial_gangs, self._releaser = queue, partial_gangs, releaser
        self._metrics, self._now, self._wake = metrics, now, wake
        self.holding = StarvationProtection(seconds=hold_seconds)
        self._releasing: dict[GangKey, asyncio.Task[None]] = {}

    @property
    def releasing(self) -> int:
        return len(self._releasing)

    @property
    def held(self) -> frozenset[str]:
        """The nodes that are held for somebody."""
        return self.holding.hold.nodes if self.holding.hold is not None else frozenset()

    def lost(self, pod: Pod) -> None:
        """The pod is gone from the API."""
        self._releaser.forget(pod.uid)

    def tick(self) -> frozenset[str]:
        """Begin what is due; the nodes that are held no more."""
        now = self._now()
        self._partial_gangs.see(now)
        for gang in list(self._partial_gangs.short()):
            if self._open(gang) and self._partial_gangs.due_at(gang) <= now:
                self._begin_release(gang, now)
        hold = self.holding.hold
        if hold is None:
            return frozenset()
        if self._queue.state(hold.key) in _PLACED_OR_FORMING:
            return self.holding.end(hold.key)
        return self.holding.expire(now)

    def next_at(self) -> float | None:
        """When `tick` next has something to do."""
        due = [
            self._partial_gangs.due_at(gang)
            for gang in self._partial_gangs.short()
            if self._open(gang)
        ]
        if self.holding.hold is not None:
            due.append(self.holding.hold.until)
        return min(due, default=None)

    # --- release ---

    def _open(self, gang: GangKey) -> bool:
        """Nobody is at work on it."""
        return gang not in self._releasing and not self._partial_gangs.in_flight(gang)

    def _begin_release(self, gang: GangKey, now: float) -> None:
        half, unit = self._partial_gangs.half(gang), self._queue.unit(gang)
        waiting = (*unit.pods, *unit.gated) if unit is not None else ()
        if not half.witnessed and not waiting:
            self._partial_gangs.again(gang, now)
            return
        self._queue.suspend(gang, now)
        task = self._tasks.start(self._release(half, waiting))
        self._releasing[gang] = task
        task.add_done_callback(lambda _: self._released(gang))

    async def _release(self, half: PartialGang, waiting: tuple[Pod, ...]) -> None:
        outcome = await self._releaser.release(half, waiting)
        if outcome.whole:
            self._partial_gangs.completed(half.key)
        elif outcome.evicted:
            self._metrics.gangs.labels("released").inc()
        elif any(fate in (MemberFate.BARE, MemberFate.HELD) for _, fate in outcome.fates):
            self._metrics.gangs.labels("retained").inc()

    def _released(self, gang: GangKey) -> None:
        del self._releasing[gang]
        self._partial_gangs.again(gang, self._now())
        self._queue.resume(gang, self._now())
        self._wake()

    # --- holds ---

    def closed_to(self, unit: Unit) -> frozenset[str]:
        """The nodes that this unit must leave alone; a half-bound gang goes before all holds."""
        if isinstance(unit.key, GangKey) and self._partial_gangs.is_partial(unit.key):
            return frozenset()
        return self.holding.closed_to(unit)

    def hold(self, unit: Unit, snapshot: Snapshot, known: Callable[[], Iterable[Pod]]) -> None:
        """Called for a unit that did not fit: hold nodes for it if it has waited too long."""
        now = self._now()
        if not self._queue.starving(unit.key, now) or not self.holding.wanted(unit, now):
            return
        nodes = choose(unit, snapshot, _staying(known()), _mates(unit, known()))
        self.holding.begin(unit, nodes, now)
        if nodes:
            self._metrics.holds.inc()
        logger.info("nodes held", extra={"unit": str(unit.key), "nodes": len(nodes)})


def _mates(unit: Unit, pods: Iterable[Pod]) -> list[tuple[Pod, str]]:
    """Members of the gang that have a node."""
    return [
        (pod, pod.node)
        for pod in pods
        if pod.gang and pod.gang.key == unit.key and pod.node and not pod.finished
    ]


def _staying(pods: Iterable[Pod]) -> Iterable[tuple[Pod, str]]:
    """Pods that come back as often as they end: nobody waits for their room."""
    for pod in pods:
        if pod.node and not pod.finished and from_daemon_set(pod):
            yield pod, pod.node
