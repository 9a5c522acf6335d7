"""
`make soak`: hours of churn in virtual time, and what the scheduler keeps and needs meanwhile.

Pods and gangs of changing tenants arrive at about the pace at which they end, on nodes that an
autoscaler marks and replaces, under policies that change every hour. Users delete what waits for
half an hour. At the end of each hour the run samples the heap, the size of every container and the
longest step of the event loop. All three must be flat: the last quarter of the hours is compared
with the first one after the warm-up, in which caches fill up to their limits.
"""

import argparse
import asyncio
import gc
import random
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from policies import vocabulary
from tests.bench import rows
from tests.bench.step_situations import Steps
from tests.unit.scheduler import containers
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables

NAME: Final = "soak"
NODES: Final = 24
CPUS: Final = 16
TICK: Final = 10.0  # seconds between two arrivals
PATIENCE: Final = 1800.0  # seconds after which users delete what waits
HEAP_GROWTH: Final = 1.1
SIZE_GROWTH: Final = 1.25
STEP_GROWTH: Final = 2.0
HALF_LIFE: Final = {"halfLife": "10m"}


@dataclass(frozen=True, slots=True)
class Hour:
    heap: int
    """Bytes that Python objects take."""
    items: int
    """In all containers but caches, which fill up to their limits."""
    longest: float
    """CPU seconds of the longest step."""
    bound: int
    sizes: dict[str, int] = field(default_factory=dict)


class Soak:
    """One run; the seed decides everything but the CPU times."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._bench = Bench()
        self._steps = Steps()
        self._ends: dict[str, float] = {}  # pod -> when it ends
        self._created: dict[str, float] = {}
        self._nodes: list[str] = []
        self._number = 0
        for _ in range(NODES):
            self._add_node()

    async def run(self, hours: int) -> list[Hour]:
        samples = []
        with self._steps.hooked():
            for hour in range(hours):
                self._steps.longest = 0.0
                self._steps.measuring = True
                bound = await self._hour(hour)
                self._steps.measuring = False
                samples.append(self._sample(bound))
                await asyncio.sleep(0)  # sampling is not a step of the scheduler
        return samples

    async def _hour(self, hour: int) -> int:
        quotas = {f"t{hour}-{i}": {"max": {"cpu": "64"}} for i in range(6)}
        self._bench.scheduler.adopt(tables(HALF_LIFE, **quotas))
        bound = 0
        for tick in range(int(3600 / TICK)):
            self._arrive(hour)
            if tick % 30 == 0:
                self._replace_a_node()
            await self._bench.settle(TICK)
            bound += self._note_starts()
            self._end()
            self._bench.reports.clear()
            self._bench.api.patches.clear()
            self._bench.api.evicted.clear()
        return bound

    def _arrive(self, hour: int) -> None:
        self._number += 1
        number, draw = self._number, self._random
        labels = {vocabulary.TENANT_LABEL: f"t{hour}-{draw.randrange(8)}", "app": f"app-{number}"}
        kind = draw.randrange(6)
        if kind == 0:
            size = draw.choice((2, 4, 8))
            for member in range(size):
                self._create(f"g{number}-{member}", labels, gang=(f"g{number}", size), cpu="2")
            return
        self._create(f"p{number}", labels, **self._spec(kind, number))

    def _spec(self, kind: int, number: int) -> dict[str, Any]:
        term = {
            "topologyKey": vocabulary.HOSTNAME_LABEL,
            "labelSelector": {"matchLabels": {"app": f"app-{number}"}},
        }
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        specs: list[dict[str, Any]] = [
            {"cpu": f"{self._random.randrange(200, 4000)}m"},
            {"cpu": "1", "affinity": {"podAntiAffinity": rules}},
            {"cpu": "2", "priority": self._random.randrange(100)},
            {"cpu": "1", "annotations": {vocabulary.EXPECTED_DURATION_ANNOTATION: "5m"}},
            {"cpu": str(CPUS + 1)},
        ]
        return specs[kind - 1]

    def _create(self, name: str, labels: dict[str, str], **spec: Any) -> None:
        self._created[name] = self._bench.now
        self._bench.pod(name, labels=labels, owner="job", **spec)

    def _note_starts(self) -> int:
        started = 0
        for name in list(self._created):
            pod = self._bench.api.pods.get(name)
            if pod is None:
                del self._created[name]
            elif pod["spec"].get("nodeName"):
                del self._created[name]
                self._ends[name] = self._bench.now + self._random.uniform(60, 900)
                self._bench.show(name)
                started += 1
        return started

    def _end(self) -> None:
        now = self._bench.now
        late = [name for name, at in self._created.items() if at + PATIENCE < now]
        over = [name for name, at in self._ends.items() if at <= now]
        for name in (*late, *over):
            self._created.pop(name, None)
            self._ends.pop(name, None)
            if name in self._bench.api.pods:
                self._bench.delete(name)

    def _add_node(self) -> None:
        self._number += 1
        name = f"node-{self._number}"
        labels = {vocabulary.HOSTNAME_LABEL: name, "zone": f"z{self._number % 3}"}
        self._nodes.append(name)
        self._bench.node(name, cpu=str(CPUS), labels=labels)

    def _replace_a_node(self) -> None:
        """As an autoscaler does: a mark with the time, then the node and its pods are gone."""
        old = self._nodes.pop(0)
        mark = {
            "key": "ToBeDeletedByClusterAutoscaler",
            "value": str(int(self._bench.now)),
            "effect": "NoSchedule",
        }
        self._bench.node(old, cpu=str(CPUS), taints=[mark])
        for name in [
            name for name, pod in self._bench.api.pods.items() if pod["spec"].get("nodeName") == old
        ]:
            self._created.pop(name, None)
            self._ends.pop(name, None)
            self._bench.delete(name)
        self._bench.drop_node(old)
        self._add_node()

    def _sample(self, bound: int) -> Hour:
        gc.collect()
        sizes: Counter[str] = containers.sizes(self._bench.scheduler)
        return Hour(
            heap=tracemalloc.get_traced_memory()[0],
            items=sum(size for name, size in sizes.items() if name not in containers.CACHES),
            longest=self._steps.longest,
            bound=bound,
            sizes=dict(sizes),
        )


def run(hours: int, seed: int, *, heap: bool = True) -> list[Hour]:
    """Without `heap` it is not sampled, and the run takes a third of the time."""
    if heap:
        tracemalloc.start()
    try:
        return asyncio.run(Soak(seed).run(hours))
    finally:
        tracemalloc.stop()


def report(hours: Sequence[Hour]) -> list[rows.Row]:
    """The last quarter against the first one, after a third of the hours as the warm-up."""
    steady = hours[max(1, len(hours) // 3) :]
    quarter = max(1, len(steady) // 4)
    first, last = steady[:quarter], steady[-quarter:]

    def growth(of: str) -> tuple[float, str]:
        before, after = (median(getattr(h, of) for h in part) for part in (first, last))
        return after / max(before, 1e-9), f"{before:g} to {after:g}"

    heap, heap_spread = growth("heap")
    items, items_spread = growth("items")
    step, step_spread = growth("longest")
    note = f"{len(hours)} virtual hours, {sum(hour.bound for hour in hours)} pods bound"
    return [
        rows.at_most("soak: growth of the heap", heap, HEAP_GROWTH, spread=heap_spread, note=note),
        rows.at_most(
            "soak: growth of containers", items, SIZE_GROWTH, spread=items_spread, note=note
        ),
        rows.at_most(
            "soak: growth of the longest step",
            step,
            STEP_GROWTH,
            spread=f"{step_spread} CPU s",
            note=note,
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description="Hours of churn in virtual time.")
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    began = time.process_time()
    samples = run(chosen.hours, chosen.seed)
    for number, hour in enumerate(samples):
        print(
            f"hour {number:3}: heap {hour.heap / 2**20:6.2f} MiB, {hour.items:7} items,"
            f" longest step {hour.longest * 1000:6.1f} ms, {hour.bound} pods bound"
        )
    print(f"{time.process_time() - began:.0f} s of CPU")
    return rows.publish(NAME, report(samples))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
