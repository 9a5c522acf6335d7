"""
A cluster in virtual time: work arrives, is placed, runs as long as it runs, and goes.

    arrivals, endings, what is due ──▶ the clock jumps there ──▶ queue, planner, cache ──▶ starts

The parts that decide are the scheduler's own: queue, cache, planner, tenancy. There is no API
server, binds succeed at once, and every pod states how long it runs. Three ways of deciding:

    fifo      strictly in the order of arrival: whoever does not fit holds up everybody behind it
    greedy    the plain queue: in the order of arrival, and whatever fits goes
    ours      turns between tenants, and promises to those that wait

A run is a value: same work, same way, same outcome, whatever the machine; only `cpu` is measured.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler import planner
from scheduler.cache import Cache
from scheduler.metrics import Metrics
from scheduler.model import Node, Pod
from scheduler.outcome import Placed, Plan
from scheduler.parking import Help
from scheduler.queueing import Queue
from scheduler.tables import Tables
from scheduler.tenancy.tenancy import Surroundings, Tenancy
from scheduler.units import Unit, UnitKey, key_of, units

FIFO, GREEDY, OURS = "fifo", "greedy", "ours"
WAYS: Final = (FIFO, GREEDY, OURS)
_EPOCH: Final = 1_000_000.0  # the time of day at which the clock shows nought
_LEAST: Final = 0.5  # seconds that the clock moves, so that nothing is looked at for ever


@dataclass(frozen=True, slots=True)
class Job:
    """A pod or a gang: its pods come together, start together and end together."""

    pods: tuple[Pod, ...]
    arrives: float
    lasts: float

    @property
    def key(self) -> UnitKey:
        return key_of(self.pods[0])


@dataclass(slots=True)
class Run:
    """What became of the work; times are seconds from the beginning."""

    starts: dict[UnitKey, float] = field(default_factory=dict)
    decisions: int = 0
    """Plans made for a unit that was next."""
    cpu: float = 0.0
    """Seconds spent deciding."""
    moved: int = 0
    """Promises that were moved."""


def run(
    nodes: Iterable[Node],
    jobs: Sequence[Job],
    way: str,
    *,
    tables: Tables | None = None,
    cpu: Callable[[], float] = time.process_time,
) -> Run:
    """Until everything has started that ever can."""
    world = World(nodes, jobs, tables or Tables(), cpu)
    deciding: Line | Turns = Line(world) if way == FIFO else Turns(world, fair=way == OURS)
    while (at := world.next_at(deciding.next_at())) is not None:
        deciding.before(at)
        world.now = at
        came, went = world.pass_by()
        begin = cpu()
        deciding.take(came, went)
        deciding.decide()
        world.run.cpu += cpu() - begin
    return world.run


class World:
    """Clock, cluster, and what is still to come."""

    def __init__(
        self, nodes: Iterable[Node], jobs: Sequence[Job], tables: Tables, cpu: Callable[[], float]
    ) -> None:
        self.now = 0.0
        self.tables, self.cpu = tables, cpu
        self.cache = Cache()
        self.cache.snapshot.adopt(tables)
        self.cache.accounts.adopt(tables.policy)
        for node in nodes:
            self.cache.put_node(node)
        self.memo = planner.Memo()
        self.run = Run()
        self._jobs = {job.key: job for job in jobs}
        order = sorted(jobs, key=lambda job: (job.arrives, str(job.key)))
        self._coming = deque(order)
        self._running: list[tuple[float, str, UnitKey]] = []

    def next_at(self, due: float | None) -> float | None:
        """The next moment at which something happens."""
        happens = [self._coming[0].arrives] if self._coming else []
        happens += [self._running[0][0]] if self._running else []
        if not happens:
            return None  # nothing comes and nothing ends: whatever waits now waits for ever
        soonest = min(happens)
        return soonest if due is None else min(soonest, max(due, self.now + _LEAST))

    def pass_by(self) -> tuple[list[Job], list[Pod]]:
        """Who has come and who has gone by now."""
        went: list[Pod] = []
        while self._running and self._running[0][0] <= self.now:
            went += self._jobs[heapq.heappop(self._running)[2]].pods
        came: list[Job] = []
        while self._coming and self._coming[0].arrives <= self.now:
            came.append(self._coming.popleft())
        return came, went

    def plan(self, unit: Unit, closed: frozenset[str], memo: planner.Memo) -> Plan:
        return planner.plan(unit, self.cache.snapshot, memo=memo, closed=closed)

    def start(self, unit: Unit, plan: Placed) -> None:
        for one in plan.placements:
            self.cache.assume(one)
            terms = replace(one.pod.terms, started=_EPOCH + self.now)
            self.cache.put_pod(replace(one.pod, node=one.node, terms=terms, phase="Running"))
        self.run.starts[unit.key] = self.now
        ends = self.now + self._jobs[unit.key].lasts
        heapq.heappush(self._running, (ends, str(unit.key), unit.key))


class Line:
    """One after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._line: deque[Unit] = deque()

    def next_at(self) -> float | None:
        return None

    def before(self, at: float) -> None:
        """Nothing fades."""

    def take(self, came: Sequence[Job], went: Sequence[Pod]) -> None:
        for pod in went:
            self._world.cache.drop_pod(pod.uid)
        for job in came:
            self._line.extend(units(job.pods))

    def decide(self) -> None:
        world = self._world
        while self._line:
            world.run.decisions += 1
            found = world.plan(self._line[0], frozenset(), world.memo)
            if not isinstance(found, Placed):
                return
            world.start(self._line.popleft(), found)


class Turns:
    """The scheduler's queue; `fair`: with all that is decided between tenants."""

    def __init__(self, world: World, *, fair: bool) -> None:
        self._world = world
        cache = world.cache
        self._changed: set[str] = set()
        self.queue = Queue(
            bound=cache.bound,
            class_of=lambda pod: (pod.shape, cache.snapshot.signature(pod)),
            standing=cache.accounts.standing if fair else lambda tenant, asked: 0,
        )
        self._tenancy = self._between() if fair else None

    def _between(self) -> Tenancy:
        world = self._world
        around = Surroundings(
            scheduler="",
            cache=world.cache,
            queue=self.queue,
            metrics=Metrics(),
            evictor=None,
            group=lambda gang: None,
            now=lambda: world.now,
            epoch=lambda: _EPOCH + world.now,
            wake=lambda: None,
            freed=self._changed.update,
            leads=lambda uid: True,
            reserved=lambda gang, why: None,
        )
        return Tenancy(around, world.plan, world.memo)

    def next_at(self) -> float | None:
        due = [self.queue.next_at(), self._tenancy.next_at() if self._tenancy else None]
        if self._changed:
            due.append(self._world.now)
        return min((at for at in due if at is not None), default=None)

    def before(self, at: float) -> None:
        """What is used now has been used until then."""
        if self._tenancy is not None:
            now, self._world.now = self._world.now, at
            self._tenancy.quotas.fade()
            self._world.now = now

    def take(self, came: Sequence[Job], went: Sequence[Pod]) -> None:
        world = self._world
        for pod in went:
            self._changed.update(world.cache.drop_pod(pod.uid))
            if self._tenancy is not None:
                self._tenancy.gone(pod)
        for job in came:
            for pod in job.pods:
                self.queue.put(pod, world.now)

    def decide(self) -> None:
        self._prepare()
        while (unit := self.queue.pop(self._world.now)) is not None:
            self._schedule(unit)
            self._prepare()

    def _prepare(self) -> None:
        world = self._world
        if self._changed:
            nodes, snapshot = sorted(self._changed), world.cache.snapshot
            self._changed.clear()

            def helps(pod: Pod) -> Help:
                fits = any(planner.helps(pod.shape, snapshot, node, world.memo) for node in nodes)
                return Help.FITS if fits else Help.NONE

            self.queue.wake(world.now, helps)
        if self._tenancy is not None:
            self._tenancy.tick(world.now)
        self.queue.tick(world.now)

    def _schedule(self, unit: Unit) -> None:
        world, tenancy = self._world, self._tenancy
        world.run.decisions += 1
        if tenancy is None:
            found = world.plan(unit, frozenset(), world.memo)
        else:
            found = tenancy.plan(unit, frozenset())
        if not isinstance(found, Placed):
            self.queue.park(unit.key, world.now, found)
            if tenancy is not None:
                tenancy.misfit(unit)
            return
        if tenancy is not None:
            tenancy.placed(unit)
        self.queue.take(unit.key, [one.pod.uid for one in found.placements], world.now)
        world.start(unit, found)
        for one in found.placements:
            self.queue.finish(one.pod.uid, world.now)
