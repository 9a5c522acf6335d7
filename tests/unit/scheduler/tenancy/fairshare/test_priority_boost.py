"""What a tier adds to the priority of its pods, among those of one tenant that wait."""

import asyncio

import pytest

from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench

pytestmark = pytest.mark.timeout(30)

# Gold adds 20, silver 10, bronze nothing.
TABLES = PlacementTables.of(
    loader.load_files(loader.LIBRARY, compiler=Compiler(engines.engine())).policies
)


def a_bench(*, boosted: bool = True) -> Bench:
    bench = Bench()
    if boosted:
        bench.scheduler.adopt(TABLES)
    return bench


def comes(bench: Bench, name: str, *, tier: str, priority: int, tenant: str = "t") -> None:
    labels = {"tenant.kubenexus.io/name": tenant, "tenant.kubenexus.io/tier": tier}
    bench.pod(name, labels=labels, priority=priority, owner="job")


async def one_after_the_other(bench: Bench) -> list[str]:
    """The order in which they get the one place there is."""
    await bench.settle()
    bench.node("n", cpu="1")
    order: list[str] = []
    while bench.api.pods:
        await bench.settle(11.0)
        (placed,) = [name for name, node in bench.api.nodes().items() if node]
        order.append(placed)
        bench.delete(placed)
    return order


@pytest.mark.parametrize(
    ("pods", "order"),
    [
        pytest.param(
            {"a": ("bronze", 15), "b": ("silver", 10), "c": ("gold", 5)},
            ["c", "b", "a"],
            id="the sum decides",
        ),
        pytest.param(
            {"a": ("gold", 0), "b": ("bronze", 21)}, ["b", "a"], id="a priority that is higher"
        ),
        pytest.param(
            {"a": ("platinum", 0), "b": ("bronze", 1)}, ["b", "a"], id="a tier that no policy names"
        ),
    ],
)
def test_order_within_a_tenant(pods: dict[str, tuple[str, int]], order: list[str]) -> None:
    async def run() -> list[str]:
        bench = a_bench()
        for name, (tier, priority) in pods.items():
            comes(bench, name, tier=tier, priority=priority)
        return await one_after_the_other(bench)

    assert asyncio.run(run()) == order


def test_without_policies_the_priority_decides() -> None:
    async def run() -> list[str]:
        bench = a_bench(boosted=False)
        comes(bench, "a", tier="gold", priority=0)
        comes(bench, "b", tier="bronze", priority=1)
        return await one_after_the_other(bench)

    assert asyncio.run(run()) == ["b", "a"]


def test_a_boost_does_not_reorder_tenants() -> None:
    """The tenant with less usage comes first; here the names decide."""

    async def run() -> list[str]:
        bench = a_bench()
        comes(bench, "a", tier="bronze", priority=0, tenant="a")
        comes(bench, "b", tier="gold", priority=0, tenant="b")
        return await one_after_the_other(bench)

    assert asyncio.run(run())[0] == "a"


def test_a_boost_evicts_no_pod() -> None:
    async def run() -> list[str]:
        bench = a_bench()
        bench.node("n", cpu="1")
        comes(bench, "low", tier="bronze", priority=0)
        await bench.settle()
        comes(bench, "boosted", tier="gold", priority=0)
        await bench.settle(1.0)
        return bench.api.evicted

    assert asyncio.run(run()) == []
