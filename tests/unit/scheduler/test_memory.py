"""
What the scheduler keeps is bounded by what exists: after objects of every kind have come and gone,
many times as many as exist at once, each container holds what it held before.
"""

import asyncio
import gc
import logging
import re
import tracemalloc
from collections import Counter
from typing import Any

import pytest

from tests.pages import DOCS
from tests.unit.scheduler import containers
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables

pytestmark = pytest.mark.timeout(120)

ROUNDS = 12
SHARED = {
    "scheduler.cache.snapshot.Snapshot.host_usage": "NumaTopology.host_usage",
    "scheduler.explain.inspector.Inspector._pods": "Scheduler._pods",
    "scheduler.plan.memo.StaticFilters.rejections": "a value of Memo.static_filters",
    "scheduler.plugins.dra.allocator.DeviceSource.classes": "DeviceStore.classes",
    "scheduler.plugins.gpu_classes.GpuClasses._classes": "PlacementTables.models",
    "scheduler.plugins.numa.gpu_islands.IslandLevel.group": "GPUs of one host",
    "scheduler.plugins.numa.gpu_islands.IslandLevel.size": "GPUs of one host",
    "scheduler.plugins.numa.numa_table.NumaTable._hosts": "NumaTopology.host_usage",
    "scheduler.report.steps.StepClock.counts": "buckets of a histogram",
    "scheduler.tenancy.backfill.quota_forecast.QuotaForecast._reservations": "BackfillController",
    "scheduler.tenancy.fairshare.decay.ShareDecay._totals": "resources of nodes",
}
"""Containers that belong to another object, or are part of a value."""
HOST = "kubernetes.io/hostname"
HALF_LIFE = {"halfLife": "10s"}  # shares of tenants that are gone decay within a round


def affinity(kind: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(app: str) -> list[dict[str, Any]]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


def kinds(number: int) -> dict[str, dict[str, Any]]:
    """Pods that differ in all that the scheduler tells pods apart by; every value is used once."""
    app = f"app-{number}"
    port = {"containerPort": 80, "hostPort": 1024 + number % 60_000}
    return {
        "plain": {"cpu": f"{number % 900 + 1}m"},
        "apart": {"cpu": "10m", "affinity": affinity("podAntiAffinity", app)},
        "near": {"cpu": "10m", "affinity": affinity("podAffinity", app)},
        "spread": {"cpu": "10m", "topologySpreadConstraints": spread(app)},
        "port": {"containers": [{"name": "c", "ports": [port]}]},
        "pinned": {"cpu": "10m", "nodeSelector": {f"key-{number}": "x"}},
        "large": {"cpu": f"{64 + number}"},
        "device": {"containers": [{"resources": {"requests": {f"example.com/r{number}": "1"}}}]},
        "tolerant": {
            "cpu": "10m",
            "tolerations": [{"key": f"mark-{number}", "operator": "Exists"}],
        },
        "urgent": {"cpu": "3", "priority": 1000 + number},
        "gpu": {"gpus": 2, "numa": "restricted"},
    }


async def a_round(bench: Bench, round_number: int, *, of_each: int = 10) -> None:
    """Policies, nodes, pods and gangs under new names; then all of them are deleted."""
    first = 100 * round_number
    tenants = {f"t{first + i}": {"max": {"cpu": "2"}, "guaranteed": {"cpu": "1"}} for i in range(5)}
    bench.scheduler.adopt(tables(HALF_LIFE, **tenants))
    nodes = [f"n{first + i}" for i in range(4)]
    for i, name in enumerate(nodes):
        taint = {"key": "mark", "value": str(first + i), "effect": "PreferNoSchedule"}
        labels = {HOST: name, f"label-{first + i}": "x", "zone": f"z{first + i}"}
        bench.node(name, cpu="8", gpus=4, zones=2, labels=labels, taints=[taint])
    names: list[str] = []
    for i in range(of_each):
        number = first + i
        tenant = f"t{first + i % 6}"  # the last has no quota
        for kind, spec in kinds(number).items():
            labels = {"app": f"app-{number}", "tenant.kubenexus.io/name": tenant}
            names.append(f"{kind}-{number}")
            bench.pod(names[-1], labels=labels, owner=f"job-{number}", **spec)
        for member in range(3):
            names.append(f"gang-{number}-{member}")
            labels = {"tenant.kubenexus.io/name": tenant}
            size = 3 + i % 2  # half of the gangs lack a member
            bench.pod(names[-1], labels=labels, gang=(f"gang-{number}", size), cpu="1")
    await bench.settle()
    for name in list(bench.api.pods):
        bench.show(name)
    await bench.settle(2.0)
    bench.drop_node(nodes[0])
    bench.node(nodes[1], cpu="8", labels={HOST: nodes[1]})
    await bench.settle(400.0)
    for name in names:
        if name in bench.api.pods:
            bench.delete(name)
    await bench.settle(1.0)
    for name in nodes[1:]:
        bench.drop_node(name)
    bench.scheduler.adopt(tables(HALF_LIFE))
    for _ in range(4):
        await bench.settle(400.0)


def test_containers_hold_what_they_held_before_when_everything_has_come_and_gone() -> None:
    async def run() -> tuple[Counter[str], Counter[str]]:
        bench = Bench()
        for number in range(2):
            await a_round(bench, number)
        begin = containers.sizes(bench.scheduler)
        for number in range(2, 2 + ROUNDS):
            await a_round(bench, number)
        return begin, containers.sizes(bench.scheduler)

    begin, end = asyncio.run(run())
    most = {name: max(begin[name], containers.CACHES.get(name, 0)) for name in end}
    assert {name: (most[name], size) for name, size in end.items() if size > most[name]} == {}


def test_the_heap_ends_where_it_began() -> None:
    """The names repeat every other round, so that caches have nothing new to keep."""

    async def run() -> tuple[int, int, int]:
        bench, heap, peak = Bench(), [0], 0
        tracemalloc.start()
        for number in range(4 + ROUNDS):
            tracemalloc.reset_peak()
            await a_round(bench, number % 2, of_each=3)
            bench.reports.clear()
            bench.api.patches.clear()
            gc.collect()
            kept, peak = tracemalloc.get_traced_memory()
            heap.append(kept)
        return heap[4], heap[-1], peak

    logging.disable()  # pytest keeps every record of a test
    try:
        begin, end, peak = asyncio.run(run())
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert end - begin < (peak - end) / 5


def test_every_container_that_a_scheduler_reaches_is_on_the_page() -> None:
    """Those that are created after the start too, which the source alone does not show."""

    async def run() -> set[str]:
        bench = Bench()
        await a_round(bench, 0)
        return set(containers.sizes(bench.scheduler))

    page = (DOCS / "memory.md").read_text()
    rows = re.findall(r"^\| `(scheduler[\w.]+)` \| (`.+?`) \|", page, re.M)
    listed = {f"{name}.{own}" for name, all_own in rows for own in re.findall(r"`(\w+)`", all_own)}
    reached = {name for name in asyncio.run(run()) if name.startswith("scheduler.")}
    assert reached - listed - SHARED.keys() == set()
