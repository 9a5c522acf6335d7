"""
The quota of a unit for which others go is kept like its room, until it is placed or given up.

On one node a pod goes for a unit of the same tenant; on the other there is room, and more comes.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import one_node, terminate_victims

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


async def room_is_made(bench: Bench, limit: int = 6) -> None:
    await one_node(bench, tables(a={"max": {GPU: limit}}), gpus=3)
    bench.node("o", gpus=4)
    tenant_pod(bench, "a", "low", node="n")
    tenant_pod(bench, "a", "same", node="o", gpus=2, priority=5)
    tenant_pod(bench, "a", "new", gpus=3, priority=5)
    await bench.settle()
    assert bench.api.evicted == ["low"]


async def another_comes(bench: Bench) -> None:
    await room_is_made(bench)
    tenant_pod(bench, "a", "other", gpus=2)
    await bench.settle()


async def another_comes_and_all_end(bench: Bench) -> None:
    await another_comes(bench)
    await terminate_victims(bench)


async def the_unit_is_taken_back(bench: Bench) -> None:
    await another_comes(bench)
    bench.delete("new")
    await bench.settle(1.0)
    await bench.settle(1.0)


async def the_quota_is_enough(bench: Bench) -> None:
    await room_is_made(bench, limit=7)
    tenant_pod(bench, "a", "other", gpus=2)
    await bench.settle()


async def another_tenant_comes(bench: Bench) -> None:
    await room_is_made(bench)
    tenant_pod(bench, "b", "other", gpus=2)
    await bench.settle()


async def a_gang_comes_that_needs_one(bench: Bench) -> None:
    await room_is_made(bench)
    for number in range(2):
        tenant_pod(bench, "a", f"other{number}", gang=("other", 1))
    await bench.settle()


@pytest.mark.parametrize(
    ("story", "placed"),
    [
        pytest.param(another_comes, "low same", id="who would use it up waits"),
        pytest.param(another_comes_and_all_end, "new same", id="whom it is kept for is placed"),
        pytest.param(the_unit_is_taken_back, "low other same", id="given up: it is open"),
        pytest.param(the_quota_is_enough, "low other same", id="enough for both"),
        pytest.param(another_tenant_comes, "low other same", id="another tenant has its own"),
        pytest.param(a_gang_comes_that_needs_one, "low other0 same", id="as many as are left"),
    ],
)
def test_what_is_kept_of_a_quota(story: Story, placed: str) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    bench = asyncio.run(run())
    has = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    assert (has, len(bench.scheduler.cache_mismatches())) == (placed, 0)
