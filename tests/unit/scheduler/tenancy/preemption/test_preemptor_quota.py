"""
A preemptor's quota stays reserved like its capacity, until it is placed or given up.

On one node a victim is evicted for a unit of the same tenant; the other node has free capacity for
further pods.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import one_node, terminate_victims

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


async def victim_is_evicted(bench: Bench, limit: int = 6) -> None:
    await one_node(bench, tables(a={"max": {GPU: limit}}), gpus=3)
    bench.node("o", gpus=4)
    tenant_pod(bench, "a", "low", node="n")
    tenant_pod(bench, "a", "same", node="o", gpus=2, priority=5)
    tenant_pod(bench, "a", "new", gpus=3, priority=5)
    await bench.settle()
    assert bench.api.evicted == ["low"]


async def another_pod(bench: Bench) -> None:
    await victim_is_evicted(bench)
    tenant_pod(bench, "a", "other", gpus=2)
    await bench.settle()


async def another_pod_and_victims_gone(bench: Bench) -> None:
    await another_pod(bench)
    await terminate_victims(bench)


async def the_preemptor_is_deleted(bench: Bench) -> None:
    await another_pod(bench)
    bench.delete("new")
    await bench.settle(1.0)
    await bench.settle(1.0)


async def quota_for_both(bench: Bench) -> None:
    await victim_is_evicted(bench, limit=7)
    tenant_pod(bench, "a", "other", gpus=2)
    await bench.settle()


async def a_pod_of_another_tenant(bench: Bench) -> None:
    await victim_is_evicted(bench)
    tenant_pod(bench, "b", "other", gpus=2)
    await bench.settle()


async def a_gang_with_a_minimum_of_one(bench: Bench) -> None:
    await victim_is_evicted(bench)
    for number in range(2):
        tenant_pod(bench, "a", f"other{number}", gang=("other", 1))
    await bench.settle()


@pytest.mark.parametrize(
    ("story", "placed"),
    [
        pytest.param(another_pod, "low same", id="a pod that would use the reserved quota waits"),
        pytest.param(another_pod_and_victims_gone, "new same", id="the preemptor is placed"),
        pytest.param(the_preemptor_is_deleted, "low other same", id="given up: the quota is free"),
        pytest.param(quota_for_both, "low other same", id="quota for both"),
        pytest.param(a_pod_of_another_tenant, "low other same", id="another tenant"),
        pytest.param(
            a_gang_with_a_minimum_of_one,
            "low other0 same",
            id="as many members as the quota allows",
        ),
    ],
)
def test_reserved_quota(story: Story, placed: str) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    bench = asyncio.run(run())
    has = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    assert (has, len(bench.scheduler.cache_mismatches())) == (placed, 0)
