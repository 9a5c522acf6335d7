"""Shares advance in the whole cycle: from the first placement on, and by dominant resource."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables, tenant_pod

pytestmark = pytest.mark.timeout(30)


def four_pods(bench: Bench, tenant: str, **requests: Any) -> None:
    for i in range(4):
        created = f"2026-01-01T00:00:0{i}Z"
        tenant_pod(bench, tenant, f"{tenant}{i}", created=created, **requests)


async def placed_by_weight(*, busy: bool) -> Counter[str]:
    """`a` has three times the weight of `b`; there is capacity for four of their eight pods."""
    bench = Bench()
    bench.scheduler.adopt(tables({"tenants": [{"name": "a", "weight": 3}, {"name": "b"}]}))
    if busy:
        bench.node("plain", cpu="4")
        four_pods(bench, "c", cpu="1", gpus=0)
        await bench.settle()
    bench.node("gpus", cpu="0", gpus=4)
    for tenant in ("a", "b"):
        four_pods(bench, tenant)
    await bench.settle()
    return Counter(name[0] for name, node in bench.api.nodes().items() if node == "gpus")


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(False, id="no usage before"),
        pytest.param(True, id="usage of CPUs, and none of GPUs"),
    ],
)
def test_the_first_tenant_served_does_not_stay_first(*, busy: bool) -> None:
    assert asyncio.run(placed_by_weight(busy=busy)) == {"a": 3, "b": 1}


@pytest.mark.parametrize(
    ("large", "small"),
    [
        pytest.param({"cpu": "4", "gpus": 0}, {"cpu": "500m", "gpus": 0}, id="CPUs"),
        pytest.param({"memory": "8Gi", "gpus": 0}, {"memory": "1Gi", "gpus": 0}, id="memory"),
        pytest.param({"gpus": 4}, {"gpus": 1}, id="GPUs"),
    ],
)
def test_many_small_pods_are_a_smaller_share_than_one_large_pod(
    large: dict[str, Any], small: dict[str, Any]
) -> None:
    async def run() -> str:
        bench = Bench()
        bench.node("n", cpu="8", memory="16Gi", gpus=8)
        tenant_pod(bench, "a", "large", node="n", **large)
        for i in range(3):
            tenant_pod(bench, "b", f"small{i}", node="n", **small)
        await bench.settle()
        for tenant in ("a", "b"):
            tenant_pod(bench, tenant, f"new-{tenant}", cpu="0", gpus=0)
        order = []
        bind = bench.api.bind

        async def bound(namespace: str, pod: str, node: str, **more: Any) -> None:
            order.append(pod)
            await bind(namespace, pod, node, **more)

        bench.api.bind = bound  # type: ignore[method-assign]  # records the order
        await bench.settle(10.0)
        return " ".join(order)

    assert asyncio.run(run()) == "new-b new-a"
