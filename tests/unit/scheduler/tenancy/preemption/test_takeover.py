"""
Room that one scheduler began to make and another goes on with: it knows nothing but the API.

Every story ends with who was evicted, who has a node, how many went in vain, and what is kept.
"""

import asyncio
from collections import deque

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    BOTH,
    BROKEN,
    NOTHING,
    Story,
    a_pair,
    an_heir,
    end_all,
    outcome,
)
from tests.unit.scheduler.tenancy.preemption.test_controller import gone, of, scene

pytestmark = pytest.mark.timeout(60)


async def a_successor_before_anybody_went(bench: Bench) -> Bench:
    bench.api.in_earnest["low-n"] = bench.api.in_earnest["low-o"] = deque([BROKEN] * 2)
    await a_pair(bench)
    await bench.scheduler.drain()
    while not bench.api.made:
        await asyncio.sleep(0)
    heir = an_heir(bench)
    await heir.settle(1.0)
    await end_all(heir)
    return heir


async def a_successor_after_one_is_gone(bench: Bench) -> Bench:
    bench.api.in_earnest["low-o"] = deque([BROKEN] * 500)
    await a_pair(bench)
    await bench.scheduler.drain()
    while "low-n" not in bench.api.evicted:
        await asyncio.sleep(0)
    bench.delete("low-n")
    bench.api.in_earnest.clear()
    heir = an_heir(bench)
    of(heir, "b", "thief", gpus=2, priority=50)
    await heir.settle(1.0)
    await end_all(heir)
    return heir


async def a_successor_while_one_is_ending(bench: Bench) -> Bench:
    """The other one is asked at once, and not when the first is gone."""
    bench.api.in_earnest["low-o"] = deque([BROKEN] * 500)
    await a_pair(bench)
    await bench.scheduler.drain()
    while "low-n" not in bench.api.evicted:
        await asyncio.sleep(0)
    bench.api.in_earnest.clear()
    heir = an_heir(bench)
    await heir.settle(1.0)
    assert "low-o" in heir.api.evicted
    await end_all(heir)
    return heir


async def a_successor_that_sees_a_member_late(bench: Bench) -> Bench:
    await scene(bench)
    of(bench, "a", "low", node="n", gpus=2)
    for number in range(2):
        of(bench, "a", f"new{number}", priority=10, gang=("new", 2))
    await bench.settle()
    gone(bench)
    late = bench.api.pods.pop("new1")
    heir = an_heir(bench)
    heir.drop_node("o")
    of(heir, "b", "thief", gpus=2, priority=50)
    await heir.settle(1.0)
    heir.api.pods["new1"] = late
    heir.show_all()
    await heir.settle(10.0)
    return heir


async def a_successor_that_cannot_go_on(bench: Bench) -> Bench:
    await a_pair(bench, priority=20)
    for name in ("new0", "new1"):
        bench.api.pods[name]["status"] = {"nominatedNodeName": "n"}
    heir = an_heir(bench)
    await heir.settle(1.0)
    return heir


@pytest.mark.parametrize(
    ("story", "evicted", "placed", "in_vain"),
    [
        pytest.param(
            a_successor_before_anybody_went,
            "low-n low-o",
            BOTH,
            0,
            id="a successor where pods were told, and nobody went",
        ),
        pytest.param(
            a_successor_after_one_is_gone,
            "low-n low-o",
            BOTH,
            0,
            id="a successor where one is gone and one was not asked",
        ),
        pytest.param(
            a_successor_while_one_is_ending,
            "low-n low-o",
            BOTH,
            0,
            id="a successor where one is ending and one was not asked",
        ),
        pytest.param(
            a_successor_that_sees_a_member_late,
            "low",
            BOTH,
            0,
            id="a successor that sees a member late keeps the room meanwhile",
        ),
        pytest.param(
            a_successor_that_cannot_go_on,
            "",
            "low-n low-o",
            0,
            id="a successor where nobody goes and it does not fit: nothing is kept",
        ),
    ],
)
def test_stories(story: Story, evicted: str, placed: str, in_vain: int) -> None:
    assert asyncio.run(outcome(story)) == (evicted, placed, in_vain, NOTHING)


def test_what_is_kept_no_more_is_not_nominated() -> None:
    async def run() -> dict[str, str]:
        heir = await a_successor_that_cannot_go_on(Bench())
        return {
            name: pod.get("status", {}).get("nominatedNodeName", "")
            for name, pod in heir.api.pods.items()
            if name.startswith("new")
        }

    assert asyncio.run(run()) == {"new0": "", "new1": ""}
