"""The search respects disruption budgets before the API server has to refuse."""

import asyncio
from collections import deque
from typing import Any

import pytest

from scheduler.tenancy.preemption.pdb import DisruptionBudget, DisruptionBudgets
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_pod
from tests.unit.scheduler.tenancy.builders import tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    BROKEN,
    one_node,
    remove_evicted,
)

pytestmark = pytest.mark.timeout(30)


def budget(name: str, allowed: int, **more: Any) -> DisruptionBudget:
    return DisruptionBudget.read(
        {
            "metadata": {"name": name, "namespace": "ns", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
            **more,
        }
    )


async def story(bench: Bench, *budgets: DisruptionBudget, members: int) -> None:
    """Three pods of two GPUs on three nodes, all under the label of the budget."""
    await one_node(bench)
    for node in ("n", "o", "p"):
        if node != "n":
            bench.node(node, gpus=2)
        tenant_pod(bench, "a", f"on-{node}", node=node, gpus=2, labels={"app": "x"})
    for one in budgets:
        bench.scheduler.budgets.put(one)
    for number in range(members):
        tenant_pod(bench, "a", f"new{number}", gpus=2, priority=10, gang=("new", members))
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


@pytest.mark.parametrize(
    ("budgets", "members", "evicted"),
    [
        pytest.param([], 2, 2, id="no budget"),
        pytest.param([budget("one", 2)], 2, 2, id="as many as the budget allows"),
        pytest.param([budget("one", 1)], 2, 0, id="more than are allowed: no pod is evicted"),
        pytest.param([budget("one", 1)], 1, 1, id="one of many"),
        pytest.param([budget("one", 0)], 1, 0, id="none is allowed"),
        pytest.param([budget("one", 3), budget("two", 3)], 1, 0, id="two budgets: never"),
        pytest.param(
            [budget("one", 3, spec={"selector": {"matchLabels": {"app": "y"}}})],
            2,
            2,
            id="a budget of others",
        ),
        pytest.param(
            [budget("one", 3, metadata={"name": "one", "namespace": "ns", "generation": 2})],
            1,
            0,
            id="a budget whose status is outdated",
        ),
    ],
)
def test_stories(budgets: list[DisruptionBudget], members: int, evicted: int) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench, *budgets, members=members)
        return bench

    bench = asyncio.run(run())
    placed = [name for name, node in bench.api.nodes().items() if node and "new" in name]
    assert (len(bench.api.evicted), len(placed)) == (evicted, evicted)


def test_a_pod_without_a_budget_is_evicted_instead() -> None:
    """The cheapest two share a budget of one; the third is evicted with one of them."""

    async def run() -> Bench:
        bench = Bench()
        await one_node(bench)
        for number, node in enumerate(("n", "o", "p")):
            if node != "n":
                bench.node(node, gpus=2)
            labels = {"app": "x"} if number < 2 else {}
            tenant_pod(bench, "a", f"on-{node}", node=node, gpus=2, labels=labels, priority=number)
        bench.scheduler.budgets.put(budget("one", 1))
        for number in range(2):
            tenant_pod(bench, "a", f"new{number}", gpus=2, priority=10, gang=("new", 2))
        await bench.settle()
        return bench

    assert sorted(asyncio.run(run()).api.evicted) == ["on-n", "on-p"]


def test_a_successor_reserves_the_nominated_capacity() -> None:
    async def run() -> tuple[list[Any], dict[str, str], int]:
        bench = Bench()
        await one_node(bench)
        tenant_pod(bench, "a", "low", node="n", gpus=2)
        tenant_pod(bench, "a", "new", gpus=2, priority=10)
        await bench.settle()
        statuses = [body["status"] for name, body in bench.api.patches if name == "new"]
        successor = Bench(bench.api)
        successor.now = bench.now
        successor.show_all()
        tenant_pod(successor, "b", "competitor", gpus=2, priority=50)
        await one_node(successor)
        successor.show_all()
        await successor.settle(1.0)
        remove_evicted(successor)
        await successor.settle(1.0)
        return statuses, successor.api.nodes(), len(successor.scheduler.cache.reserved)

    statuses, nodes, held = asyncio.run(run())
    assert statuses == [{"nominatedNodeName": "n"}]
    assert (nodes, held) == ({"new": "n", "competitor": ""}, 0)


def test_a_failed_preemption_clears_its_nominations() -> None:
    async def run() -> list[Any]:
        bench = Bench()
        await one_node(bench)
        tenant_pod(bench, "a", "stuck", node="n", gpus=2)
        tenant_pod(bench, "a", "new", gpus=2, priority=10)
        await bench.settle()
        await bench.settle(200.0)
        return [body["status"] for name, body in bench.api.patches if name == "new"]

    assert asyncio.run(run()) == [{"nominatedNodeName": "n"}, {"nominatedNodeName": None}]


def test_a_victim_whose_eviction_is_in_progress_counts_against_its_budget() -> None:
    """The status of the budget does not show the first victim yet."""

    async def run() -> int:
        bench = Bench()
        await one_node(bench)
        bench.node("o", gpus=2)
        bench.scheduler.budgets.put(budget("one", 1))
        for node in ("n", "o"):
            bench.api.eviction_faults[f"on-{node}"] = deque([BROKEN] * 1000)
            tenant_pod(bench, "a", f"on-{node}", node=node, gpus=2, labels={"app": "x"})
        for name in ("first", "second"):
            tenant_pod(bench, "a", name, gpus=2, priority=10)
            await bench.scheduler.drain()
        return len(bench.scheduler.tenancy.preemption)

    assert asyncio.run(run()) == 1


def test_a_budget_is_found_among_thousands_by_its_labels() -> None:
    """A changed selector selects other pods at once, and a deleted budget none."""
    budgets = DisruptionBudgets()
    for number in range(3000):
        selector = {"selector": {"matchLabels": {"app": f"app-{number}"}}}
        budgets.put(budget(f"b-{number}", 1, spec=selector))
    budgets.put(budget("all", 1, spec={"selector": {}}))
    pod = a_pod("p", labels={"app": "app-7", "tier": "web"})
    names = [sorted(found.key[1] for found in budgets.of(pod))]
    budgets.put(budget("b-7", 1, spec={"selector": {"matchLabels": {"app": "other"}}}))
    names.append(sorted(found.key[1] for found in budgets.of(pod)))
    budgets.put(budget("b-8", 1, spec={"selector": {"matchLabels": {"tier": "web"}}}))
    names.append(sorted(found.key[1] for found in budgets.of(pod)))
    budgets.drop(budget("all", 1, spec={"selector": {}}))
    names.append(sorted(found.key[1] for found in budgets.of(pod)))
    assert names == [["all", "b-7"], ["all"], ["all", "b-8"], ["b-8"]]
