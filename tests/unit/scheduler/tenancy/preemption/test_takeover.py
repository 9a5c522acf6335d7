"""
Preemptions that one scheduler began and its successor completes, which knows nothing but the API.

Every story ends with the evicted pods, the placed pods, wasted evictions, and what is left.
"""

import asyncio
from collections import deque
from typing import Any

import pytest

from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import placed
from tests.unit.scheduler.tenancy.builders import tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    BOTH,
    BROKEN,
    NOTHING,
    Story,
    a_successor,
    one_node,
    outcome,
    remove_evicted,
    terminate_victims,
    two_victims_and_a_gang,
)

pytestmark = pytest.mark.timeout(60)


async def a_successor_before_the_first_eviction(bench: Bench) -> Bench:
    bench.api.eviction_faults["low-n"] = bench.api.eviction_faults["low-o"] = deque([BROKEN] * 2)
    await two_victims_and_a_gang(bench)
    await bench.scheduler.drain()
    while not bench.api.made:
        await asyncio.sleep(0)
    successor = a_successor(bench)
    await successor.settle(1.0)
    await terminate_victims(successor)
    return successor


async def a_successor_after_one_is_gone(bench: Bench) -> Bench:
    bench.api.eviction_faults["low-o"] = deque([BROKEN] * 500)
    await two_victims_and_a_gang(bench)
    await bench.scheduler.drain()
    while "low-n" not in bench.api.evicted:
        await asyncio.sleep(0)
    bench.delete("low-n")
    bench.api.eviction_faults.clear()
    successor = a_successor(bench)
    tenant_pod(successor, "b", "competitor", gpus=2, priority=50)
    await successor.settle(1.0)
    await terminate_victims(successor)
    return successor


async def a_successor_while_one_terminates(bench: Bench) -> Bench:
    """The other one is evicted at once, and not after the first is gone."""
    bench.api.eviction_faults["low-o"] = deque([BROKEN] * 500)
    await two_victims_and_a_gang(bench)
    await bench.scheduler.drain()
    while "low-n" not in bench.api.evicted:
        await asyncio.sleep(0)
    bench.api.eviction_faults.clear()
    successor = a_successor(bench)
    await successor.settle(1.0)
    assert "low-o" in successor.api.evicted
    await terminate_victims(successor)
    return successor


async def a_successor_that_sees_a_member_late(bench: Bench) -> Bench:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    for number in range(2):
        tenant_pod(bench, "a", f"new{number}", priority=10, gang=("new", 2))
    await bench.settle()
    remove_evicted(bench)
    late = bench.api.pods.pop("new1")
    successor = a_successor(bench)
    successor.drop_node("o")
    tenant_pod(successor, "b", "competitor", gpus=2, priority=50)
    await successor.settle(1.0)
    successor.api.pods["new1"] = late
    successor.show_all()
    await successor.settle(10.0)
    return successor


async def a_successor_that_cannot_go_on(bench: Bench) -> Bench:
    await two_victims_and_a_gang(bench, priority=20)
    for name in ("new0", "new1"):
        bench.api.pods[name]["status"] = {"nominatedNodeName": "n"}
    successor = a_successor(bench)
    await successor.settle(1.0)
    return successor


@pytest.mark.parametrize(
    ("story", "evicted", "placed", "wasted"),
    [
        pytest.param(
            a_successor_before_the_first_eviction,
            "low-n low-o",
            BOTH,
            0,
            id="nominated, and no pod evicted",
        ),
        pytest.param(
            a_successor_after_one_is_gone,
            "low-n low-o",
            BOTH,
            0,
            id="one victim gone, one not evicted",
        ),
        pytest.param(
            a_successor_while_one_terminates,
            "low-n low-o",
            BOTH,
            0,
            id="one victim terminates, one not evicted",
        ),
        pytest.param(
            a_successor_that_sees_a_member_late,
            "low",
            BOTH,
            0,
            id="a member seen late: the capacity stays reserved meanwhile",
        ),
        pytest.param(
            a_successor_that_cannot_go_on,
            "",
            "low-n low-o",
            0,
            id="no victims and no fit: nothing stays reserved",
        ),
    ],
)
def test_stories(story: Story, evicted: str, placed: str, wasted: int) -> None:
    assert asyncio.run(outcome(story)) == (evicted, placed, wasted, NOTHING)


def test_a_unit_with_reserved_capacity_does_not_end_the_takeover_of_others() -> None:
    async def run() -> set[str]:
        bench = Bench()
        await one_node(bench)
        bench.node("o", gpus=2)
        tenant_pod(bench, "a", "victim", node="n", gpus=2, deleted=True)
        nominated: dict[str, Any] = {"gpus": 2, "priority": 10}
        for name, node in (("first", "o"), ("second", "n")):
            status = {"nominatedNodeName": node}
            tenant_pod(
                bench, "a", name, gang=(name, 1 + (name == "first")), status=status, **nominated
            )
        first = placed(Pod.read(bench.api.pods["first"]), "o")
        bench.scheduler.cache.reserved.put(GangKey("ns", "first"), (first,))
        await bench.settle()
        return {str(key) for key in bench.scheduler.cache.reserved}

    assert "ns/second" in asyncio.run(run())


def test_nominations_end_with_the_reserved_capacity() -> None:
    async def run() -> dict[str, str]:
        successor = await a_successor_that_cannot_go_on(Bench())
        return {
            name: pod.get("status", {}).get("nominatedNodeName", "")
            for name, pod in successor.api.pods.items()
            if name.startswith("new")
        }

    assert asyncio.run(run()) == {"new0": "", "new1": ""}
