"""
Plays a random scenario in the whole cycle and in virtual time: a scheduler, an API server in memory,
a watch driven by the test, and a clock that jumps to the next event.

Victims end after their grace period, pods after their run time. Usage is counted from the objects of
the API server and the scenario, never from the scheduler's own state.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from policies import vocabulary
from scheduler.fork import ForkPolicy
from scheduler.report import events
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer
from tests.unit.scheduler.tenancy.random_clusters import (
    BIND_FAULTS,
    GPU,
    GROUP,
    Action,
    Create,
    Delete,
    End,
    FailBinds,
    LoseNode,
    Restart,
    Scenario,
    Workload,
    unit_of,
)


class Api(FakeApiServer):
    """Checks the limits at every bind: pods count until they are deleted, terminating or not."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__()
        self.scenario = scenario
        self.workloads: dict[str, Workload] = {}  # unit -> what came
        self.broken: list[str] = []
        self.entitled: set[str] = set()
        """Units that were within a guarantee when the first of their pods was bound."""
        self._met: set[str] = set()

    async def bind(self, namespace: str, pod: str, *args: Any, **more: Any) -> None:
        unit = unit_of(pod)
        if unit not in self._met and self.within(self.workloads[unit]):
            self.entitled.add(unit)
        self._met.add(unit)
        try:
            await super().bind(namespace, pod, *args, **more)
        finally:
            self.check_limits()

    def within(self, workload: Workload) -> bool:
        """Whether the minimum of the workload is within a guarantee."""
        return any(
            self.scenario.guaranteed(member)
            and self.used(member) + workload.minimum <= self.scenario.guaranteed(member)
            for member in self.scenario.path(workload.tenant)
        )

    def allowed(self, workload: Workload) -> bool:
        return all(
            self.used(member) + workload.minimum <= self.scenario.limits[member]
            for member in self.scenario.path(workload.tenant)
            if member in self.scenario.limits
        )

    def check_limits(self) -> None:
        for member, allowed in self.scenario.limits.items():
            if member != GROUP or self.scenario.grouped:
                used = self.used(member)
                if used > allowed:
                    self.broken.append(f"{member} uses {used} of {allowed}")

    def used(self, member: str, *, terminating: bool = True) -> int:
        """GPUs of bound pods; with or without those of terminating pods."""
        tenants_of = self.scenario.tenants_of(member)
        return sum(
            gpus_of(pod)
            for pod in self.pods.values()
            if pod["spec"].get("nodeName")
            and pod["metadata"]["labels"][vocabulary.TENANT_LABEL] in tenants_of
            and (terminating or not pod["metadata"].get("deletionTimestamp"))
        )


def gpus_of(pod: dict[str, Any]) -> int:
    rows = (c["resources"]["requests"].get(GPU, 0) for c in pod["spec"]["containers"])
    return sum(int(row) for row in rows)


Watcher = Callable[["Story"], None]


class Story:
    """`rest` is called when the scheduler has done all that is due."""

    def __init__(
        self,
        scenario: Scenario,
        api: Api | None = None,
        *,
        rest: Watcher | None = None,
        fork: ForkPolicy | None = None,
    ) -> None:
        self.scenario = scenario
        self._fork = fork
        self.api = api or Api(scenario)
        self.bench = self._scheduler()
        self.began = self.bench.now
        self.workloads = self.api.workloads
        self.starts: dict[str, float] = {}
        """Unit -> when the first of its pods got a node."""
        self.cancelled: set[str] = set()
        self.lost: dict[str, float] = {}  # node -> when
        self.ended: dict[str, float] = {}  # pod -> when
        self._bound: dict[str, float] = {}  # pod -> when
        self._terminating: dict[str, float] = {}  # pod -> when it is deleted
        self.benches = [self.bench]
        self._rest = rest

    # --- playing ---

    async def play(self, *, longer: float = 0.0) -> "Story":
        for after, what in self.scenario.steps:
            await self.until(self.bench.now + after)
            if isinstance(what, Restart):
                await self._restart(what)
            else:
                self._do(what)
            await self._work()
        await self.until(self.bench.now + longer)
        return self

    async def until(self, when: float) -> None:
        """Play all events up to then; the clock jumps from one to the next."""
        await self._work()
        while (at := self._next()) <= when:
            self.bench.now = max(self.bench.now, at)
            await self._work()
        self.bench.now = max(self.bench.now, when)
        await self._work()

    def _next(self) -> float:
        due = self.bench.scheduler._next_at()
        soonest = [*self._ends().values(), *self._terminating.values()]
        if due is not None:
            soonest.append(max(due, self.bench.now + 0.5))
        return min(soonest, default=float("inf"))

    def _do(self, what: Action) -> None:
        match what:
            case Create(workload):
                self.come(workload)
            case End(which):
                names = sorted(self._bound)
                if names:
                    self._end(names[which % len(names)])
            case Delete(which):
                if units := self.waiting():
                    self._cancel(units[which % len(units)])
            case LoseNode(which):
                names = sorted(set(self._names()) - set(self.lost))
                if len(names) > 1:
                    self._lose(names[which % len(names)])
            case FailBinds(faults):
                for number in faults:
                    kind = BIND_FAULTS[number]
                    self.api.faults.append(None if kind is None else kind("as drawn"))

    async def _restart(self, what: Restart) -> None:
        self.come(what.workload)
        old = asyncio.create_task(self.bench.settle())
        for _ in range(what.turns):
            await asyncio.sleep(0)
        self.bench.leading = False
        now = self.bench.now
        self.bench = self._scheduler()
        self.bench.now = now
        self.benches.append(self.bench)
        for name in self.lost:
            self.bench.drop_node(name)
        self.bench.show_all()
        await old

    def come(self, workload: Workload) -> str:
        number = len(self.workloads)
        unit = f"u{number}"
        self.workloads[unit] = workload
        labels = {vocabulary.TENANT_LABEL: workload.tenant}
        if workload.preemptible:
            labels[vocabulary.PREEMPTIBLE_LABEL] = "true"
        notes = {}
        if workload.expected_duration is not None:
            notes[vocabulary.EXPECTED_DURATION_ANNOTATION] = f"{workload.expected_duration}s"
        for member in range(workload.members):
            self.bench.pod(
                f"{unit}-{member}",
                labels=labels,
                annotations=notes,
                owner="job",
                cpu="0",
                gpus=workload.gpus,
                priority=workload.priority,
                created=f"2026-01-01T00:{number:02}:{member:02}Z",
                terminationGracePeriodSeconds=self.scenario.grace,
                **({"gang": (unit, workload.size)} if workload.size else {}),
            )
        return unit

    # --- looking ---

    def waiting(self) -> list[str]:
        """Units with a pod that has no node."""
        found = {unit_of(name): None for name, node in self.api.nodes().items() if not node}
        return sorted(found, key=lambda unit: int(unit[1:]))

    def runs(self, unit: str) -> bool:
        return any(unit_of(name) == unit for name in self._bound)

    def steps(self, name: str) -> int:
        """What the schedulers counted of preemption."""
        return sum(int(one.metrics.preemption.labels(name)._value.get()) for one in self.benches)

    def events_of(self, reason: str) -> list[tuple[str, str]]:
        return [row for bench in self.benches for row in bench.events(reason)]

    def evicted_for(self) -> dict[str, int]:
        """Preemptors, and how many pods were evicted for each."""
        notes = [f"{note} " for _, note in self.events_of(events.PREEMPTED)]
        found = Counter(
            unit
            for unit in self.workloads
            for note in notes
            if f" ns/{unit} " in note or f" ns/{unit}-0 " in note
        )
        return dict(found)

    # --- inside ---

    def _scheduler(self) -> Bench:
        bench = Bench(self.api, fork=self._fork)
        bench.scheduler.adopt(self.scenario.tables())
        for name, gpus in zip(self._names(), self.scenario.nodes, strict=True):
            bench.node(name, gpus=gpus)
        return bench

    def _names(self) -> list[str]:
        return [f"n{number}" for number in range(len(self.scenario.nodes))]

    async def _work(self) -> None:
        """Until nothing more happens at this time."""
        while True:
            self._pass()
            woken = self.bench.scheduler._wake
            woken.clear()
            await self.bench.settle()
            if not (self._notice() or woken.is_set()):
                break
        if self._rest is not None:
            self._rest(self)

    def _pass(self) -> None:
        """Ends the pods whose run time or grace period is over."""
        for name, at in self._ends().items():
            if at <= self.bench.now:
                self._end(name)
        for name, at in list(self._terminating.items()):
            if at <= self.bench.now:
                self._end(name)

    def _notice(self) -> bool:
        """What the writes have made of the pods, shown by the watch; whether there was something."""
        fresh = False
        now = self.bench.now
        for name, pod in self.api.pods.items():
            if pod["spec"].get("nodeName") and name not in self._bound:
                fresh = True
                self._bound[name] = now
                self.starts.setdefault(unit_of(name), now)
                began = datetime.fromtimestamp(int(now), UTC).isoformat()
                pod["status"] = {**pod["status"], "phase": "Running", "startTime": began}
            if pod["metadata"].get("deletionTimestamp") and name not in self._terminating:
                fresh = True
                self._terminating[name] = now + self.scenario.grace
        if fresh:
            self.bench.show_all()
        return fresh

    def _ends(self) -> dict[str, float]:
        return {
            name: at + run_time
            for name, at in self._bound.items()
            if (run_time := self.workloads[unit_of(name)].run_time) is not None
        }

    def _end(self, name: str) -> None:
        self.ended[name] = self.bench.now
        self._bound.pop(name, None)
        self._terminating.pop(name, None)
        if name in self.api.pods:
            self.bench.delete(name)

    def _cancel(self, unit: str) -> None:
        self.cancelled.add(unit)
        for name in [name for name in self.api.pods if unit_of(name) == unit]:
            self._end(name)

    def _lose(self, node: str) -> None:
        self.lost[node] = self.bench.now
        self.bench.drop_node(node)
        for name in [name for name, on in self.api.nodes().items() if on == node]:
            self._end(name)


def halves(story: Story) -> list[str]:
    """Gangs that run with fewer than they need while members wait, though none ever ended."""
    nodes = story.api.nodes()
    ended = {unit_of(name) for name in story.ended}
    found = []
    for unit in story.waiting():
        size = story.workloads[unit].size
        mine = [node for name, node in nodes.items() if unit_of(name) == unit]
        if unit not in ended and 0 < sum(map(bool, mine)) < size <= len(mine):
            found.append(unit)
    return found
