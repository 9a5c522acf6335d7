"""
The scheduler at work: what the watches say in, bindings out.

    watch events ──▶ cache, queue ──▶ 1. what changed wakes the units it may help
                                      2. forming gangs that stand still are told about; the gates
                                         of complete ones are lifted
                                      3. gangs half bound for too long are released (`keeping`)
                                      4. pop a unit, plan it, assume the plan
                                      5. bind in a task of its own; planning goes on
    bind answered ──▶ confirm, or forget and put back

Everything runs in one event loop: callbacks and planning never interleave, only binds wait. What
is told (events, conditions) goes through queues of its own and holds nothing up. Nothing here
survives a restart, and nothing needs to: the watches tell all of it again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from cluster.watch import Event, Kind

from . import answers, filters, gates, planner
from .binder import Binder
from .cache import Cache
from .drift import Drift, drift
from .flights import Flights
from .groups import Groups
from .holding import HOLD_SECONDS
from .inspection import Inspection
from .keeping import Keeping
from .metrics import Metrics
from .model import GangKey, Node, Pod, PodKey
from .outcome import NoFit, Placed
from .parking import Help
from .queueing import STARVING_AFTER, Queue
from .release import Releaser
from .rules.volumes import Volumes
from .telling import Telling
from .units import Unit
from .volumes.feeds import Feed
from .volumes.preparing import Preparing
from .wholeness import Wholeness

# Binds beyond what the connections carry would only wait there, grow old, and be decided too early.
MOST_IN_FLIGHT: Final = 128
STIR_EVERY: Final = 0.2  # seconds between two looks at the units that wait for more than room


@dataclass(frozen=True, slots=True)
class Settings:
    most_in_flight: int = MOST_IN_FLIGHT
    """Pods whose binds are in flight; planning waits beyond."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a gang that starves."""


@dataclass(frozen=True, slots=True)
class Hands:
    """Whatever the scheduler acts through."""

    binder: Binder
    gates: gates.Gates
    releaser: Releaser
    telling: Telling
    preparing: Callable[[Volumes], Preparing] | None = None
    """Makes what gives claims their volumes before a bind."""


class Scheduler:
    """Feed `on_pod` and `on_node` from informers, and start `run()` when both are in sync.

    `leading` is asked before anything is decided; `known` lists the pods that the watch has shown.
    """

    def __init__(
        self,
        *,
        name: str,
        hands: Hands,
        metrics: Metrics,
        now: Callable[[], float],
        leading: Callable[[], bool] = lambda: True,
        known: Callable[[], Iterable[Pod]] = tuple,
        settings: Settings = Settings(),  # noqa: B008 (frozen, and without state)
    ) -> None:
        self._wake = asyncio.Event()
        self.cache = Cache()
        self.groups = Groups(self._regroup)
        self.wholeness = Wholeness(self.groups.find)
        self.queue = Queue(
            bound=self.cache.bound,
            group=self.groups.find,
            half_bound=self.wholeness.half_bound,
            done=self.wholeness.done,
            class_of=lambda pod: (pod.shape, self.cache.snapshot.peers.signature(pod)),
            starving_after=settings.starving_after,
        )
        self.keeping = Keeping(
            queue=self.queue,
            wholeness=self.wholeness,
            releaser=hands.releaser,
            metrics=metrics,
            now=now,
            wake=self._wake.set,
            hold_seconds=settings.hold_seconds,
        )
        self._name, self._telling = name, hands.telling
        self._gates = hands.gates
        self._metrics, self._now, self._leading, self._known = metrics, now, leading, known
        self._memo = planner.Memo()
        self._pods: dict[str, Pod] = {}  # uid -> own pod that has no node yet, newest state
        self._changed: set[str] = set()  # nodes on which something may have become possible
        self._stirred = False  # something that no node shows may have helped somebody
        self._stir_at = 0.0  # not before, so that a stream of such changes costs little
        self._most_flying = settings.most_in_flight  # pods
        self._ending = False
        self.flights = Flights(
            cache=self.cache,
            queue=self.queue,
            wholeness=self.wholeness,
            binder=hands.binder,
            telling=hands.telling,
            metrics=metrics,
            now=now,
            pending=self._pods.get,
            freed=self._note,
            wake=self._wake.set,
            preparing=hands.preparing and hands.preparing(self.cache.snapshot.volumes),
        )

    @property
    def binding(self) -> int:
        """Plans whose binds are in flight."""
        return len(self.flights)

    def waits(self, uid: str) -> bool:
        """Whether this pod still wants a node, as far as the watch has said."""
        return uid in self._pods

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
        moved = self.cache.snapshot.moved
        self._note(self.cache.put_pod(pod))
        self._stirred = self._stirred or self.cache.snapshot.moved != moved
        held = self.cache.held(pod.uid)
        if pod.node or held is None:
            self.wholeness.put(pod)
        if not pod.gates:
            self._gates.drop(pod.uid)
        if pod.scheduler == self._name and gates.waits(pod):
            self._pods[pod.uid] = pod
            if held is None:
                self.queue.put(pod, self._now())
                self._wake.set()
        else:
            self._settle(pod)

    def on_feed(self, feed: Feed, event: Event[Any]) -> None:
        """Something that no node shows, such as a volume; may help those that look at it."""
        if feed.take(event):
            self.cache.snapshot.stirred()
            self._stirred = True
            self._wake.set()

    def _lost(self, pod: Pod) -> None:
        self._note(self.cache.drop_pod(pod.uid))
        self._stirred = True
        self.wholeness.drop(pod.uid)
        self.keeping.lost(pod)
        self._settle(pod)

    def _settle(self, pod: Pod) -> None:
        """The pod has a node, or wants none any more."""
        self._pods.pop(pod.uid, None)
        self.queue.remove(pod.uid, self._now())
        self._telling.drop(pod.uid)
        self._gates.drop(pod.uid)
        if pod.gang is not None:
            self.queue.reconsider(pod.gang.key, self._now())
            self._wake.set()

    def _regroup(self, gang: GangKey) -> None:
        self.wholeness.regroup(gang)
        self.queue.regroup(gang, self._now())
        self._wake.set()

    def _note(self, nodes: Iterable[str]) -> None:
        if nodes:
            self._changed.update(nodes)
            self._wake.set()

    # --- the cycle ---

    async def run(self) -> None:
        """Until cancelled; an exception that leaves it is a bug of this program."""
        while True:
            self._wake.clear()
            if (broken := self.flights.broken or self.keeping.broken) is not None:
                raise broken
            await self.drain()
            due = self._next_at()
            wait = None if due is None else max(0.0, due - self._now())
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that meets the wake-up.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def drain(self) -> None:
        """Plan everything that can be planned now, as long as binds keep up."""
        self._prepare()
        while self._may_plan() and (unit := self.queue.pop(self._now())) is not None:
            self._schedule(unit)
            # Binds and watches go on between two plans.
            await asyncio.sleep(0)
            self._prepare()

    def _prepare(self) -> None:
        if not self._leading():
            return
        self._note(self.keeping.tick())
        self._wake_parked()
        now = self._now()
        for forming in self.queue.tick(now):
            timed_out = self.queue.timed_out(forming, now)
            self._telling.forming(forming, timed_out=timed_out)
            if timed_out:
                self._metrics.gangs.labels("timed_out").inc()
        self._gates.lift(self.queue.lifts())

    def _may_plan(self) -> bool:
        """A gang goes whole, so the limit is one to begin under, not one to stay under."""
        return not self._ending and self.flights.pods < self._most_flying and self._leading()

    async def finish(self, seconds: float) -> None:
        """Plan nothing more, and wait for binds in flight, at most so long."""
        self._ending = True
        await self.flights.finish(seconds)

    def _wake_parked(self) -> None:
        now, snapshot = self._now(), self.cache.snapshot
        stirred = self._stirred and now >= self._stir_at
        if not (self._changed or stirred):
            return
        nodes, self._changed = sorted(self._changed), set()
        if stirred:
            self._stirred, self._stir_at = False, now + STIR_EVERY

        def helps(pod: Pod) -> Help:
            if any(planner.helps(pod.shape, snapshot, node, self._memo) for node in nodes):
                return Help.FITS
            # Ports, volumes and other pods may be what such a pod waits for, on any node.
            return Help.PERHAPS if stirred and filters.depends(snapshot, pod) else Help.NONE

        self.queue.wake(now, helps)

    def _next_at(self) -> float | None:
        due = [self.queue.next_at(), self.keeping.next_at()]
        if self._stirred:
            due.append(self._stir_at)
        return min((at for at in due if at is not None), default=None)

    def _schedule(self, unit: Unit) -> None:
        start = self._now()
        closed = self.keeping.closed_to(unit)
        found = planner.plan(unit, self.cache.snapshot, memo=self._memo, closed=closed)
        self._metrics.planning.observe(self._now() - start)
        match found:
            case Placed():
                self._metrics.attempts.labels("placed").inc()
                self.flights.start(unit, found)
                self._stirred = True
            case NoFit():
                self._metrics.attempts.labels("no_fit").inc()
                if unit.is_gang:
                    self._metrics.gangs.labels("no_fit").inc()
                self.queue.park(unit.key, self._now(), found)
                self._telling.misfit(unit, unit.pods, found)
                self.keeping.hold(unit, self.cache.snapshot, self._known)

    # --- looking in ---

    def inspect(self, which: str | PodKey) -> Inspection | None:
        """A pod by its uid or its key; None: no such pod is waiting or was shown."""
        pod = self._find(which)
        if pod is None:
            return None
        key = self.queue.key(pod.uid)
        look = None if key is None else self.queue.look(key)
        held = self.cache.held(pod.uid)
        gang = pod.gang.key if pod.gang else None
        return Inspection(
            pod,
            look,
            node=held.node if held else pod.node,
            bound=self.wholeness.live(gang) if gang else 0,
            half_bound=gang is not None and self.wholeness.half_bound(gang),
            closed=self.keeping.closed_to(look.unit) if look else frozenset(),
        )

    def explain(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Why a pod waits, see `answers`; None: no such pod is known."""
        seen = self.inspect(PodKey(namespace, name))
        if seen is None:
            return None
        gang = seen.pod.gang
        members: list[tuple[Pod, str]] = []
        if gang is not None:
            mine = {pod.uid: pod for pod in self._known() if pod.gang and pod.gang.key == gang.key}
            for pod in mine.values():
                held = self.cache.held(pod.uid)
                if not pod.finished:
                    members.append((pod, held.node if held else pod.node))
        snapshot = self.cache.snapshot
        return answers.answer(seen, snapshot, self._memo, members=members, now=self._now())

    def _find(self, which: str | PodKey) -> Pod | None:
        if isinstance(which, str) and which in self._pods:
            return self._pods[which]
        for pod in (*self._pods.values(), *self._known()):
            if which in (pod.uid, pod.key):
                return pod
        return None

    def drift(self) -> Drift:
        """How far the books are from what the pods hold; nothing, or there is a bug."""
        return drift(self.cache, (pod.uid for pod in self._known()))
