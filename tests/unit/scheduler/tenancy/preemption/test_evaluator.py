"""What the scheduler reclaims for a guarantee, and on which nodes."""

import asyncio
from typing import Any

import pytest

from scheduler.model.pod import PodKey
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import remove_evicted

pytestmark = pytest.mark.timeout(30)


async def play(guaranteed: dict[str, Any], requests: dict[str, Any]) -> Bench:
    """Two nodes full of b's pods, and one pod of a, which has a guarantee."""
    bench = Bench()
    bench.scheduler.adopt(tables(a={"guaranteed": guaranteed}))
    for name, model in (("fast", "H100"), ("slow", "L4")):
        bench.node(name, cpu="4", gpus=1, labels={"gpu.kubenexus.io/model": model})
        tenant_pod(bench, "b", f"{name}-b", node=name, cpu="4")
    tenant_pod(bench, "a", "mine", **requests)
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()
    return bench


@pytest.mark.parametrize(
    ("guaranteed", "requests", "evicted", "node"),
    [
        pytest.param({"cpu": 4}, {"cpu": "4"}, [], "", id="CPUs guaranteed, GPUs requested"),
        pytest.param(
            {"cpu": 4},
            {"cpu": "4", "gpus": 0},
            ["fast-b"],
            "fast",
            id="CPUs guaranteed and requested",
        ),
        pytest.param(
            {GPU: 1},
            {"cpu": "4"},
            ["fast-b"],
            "fast",
            id="GPUs guaranteed, CPUs are covered with them",
        ),
        pytest.param(
            {"gpu-model/L4": 1}, {}, ["slow-b"], "slow", id="a kind guaranteed, and reclaimed there"
        ),
        pytest.param({"gpu-model/L4": 1}, {"gpus": 2}, [], "", id="more than the kind's guarantee"),
        pytest.param({"gpu-model/A100": 1}, {}, [], "", id="a kind without nodes"),
        pytest.param(
            {GPU: 4, "gpu-model/L4": 1}, {}, ["fast-b"], "fast", id="any kind, of one so many"
        ),
        pytest.param(
            {GPU: 4, "gpu-model/H100": 0},
            {},
            ["slow-b"],
            "slow",
            id="any kind, of one none: taken back elsewhere",
        ),
    ],
)
def test_what_is_taken_back(
    guaranteed: dict[str, Any], requests: dict[str, Any], evicted: list[str], node: str
) -> None:
    bench = asyncio.run(play(guaranteed, requests))
    assert (bench.api.evicted, bench.api.nodes()["mine"]) == (evicted, node)


@pytest.mark.parametrize(
    ("near", "victims"),
    [
        pytest.param("n", "on-n", id="a victim on the same node, though it is more expensive"),
        pytest.param("o", "on-o", id="the cheapest victim, on the same node"),
        pytest.param("r", "on-o", id="no victim on the same node: the cheapest"),
        pytest.param("q", "gang-0 gang-1 gang-2", id="a gang with a member there, and its surplus"),
    ],
)
def test_further_victims_are_searched_on_the_same_nodes_first(near: str, victims: str) -> None:
    async def run() -> str:
        bench = Bench()
        bench.scheduler.adopt(tables())
        for node, priority in (("n", 3), ("o", 0)):
            bench.node(node, gpus=2)
            tenant_pod(bench, "a", f"on-{node}", node=node, gpus=2, priority=priority)
        bench.node("p", gpus=1)
        bench.node("q", gpus=2)
        for number, node in enumerate("qqp"):
            tenant_pod(bench, "a", f"gang-{number}", node=node, gang=("gang", 2), priority=5)
        tenant_pod(bench, "a", "new", gpus=2, priority=10)
        unit = bench.scheduler.queue.unit(PodKey("ns", "new"))
        assert unit is not None
        evaluator = bench.scheduler.tenancy.preemption._evaluator
        plan = evaluator.search_again(unit, frozenset({near}))
        assert plan is not None
        return " ".join(sorted(victim.pod.key.name for victim in plan.victims))

    assert asyncio.run(run()) == victims
