"""Turns between tenants from the first moment on: before anybody uses anything, or of something new."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from policies.documents.tenancy import Sharing
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench

pytestmark = pytest.mark.timeout(30)


def pods(bench: Bench, tenant: str, **asked: Any) -> None:
    for i in range(4):
        labels = {"tenant.kubenexus.io/name": tenant}
        bench.pod(f"{tenant}{i}", labels=labels, created=f"2026-01-01T00:00:0{i}Z", **asked)


async def story(*, busy: bool) -> Counter[str]:
    """`a` has three times the weight of `b`; four of their eight pods find room."""
    bench = Bench()
    sharing = Sharing.model_validate({"tenants": [{"name": "a", "weight": 3}, {"name": "b"}]})
    bench.scheduler.adopt(PlacementTables(policy=PolicyTables({}, {}, {}, (), sharing=sharing)))
    if busy:
        bench.node("plain", cpu="4")
        pods(bench, "c", cpu="1")
        await bench.settle()
    bench.node("gpus", cpu="0", gpus=4)
    for tenant in ("a", "b"):
        pods(bench, tenant, cpu="0", gpus=1)
    await bench.settle()
    return Counter(name[0] for name, node in bench.api.nodes().items() if node == "gpus")


@pytest.mark.parametrize(
    "busy",
    [
        pytest.param(False, id="nobody uses anything"),
        pytest.param(True, id="somebody uses CPUs, and nobody a GPU"),
    ],
)
def test_the_first_to_be_served_is_not_served_again_and_again(*, busy: bool) -> None:
    assert asyncio.run(story(busy=busy)) == {"a": 3, "b": 1}
