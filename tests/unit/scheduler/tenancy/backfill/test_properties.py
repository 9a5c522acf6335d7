"""
Promised starts over random clusters and histories, through the whole cycle, judged by a witness:
nobody who goes ahead makes anybody late, and nothing moves a promise but what may.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.scheduler.tenancy.backfill.start_oracle import Witness
from tests.unit.scheduler.tenancy.histories import Story
from tests.unit.scheduler.tenancy.random_clusters import (
    MEMBERS,
    TENANTS,
    Create,
    Delete,
    LoseNode,
    Scenario,
    Workload,
    deletions,
    ends,
    examples,
    node_losses,
    scenarios,
)

pytestmark = pytest.mark.timeout(300)

LATE = 2.0
"""Pods say when they began to the second, and promises are looked at once a second."""
EXAMPLES = examples(25)


@st.composite
def timed(draw: st.DrawFn, /, *, overruns: bool = False, **fixed: Any) -> Create:
    """A unit that says how long it runs, or nobody knows; true, or not."""
    expected_duration = draw(st.sampled_from((None, 20, 60, 60, 200, 200)))
    over = draw(st.sampled_from((0, 0, 0, 15, 100, -10))) if overruns else 0
    drawn: dict[str, Any] = {
        "tenant": st.sampled_from(TENANTS),
        "size": st.sampled_from((0, 0, 2, 3)),
        "more": st.sampled_from((0, 0, 0, 1)),
        "gpus": st.integers(1, 3),
        **fixed,
    }
    run_time = None if expected_duration is None else expected_duration + over
    return Create(
        Workload(
            expected_duration=expected_duration,
            run_time=run_time,
            **{k: draw(v) for k, v in drawn.items()},
        )
    )


def histories(come: st.SearchStrategy[Create], *others: Any, **fixed: Any) -> Any:
    seconds = st.sampled_from((0, 0, 5, 5, 17, 40))
    other = st.none() | st.tuples(seconds, st.one_of(*others)) if others else st.none()
    rows = st.lists(st.tuples(st.tuples(seconds, come), other), min_size=4, max_size=10)
    steps = rows.map(lambda rows: tuple(one for row in rows for one in row if one is not None))
    return scenarios(ends, steps=steps, grace=st.just(0), **fixed)


def watched(scenario: Scenario) -> tuple[Story, Witness]:
    witness = Witness()
    return asyncio.run(Story(scenario, rest=witness.look).play(longer=1500.0)), witness


def of(
    tenant: str, gpus: int = 1, expected_duration: int | None = None, **more: Any
) -> tuple[int, Create]:
    return 0, Create(
        Workload(
            tenant,
            gpus=gpus,
            expected_duration=expected_duration,
            run_time=expected_duration,
            **more,
        )
    )


ANOTHER_ENDS_SOON_AFTER = Scenario(
    nodes=(2,),
    steps=(of("a", expected_duration=60), (5, of("a", expected_duration=60)[1]), of("a"), of("b")),
)
"""Somebody could pass in the hope for room that comes free seconds after the promised time."""
OF_THE_SAME_QUOTA = Scenario(
    nodes=(2, 2, 3),
    steps=(
        of("a"),
        of("c", 2),
        *(of("a", expected_duration=20) for _ in range(2)),
        of("c", 3),
        of("a"),
        of("c"),
    ),
    limits={"c": 5},
)
"""Somebody could pass on another node, and use up the quota of the tenant that was promised."""
HELD_BACK_FOR_A_WHILE = Scenario(
    nodes=(4, 3, 3),
    steps=(
        of("a"),
        of("a", 3, 200, size=2),
        (17, of("a", 1, 200, size=3)[1]),
        of("c", 1, 20),
        of("a"),
        of("a"),
        of("a", 3),
        of("c"),
        (5, of("a", 2, size=2)[1]),
        of("c", 3),
    ),
    limits={"c": 4},
)
"""The quota of a unit with a promise is used up, and open again by the time."""


@settings(max_examples=EXAMPLES)
@given(histories(timed(), guarantees=st.just({})))
@example(ANOTHER_ENDS_SOON_AFTER)
@example(OF_THE_SAME_QUOTA)
@example(HELD_BACK_FOR_A_WHILE)
def test_who_goes_ahead_makes_nobody_late_where_durations_are_true(scenario: Scenario) -> None:
    """Among equals, whatever their quotas: no promise is moved, and all start in time."""
    story, witness = watched(scenario)
    late = [one for one in witness.kept if one.late > LATE]
    assert (witness.moves, late, story.api.broken) == ([], [], [])


A_PREEMPTOR_OF_EQUAL_PRIORITY = Scenario(
    nodes=(2, 2),
    steps=(
        of("a"),
        of("b", 2, 20, preemptible=True),
        of("a", 2, preemptible=True),
        of("a", 2),
    ),
)
"""Somebody could make room on the promised node by what may be evicted there."""
WITHIN_A_PROMISE = Scenario(
    nodes=(2,),
    steps=(of("a", expected_duration=20), of("a"), of("a"), of("b")),
    guarantees={"b": 1},
)
GONE_THE_MOMENT_IT_IS_LATE = Scenario(
    nodes=(3, 3, 4),
    steps=(
        (0, Create(Workload("a", size=3, gpus=3, expected_duration=60, run_time=160))),
        (22, of("a", 2)[1]),
        (5, Delete(0)),
        (5, of("a")[1]),
        (5, of("a")[1]),
        (40, of("a")[1]),
    ),
)
"""Work that overran ends just when the promise is looked at."""
A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA = Scenario(
    nodes=(4,),
    steps=(
        of("a", expected_duration=20),
        of("a", expected_duration=60),
        *(of("a") for _ in range(2)),
        of("a", 2),
        (17, of("b", 2, 20, size=2)[1]),
        (40, of("a")[1]),
        (5, of("a", priority=10)[1]),
    ),
    limits={"a": 2},
)
A_NODE_IS_LOST = Scenario(
    nodes=(2, 2), steps=(of("a", 2, 20), of("a", 2, 60), of("a", 2), (5, LoseNode(0)))
)
A_GANG_IS_MADE_WHOLE_FIRST = Scenario(
    nodes=(4, 4),
    steps=(
        (0, Create(Workload("b", size=3))),
        (0, Create(Workload("b", size=3, expected_duration=200, run_time=200))),
        (0, Create(Workload("a", gpus=2))),
        (0, Create(Workload("a", size=2, more=1, expected_duration=200, run_time=215))),
        (0, LoseNode(0)),
    ),
    limits={"a": 2},
)
"""Of its two members one is on the node that is lost; the other one's mate goes before a promise."""


@settings(max_examples=EXAMPLES)
@given(
    histories(
        timed(overruns=True, priority=st.sampled_from((0, 0, 10)), preemptible=st.booleans()),
        deletions,
        node_losses,
        guarantees=st.dictionaries(st.sampled_from(MEMBERS), st.integers(1, 6), max_size=2),
        overrun=st.sampled_from(("move", "preempt")),
    )
)
@example(A_PREEMPTOR_OF_EQUAL_PRIORITY)
@example(WITHIN_A_PROMISE)
@example(GONE_THE_MOMENT_IT_IS_LATE)
@example(A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA)
@example(A_NODE_IS_LOST)
@example(A_GANG_IS_MADE_WHOLE_FIRST)
def test_a_promise_is_moved_by_nothing_but_what_may_and_the_event_says_by_what(
    scenario: Scenario,
) -> None:
    """An overrun, a lost node, a higher priority, or what another tenant was guaranteed."""
    _, witness = watched(scenario)
    assert [move for move in witness.moves if not move.agrees] == []


@pytest.mark.parametrize(
    ("scenario", "cause"),
    [
        pytest.param(A_NODE_IS_LOST, "lost", id="a lost node"),
        pytest.param(WITHIN_A_PROMISE, "guarantee", id="a tenant's promise"),
        pytest.param(A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA, "priority", id="a higher priority"),
        pytest.param(GONE_THE_MOMENT_IT_IS_LATE, "overrun", id="an overrun"),
    ],
)
def test_the_witness_sees_each_cause(scenario: Scenario, cause: str) -> None:
    _, witness = watched(scenario)
    assert {cause} <= {one for move in witness.moves for one in move.causes}
