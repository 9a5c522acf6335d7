"""
Limits over random clusters and histories, through the whole cycle: kept at every write, whatever
ends, fails, is lost or takes over in the middle; and nothing is left behind.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster import errors
from tests.unit.scheduler.tenancy.histories import Api, Story, halves
from tests.unit.scheduler.tenancy.random_clusters import (
    Come,
    Restart,
    Wish,
    World,
    cancels,
    ends,
    examples,
    fails,
    loses,
    restarts,
    worlds,
)

pytestmark = pytest.mark.timeout(300)
LONG = 300.0
"""Seconds after which whatever was under way has ended."""


def left(story: Story) -> tuple[int, ...]:
    """Attempts to make room that go on, room that is kept, books that differ from the pods."""
    scheduler = story.bench.scheduler
    return (
        len(scheduler.tenancy.preempting),
        len(scheduler.cache.reserved),
        len(scheduler.cache_mismatches()),
        len(halves(story)),
    )


async def at_rest(story: Story) -> Story:
    """Who waits may begin anew at any moment: looked at between two attempts, if there are such."""
    await story.play(longer=LONG)
    for _ in range(6):
        if not any(left(story)):
            break
        await story.until(story.bench.now + 20.0)
    return story


ENDING = World(
    nodes=(2, 1),
    steps=((0, Come(Wish("a", gpus=2))), (0, Come(Wish("b", gpus=2))), (1, Come(Wish("a")))),
    limits={"a": 2},
    promises={"b": 2},
    grace=5,
)
"""A pod that is ending counts until it is gone, and there is room elsewhere."""
ONE_AFTER_THE_OTHER = World(
    nodes=(2,),
    steps=(
        (0, Come(Wish("a"))),
        (0, Come(Wish("a", preemptible=True))),
        (0, Come(Wish("c"))),
        (0, Restart(Wish("c", priority=5, preemptible=True), turns=0)),
    ),
    promises={"a": 1},
    grace=5,
)
"""Room is made for one, and then for another whom the first is in the way of, minutes later."""
A_GROUP = World(
    nodes=(4,),
    steps=((0, Come(Wish("a", gpus=2))), (0, Come(Wish("b")))),
    limits={"g": 2},
    grouped=True,
)


@settings(max_examples=examples(40))
@given(worlds(ends, cancels, loses, restarts, fails))
@example(ENDING)
@example(A_GROUP)
def test_limits_hold_at_every_write(world: World) -> None:
    """Those of tenants and of groups; while binds fail and schedulers take over half way."""
    story = asyncio.run(Story(world).play(longer=20.0))
    assert (story.api.broken, len(story.bench.scheduler.cache_mismatches())) == ([], 0)


FAULTS = (
    errors.Retry("too many requests", status=429),
    errors.Retry("internal error", status=500),
    errors.Retry("timed out"),
    errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]}),
    errors.Refused("forbidden", status=403),
)


class Faulty(Api):
    """Evictions fail as drawn, both as rehearsed and in earnest."""

    def __init__(self, world: World, drawn: list[int]) -> None:
        super().__init__(world)
        self.drawn = drawn

    async def evict(self, *args: Any, **more: Any) -> None:
        number = self.drawn.pop() if self.drawn else len(FAULTS)
        if number < len(FAULTS):
            raise FAULTS[number]
        await super().evict(*args, **more)


@settings(max_examples=examples(40))
@given(worlds(ends), st.lists(st.integers(0, 2 * len(FAULTS)), max_size=12))
def test_evictions_that_fail_leave_nothing_held(world: World, drawn: list[int]) -> None:
    story = asyncio.run(at_rest(Story(world, Faulty(world, drawn))))
    assert (story.api.broken, left(story)) == ([], (0, 0, 0, 0))


@settings(max_examples=examples(40))
@given(worlds(ends, restarts))
@example(ONE_AFTER_THE_OTHER)
def test_a_leader_killed_mid_preemption(world: World) -> None:
    """A successor knows nothing but the API: whoever was evicted for is still placed."""
    story = asyncio.run(at_rest(Story(world)))
    assert (story.api.broken, left(story), story.steps("wasted")) == ([], (0, 0, 0, 0), 0)
    assert story.evicted_for().keys() - story.starts.keys() == set()
