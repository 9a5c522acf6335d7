"""
Situations in which a step of the scheduler's event loop could be long, and how long it is.

A situation fills a cluster, then changes it and lets the scheduler work until it is idle. Every
callback of the event loop is measured while it does: one callback is one step, because nothing
interrupts it. Watch events arrive one at a time, as the informer delivers them. The API server is
in memory, the clock is virtual, forks are real.
"""

import asyncio
import asyncio.events
import gc
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from cluster.informer import EventKind, WatchEvent
from policies import vocabulary
from scheduler import fork
from scheduler.fork import ForkPolicy
from scheduler.model.node import Node
from scheduler.model.policy import GpuModel, TopologyLevel
from scheduler.tenancy.preemption.pdb import DisruptionBudget
from tests.bench import scheduler_cases
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables

PODS_PER_NODE: Final = 10
BACKLOG: Final = 5000  # pending units of distinct shapes
TENANTS: Final = 2000
BUDGETS: Final = 1000
GANG: Final = 2000
ARRIVALS: Final = 100
IDLE_AFTER: Final = 30.0  # virtual seconds


@dataclass(frozen=True, slots=True)
class Measured:
    situation: str
    nodes: int
    longest: float
    """CPU seconds of the longest step."""
    step: str
    """Its callback."""
    total: float
    """CPU seconds of this process."""
    forks: float
    """CPU seconds of its forks."""
    bound: int


class Steps:
    """CPU time of each callback of the event loop, while `measuring`."""

    def __init__(self) -> None:
        self.measuring = False
        self.longest = 0.0
        self.step = ""

    @contextmanager
    def hooked(self) -> Iterator[None]:
        handle: Any = asyncio.events.Handle
        run = handle._run

        def timed(callback: Any) -> None:
            began = time.thread_time()
            run(callback)
            took = time.thread_time() - began
            if self.measuring and took > self.longest:
                self.longest, self.step = took, str(callback)[:160]

        handle._run = timed
        try:
            yield
        finally:
            handle._run = run


class Cluster:
    """`per_node` pods of three CPUs run on each node of 32, of another scheduler or of ours."""

    def __init__(
        self,
        nodes: int,
        policy: ForkPolicy | None = ForkPolicy(fork.run),  # noqa: B008 (frozen)
    ) -> None:
        self.bench = Bench(fork=policy)
        self.raw = list(scheduler_cases.nodes(nodes, rack=50))
        self.names = [raw["metadata"]["name"] for raw in self.raw]
        for number, raw in enumerate(self.raw):
            raw["metadata"] |= {"uid": f"node-{number}", "resourceVersion": "1"}
            raw["metadata"]["labels"][vocabulary.ZONE_LABEL] = f"z{number % 3}"
            self.deliver(Node.read(raw), EventKind.ADDED)

    def deliver(self, node: Node, kind: EventKind) -> None:
        event: WatchEvent[Node | None] = WatchEvent(kind, ("", node.name), node, None)
        self.bench.scheduler.on_node(event)

    def fill(self, per_node: int = PODS_PER_NODE, **more: Any) -> None:
        for number, node in enumerate(self.names * per_node):
            labels = {"app": f"app-{number % BUDGETS}"}
            tenant = more.get("tenants")
            if tenant:
                labels[vocabulary.TENANT_LABEL] = f"t{number % tenant}"
            extra = {key: value for key, value in more.items() if key != "tenants"}
            self.bench.pod(f"run-{number}", node=node, cpu="3", owner="job", labels=labels, **extra)

    async def work(self, seconds: float = IDLE_AFTER) -> None:
        """Let the scheduler work until it has nothing to do for a while."""
        bench, until = self.bench, self.bench.now + seconds
        while True:
            await bench.scheduler.drain()
            if bench._busy():
                await asyncio.sleep(0.001)
                continue
            due = bench.scheduler._next_at()
            if due is None or due > until:
                return
            bench.now = max(bench.now + 0.001, due)

    def bound(self) -> int:
        return sum(
            bool(pod["spec"].get("nodeName"))
            for name, pod in self.bench.api.pods.items()
            if not name.startswith("run-")
        )


Change = Callable[[Cluster], Awaitable[None]]
Situation = Callable[[Cluster], Change]
SITUATIONS: dict[str, Situation] = {}


def situation(name: str) -> Callable[[Situation], Situation]:
    def add(prepare: Situation) -> Situation:
        SITUATIONS[name] = prepare
        return prepare

    return add


def _backlog(cluster: Cluster, count: int = BACKLOG, **more: Any) -> None:
    """Pods of distinct sizes, none of which fits beside the running ones."""
    for number in range(count):
        cluster.bench.pod(f"wait-{number}", cpu=f"{3000 + number}m", **more)


@situation("victim search under 1,000 budgets")
def _(cluster: Cluster) -> Change:
    cluster.fill()
    for number in range(BUDGETS):
        budget = {
            "metadata": {"namespace": "ns", "name": f"b{number}"},
            "spec": {"selector": {"matchLabels": {"app": f"app-{number}"}}},
            "status": {"disruptionsAllowed": 1},
        }
        cluster.bench.scheduler.budgets.put(DisruptionBudget.read(budget))

    async def change(cluster: Cluster) -> None:
        for number in range(200):
            cluster.bench.pod(f"high-{number}", gang=("high", 200), cpu="16", priority=100)
            await asyncio.sleep(0)

    return change


@situation("start estimates for 32 gangs")
def _(cluster: Cluster) -> Change:
    note = {vocabulary.EXPECTED_DURATION_ANNOTATION: "2h"}
    cluster.fill(annotations=note, status={"phase": "Running", "startTime": "1970-01-01T00:00:00Z"})

    async def change(cluster: Cluster) -> None:
        for gang in range(32):
            for number in range(16):
                cluster.bench.pod(
                    f"late-{gang}-{number}", gang=(f"late-{gang}", 16), cpu="16", annotations=note
                )
                await asyncio.sleep(0)

    return change


@situation("policy change, 5,000 sizes wait")
def _(cluster: Cluster) -> Change:
    cluster.fill()
    _backlog(cluster)

    async def change(cluster: Cluster) -> None:
        levels = TopologyLevel("rack", (vocabulary.RACK_LABEL,)), TopologyLevel("zone", ("zone",))
        models = {"NVIDIA-H100": GpuModel("premium", 80 * 2**30, high_end=True)}
        changed = tables(a={"max": {"cpu": "100"}})
        cluster.bench.scheduler.adopt(replace(changed, levels=levels, models=models))

    return change


@situation("1,000 nodes change, 5,000 sizes wait")
def _(cluster: Cluster) -> Change:
    cluster.fill()
    _backlog(cluster)

    async def change(cluster: Cluster) -> None:
        for raw in cluster.raw[:1000]:
            labels = {**raw["metadata"]["labels"], "changed": "yes"}
            node = Node.read({**raw, "metadata": {**raw["metadata"], "labels": labels}})
            cluster.deliver(node, EventKind.MODIFIED)
            await asyncio.sleep(0)

    return change


@situation("1,000 pods end, 5,000 sizes wait")
def _(cluster: Cluster) -> Change:
    cluster.fill()
    _backlog(cluster)

    async def change(cluster: Cluster) -> None:
        for number in range(1000):
            cluster.bench.delete(f"run-{number}")
            await asyncio.sleep(0)

    return change


@situation("one pod each of 2,000 tenants")
def _(cluster: Cluster) -> Change:
    cluster.fill(8)

    async def change(cluster: Cluster) -> None:
        for number in range(TENANTS):
            labels = {vocabulary.TENANT_LABEL: f"t{number}"}
            cluster.bench.pod(f"new-{number}", cpu="1", labels=labels)
            await asyncio.sleep(0)

    return change


@situation("a quota is free again, 5,000 units over quota")
def _(cluster: Cluster) -> Change:
    quotas = {f"t{number}": {"max": {"cpu": "3"}} for number in range(50)}
    cluster.bench.scheduler.adopt(tables(**quotas))
    cluster.fill(1)
    for number in range(50):
        labels = {vocabulary.TENANT_LABEL: f"t{number}"}
        cluster.bench.pod(f"run-t{number}", node=cluster.names[number], cpu="3", labels=labels)
    for number in range(BACKLOG):
        labels = {vocabulary.TENANT_LABEL: f"t{number % 50}"}
        cluster.bench.pod(f"over-{number}", cpu="3", labels=labels)

    async def change(cluster: Cluster) -> None:
        for number in range(50):
            cluster.bench.delete(f"run-t{number}")
            await asyncio.sleep(0)

    return change


@situation("a gang of 2,000")
def _(cluster: Cluster) -> Change:
    cluster.fill(8)

    async def change(cluster: Cluster) -> None:
        for number in range(GANG):
            cluster.bench.pod(f"gang-{number}", gang=("gang", GANG), cpu="2")
            await asyncio.sleep(0)

    return change


def _arrivals(name: str, kind: Callable[[int, list[str]], dict[str, Any]]) -> None:
    @situation(f"arrivals beside 5,000 {name}")
    def _(cluster: Cluster) -> Change:
        cluster.fill()
        for number in range(BACKLOG):
            cluster.bench.pod(f"wait-{number}", **kind(number, cluster.names))

        async def change(cluster: Cluster) -> None:
            for number in range(ARRIVALS):
                cluster.bench.now += 0.05
                if number % 10 == 0:
                    cluster.bench.delete(f"run-{number}")
                cluster.bench.pod(f"new-{number}", cpu="100m")
                await cluster.bench.scheduler.drain()

        return change


def _apart(number: int) -> dict[str, Any]:
    selector = {"matchLabels": {"own": f"w{number}"}}
    term = {"labelSelector": selector, "topologyKey": vocabulary.HOSTNAME_LABEL}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_arrivals("distinct sizes", lambda number, names: {"cpu": f"{3000 + number}m"})
_arrivals(
    "anti-affinity selectors",
    lambda number, names: {
        "cpu": "4",
        "labels": {"own": f"w{number}"},
        "affinity": _apart(number),
    },
)
_arrivals(
    "pods pinned to hosts",
    lambda number, names: {
        "cpu": "4",
        "nodeSelector": {vocabulary.HOSTNAME_LABEL: names[number % len(names)]},
    },
)


def measure(name: str, nodes: int) -> dict[str, Any]:
    return asdict(asyncio.run(_measure(name, nodes)))


async def _measure(name: str, nodes: int) -> Measured:
    steps = Steps()
    gc.disable()
    cluster = Cluster(nodes)
    change = SITUATIONS[name](cluster)
    await cluster.work()
    gc.freeze()
    forks = _children()
    with steps.hooked():
        await asyncio.sleep(0)
        steps.measuring = True
        began = time.process_time()
        await change(cluster)
        await cluster.work()
        total = time.process_time() - began
        await asyncio.sleep(0)  # the step that ends here counts
        steps.measuring = False
    return Measured(
        situation=name,
        nodes=nodes,
        longest=steps.longest,
        step=steps.step,
        total=total,
        forks=_children() - forks,
        bound=cluster.bound(),
    )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
