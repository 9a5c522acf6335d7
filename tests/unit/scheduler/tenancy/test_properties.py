"""
Limits over random clusters and histories, through the whole cycle: they hold at every write, while
pods end, binds fail, nodes are lost and successors take over; and nothing is left behind.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster import errors
from tests.unit.scheduler.tenancy.histories import Api, Story, halves
from tests.unit.scheduler.tenancy.random_clusters import (
    Create,
    Restart,
    Scenario,
    Workload,
    bind_failures,
    deletions,
    ends,
    examples,
    node_losses,
    restarts,
    scenarios,
)

pytestmark = pytest.mark.timeout(300)
LONG = 300.0
"""Seconds after which every preemption has ended."""


def left(story: Story) -> tuple[int, ...]:
    """Preemptions in progress, reserved capacity, cache mismatches, partial gangs."""
    scheduler = story.bench.scheduler
    return (
        len(scheduler.tenancy.preemption),
        len(scheduler.cache.reserved),
        len(scheduler.cache_mismatches()),
        len(halves(story)),
    )


async def at_rest(story: Story) -> Story:
    """A pending unit may start another preemption at any moment: check between two of them."""
    await story.play(longer=LONG)
    for _ in range(6):
        if not any(left(story)):
            break
        await story.until(story.bench.now + 20.0)
    return story


ENDING = Scenario(
    nodes=(2, 1),
    steps=(
        (0, Create(Workload("a", gpus=2))),
        (0, Create(Workload("b", gpus=2))),
        (1, Create(Workload("a"))),
    ),
    limits={"a": 2},
    guarantees={"b": 2},
    grace=5,
)
"""A terminating pod counts until it is gone, and another node has free capacity."""
ONE_AFTER_THE_OTHER = Scenario(
    nodes=(2,),
    steps=(
        (0, Create(Workload("a"))),
        (0, Create(Workload("a", preemptible=True))),
        (0, Create(Workload("c"))),
        (0, Restart(Workload("c", priority=5, preemptible=True), turns=0)),
    ),
    guarantees={"a": 1},
    grace=5,
)
"""One preemptor starts, and minutes later it is a victim of another."""
SURPLUS_OF_A_RUNNING_GANG = Scenario(
    nodes=(4,),
    steps=(
        (0, Create(Workload("a", gpus=2, preemptible=True))),
        (0, Restart(Workload("b", size=2, more=1), turns=3)),
        (0, Create(Workload("a"))),
        (0, Create(Workload("a"))),
        (0, Create(Workload("c"))),
    ),
    guarantees={"c": 1},
    grace=5,
)
"""A victim terminates for the surplus of a gang, and a tenant reclaims its guarantee."""
A_GROUP = Scenario(
    nodes=(4,),
    steps=((0, Create(Workload("a", gpus=2))), (0, Create(Workload("b")))),
    limits={"g": 2},
    grouped=True,
)


@settings(max_examples=examples(40))
@given(scenarios(ends, deletions, node_losses, restarts, bind_failures))
@example(ENDING)
@example(A_GROUP)
def test_limits_hold_at_every_write(scenario: Scenario) -> None:
    """Limits of tenants and of groups, while binds fail and successors take over."""
    story = asyncio.run(Story(scenario).play(longer=20.0))
    assert (story.api.broken, len(story.bench.scheduler.cache_mismatches())) == ([], 0)


FAULTS = (
    errors.Retry("too many requests", status=429),
    errors.Retry("internal error", status=500),
    errors.Retry("timed out"),
    errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]}),
    errors.Refused("forbidden", status=403),
)


class Faulty(Api):
    """Evictions fail as drawn, both dry runs and real ones."""

    def __init__(self, scenario: Scenario, drawn: list[int]) -> None:
        super().__init__(scenario)
        self.drawn = drawn

    async def evict(self, *args: Any, **more: Any) -> None:
        number = self.drawn.pop() if self.drawn else len(FAULTS)
        if number < len(FAULTS):
            raise FAULTS[number]
        await super().evict(*args, **more)


@settings(max_examples=examples(40))
@given(scenarios(ends), st.lists(st.integers(0, 2 * len(FAULTS)), max_size=12))
def test_evictions_that_fail_leave_nothing_held(scenario: Scenario, drawn: list[int]) -> None:
    story = asyncio.run(at_rest(Story(scenario, Faulty(scenario, drawn))))
    assert (story.api.broken, left(story)) == ([], (0, 0, 0, 0))


@settings(max_examples=examples(40))
@given(scenarios(ends, restarts))
@example(ONE_AFTER_THE_OTHER)
@example(SURPLUS_OF_A_RUNNING_GANG)
def test_a_leader_killed_mid_preemption(scenario: Scenario) -> None:
    """A successor knows nothing but the API: every preemptor is still placed."""
    story = asyncio.run(at_rest(Story(scenario)))
    assert (story.api.broken, left(story), story.steps("wasted")) == ([], (0, 0, 0, 0), 0)
    assert story.evicted_for().keys() - story.starts.keys() == set()
