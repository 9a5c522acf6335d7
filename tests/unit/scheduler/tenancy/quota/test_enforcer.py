"""Quotas and fair share in the whole cycle, against an API server in memory."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


def play(story: Story) -> Bench:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    return asyncio.run(run())


async def a_limit_is_reached(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 2}}))
    bench.node("n", gpus=8)
    for i in range(3):
        tenant_pod(bench, "a", f"a{i}", created=f"2026-01-01T00:00:0{i}Z")
    tenant_pod(bench, "b", "b")
    await bench.settle()


async def usage_falls(bench: Bench) -> None:
    await a_limit_is_reached(bench)
    bench.delete("a0")
    await bench.settle(1.0)


async def a_gang_counts_as_a_whole(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 3}}))
    bench.node("n", gpus=8)
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


async def members_above_the_minimum_follow_within_the_quota(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 3}}))
    bench.node("n", gpus=8)
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 2), created=f"2026-01-01T00:00:0{i}Z")
    await bench.settle()


async def a_limit_of_a_group(bench: Bench) -> None:
    tree = {
        "tenants": [
            {"name": "all", "quota": {"max": {"cpu": "2"}}},
            {"name": "a", "parent": "all"},
            {"name": "b", "parent": "all"},
        ]
    }
    bench.scheduler.adopt(tables(tree))
    bench.node("n", cpu="8")
    tenant_pod(bench, "a", "a", cpu="1", gpus=0)
    await bench.settle()
    tenant_pod(bench, "b", "b", cpu="2", gpus=0)
    await bench.settle()


async def the_limit_is_raised(bench: Bench) -> None:
    await a_limit_is_reached(bench)
    bench.scheduler.adopt(tables(a={"max": {GPU: 8}}))
    await bench.settle(1.0)


async def a_quota_of_a_gpu_kind(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {"gpu-model/H100": 1}}))
    bench.node("fast", gpus=1, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("fast2", gpus=1, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("slow", gpus=4, labels={"gpu.kubenexus.io/model": "L4"})
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


async def fair_share(bench: Bench) -> None:
    """Capacity for three more; a has two pods already, and its others were created first."""
    bench.scheduler.adopt(tables())
    bench.node("n", gpus=5)
    tenant_pod(bench, "a", "a0", node="n")
    tenant_pod(bench, "a", "a1", node="n")
    for i in range(3):
        tenant_pod(bench, "a", f"a{i + 2}", created="2026-01-01T00:00:00Z")
        tenant_pod(bench, "b", f"b{i}", created="2026-01-01T01:00:00Z")
    await bench.settle()


OVER_QUOTA = "tenant a requests nvidia.com/gpu 1: quota of tenant a exceeded (used 2, max 2)"


@pytest.mark.parametrize(
    ("story", "placed", "held"),
    [
        pytest.param(a_limit_is_reached, "a0 a1 b", {"a2": OVER_QUOTA}, id="a limit is reached"),
        pytest.param(usage_falls, "a1 a2 b", {"a2": OVER_QUOTA}, id="usage falls"),
        pytest.param(
            a_gang_counts_as_a_whole,
            "",
            {
                f"g{i}": "tenant a requests nvidia.com/gpu 4: quota of tenant a exceeded"
                " (used 0, max 3)"
                for i in range(4)
            },
            id="a gang counts as a whole",
        ),
        pytest.param(
            members_above_the_minimum_follow_within_the_quota,
            "g0 g1 g2",
            {
                "g3": "tenant a requests nvidia.com/gpu 1: quota of tenant a exceeded (used 3, max 3)"
            },
            id="members above the minimum follow within the quota",
        ),
        pytest.param(
            a_limit_of_a_group,
            "a",
            {
                "b": "tenant b requests cpu 2: quota of group all exceeded (used 1, max 2);"
                " tenants above their guarantee: a +1"
            },
            id="a group's limit, in CPUs",
        ),
        pytest.param(
            the_limit_is_raised, "a0 a1 a2 b", {"a2": OVER_QUOTA}, id="the limit is raised"
        ),
        pytest.param(a_quota_of_a_gpu_kind, "g0 g1 g2 g3", {}, id="GPUs of another kind"),
        pytest.param(fair_share, "a0 a1 a2 b0 b1", {}, id="the tenant with less usage goes first"),
    ],
)
def test_stories(story: Story, placed: str, held: dict[str, str]) -> None:
    bench = play(story)
    found = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    assert (found, dict(bench.events("QuotaExceeded"))) == (placed, held)


def test_the_condition_asks_for_no_other_node() -> None:
    async def run() -> list[tuple[str, str, str]]:
        bench = Bench()
        await a_limit_is_reached(bench)
        return await bench.write_conditions()

    assert asyncio.run(run()) == [("a2", "QuotaExceeded", OVER_QUOTA)]


def test_gangs_avoid_gpu_kinds_without_remaining_quota() -> None:
    nodes = play(a_quota_of_a_gpu_kind).api.nodes()
    assert set(nodes.values()) == {"slow"}


async def a_plan_that_exceeds_a_quota_of_a_gpu_kind(bench: Bench) -> None:
    """One H100 is within the quota, and the first plan takes four: only the plan shows it."""
    bench.scheduler.adopt(tables(a={"max": {"gpu-model/H100": 1}}))
    bench.node("fast", gpus=4, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("slow", gpus=2, labels={"gpu.kubenexus.io/model": "L4"})
    bench.node("slow2", gpus=2, labels={"gpu.kubenexus.io/model": "L4"})
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


def test_a_plan_that_exceeds_a_quota_of_a_gpu_kind_is_made_again_without_that_kind() -> None:
    nodes = play(a_plan_that_exceeds_a_quota_of_a_gpu_kind).api.nodes()
    assert sorted(nodes.values()) == ["slow", "slow", "slow2", "slow2"]
