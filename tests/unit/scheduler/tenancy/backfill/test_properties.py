"""
Start reservations over random clusters and histories, in the whole cycle, checked by an oracle: backfill
delays no unit, and only the documented causes delay a start.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.fork import ForkPolicy
from tests.unit.scheduler.forks import EVERYTHING_IN_FORKS
from tests.unit.scheduler.tenancy.backfill.start_oracle import StartOracle
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
"""Pods state their start to the second, and the controller ticks once per second."""
EXAMPLES = examples(25)
IN_FORKS = examples(3)  # each estimate is a process


@st.composite
def timed(draw: st.DrawFn, /, *, overruns: bool = False, **fixed: Any) -> Create:
    """A unit with an expected duration, true or not, or without one."""
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


def watched(scenario: Scenario, fork: ForkPolicy | None = None) -> tuple[Story, StartOracle]:
    oracle = StartOracle()
    story = Story(scenario, rest=oracle.observe, fork=fork)
    return asyncio.run(story.play(longer=1500.0)), oracle


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


ANOTHER_POD_ENDS_SOON_AFTER = Scenario(
    nodes=(2,),
    steps=(of("a", expected_duration=60), (5, of("a", expected_duration=60)[1]), of("a"), of("b")),
)
"""A pod could backfill because capacity becomes free seconds after the reserved start."""
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
"""A pod could backfill on another node, and use up the quota of the start reservation."""
OVER_QUOTA_FOR_A_WHILE = Scenario(
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
"""The quota of a unit with a start reservation is used up, and free again at its start."""


@settings(max_examples=EXAMPLES)
@given(histories(timed(), guarantees=st.just({})))
@example(ANOTHER_POD_ENDS_SOON_AFTER)
@example(OF_THE_SAME_QUOTA)
@example(OVER_QUOTA_FOR_A_WHILE)
def test_backfill_delays_no_unit_if_durations_are_true(scenario: Scenario) -> None:
    """Among units of equal priority, with any quotas: no start is delayed."""
    story, oracle = watched(scenario)
    late = [one for one in oracle.met if one.late > LATE]
    assert (oracle.delays, late, story.api.broken) == ([], [], [])


@settings(max_examples=IN_FORKS)
@given(histories(timed(), guarantees=st.just({})))
@example(ANOTHER_POD_ENDS_SOON_AFTER)
@example(OF_THE_SAME_QUOTA)
@example(OVER_QUOTA_FOR_A_WHILE)
def test_nor_if_starts_are_estimated_in_forks(scenario: Scenario) -> None:
    story, oracle = watched(scenario, EVERYTHING_IN_FORKS)
    late = [one for one in oracle.met if one.late > LATE]
    assert (oracle.delays, late, story.api.broken) == ([], [], [])


A_PREEMPTOR_OF_EQUAL_PRIORITY = Scenario(
    nodes=(2, 2),
    steps=(
        of("a"),
        of("b", 2, 20, preemptible=True),
        of("a", 2, preemptible=True),
        of("a", 2),
    ),
)
"""A preemptor could evict a preemptible pod on the reserved node."""
WITHIN_A_GUARANTEE = Scenario(
    nodes=(2,),
    steps=(of("a", expected_duration=20), of("a"), of("a"), of("b")),
    guarantees={"b": 1},
)
OVERDUE_POD_ENDS_WHEN_IT_IS_LATE = Scenario(
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
"""A pod that overran ends in the tick that finds the start late."""
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
PARTIAL_GANG_IS_COMPLETED_FIRST = Scenario(
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
"""One of two members is on the node that is lost; its replacement has precedence."""


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
@example(WITHIN_A_GUARANTEE)
@example(OVERDUE_POD_ENDS_WHEN_IT_IS_LATE)
@example(A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA)
@example(A_NODE_IS_LOST)
@example(PARTIAL_GANG_IS_COMPLETED_FIRST)
def test_a_start_is_delayed_only_for_a_valid_cause_and_the_event_names_it(
    scenario: Scenario,
) -> None:
    """An overrun, a lost node, a higher priority, or the guarantee of another tenant."""
    _, oracle = watched(scenario)
    assert [delay for delay in oracle.delays if not delay.agrees] == []


@settings(max_examples=IN_FORKS)
@given(
    histories(
        timed(overruns=True, priority=st.sampled_from((0, 0, 10)), preemptible=st.booleans()),
        deletions,
        node_losses,
        overrun=st.sampled_from(("move", "preempt")),
    )
)
@example(A_NODE_IS_LOST)
@example(OVERDUE_POD_ENDS_WHEN_IT_IS_LATE)
@example(A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA)
def test_estimates_in_forks_are_delayed_for_the_same_causes(scenario: Scenario) -> None:
    _, oracle = watched(scenario, EVERYTHING_IN_FORKS)
    assert [delay for delay in oracle.delays if not delay.agrees] == []


@pytest.mark.parametrize(
    ("scenario", "cause"),
    [
        pytest.param(A_NODE_IS_LOST, "lost", id="a lost node"),
        pytest.param(WITHIN_A_GUARANTEE, "guarantee", id="a guarantee"),
        pytest.param(A_HIGHER_PRIORITY_OF_THE_SAME_QUOTA, "priority", id="a higher priority"),
        pytest.param(OVERDUE_POD_ENDS_WHEN_IT_IS_LATE, "overrun", id="an overrun"),
    ],
)
def test_the_oracle_sees_each_cause(scenario: Scenario, cause: str) -> None:
    _, oracle = watched(scenario)
    assert {cause} <= {one for delay in oracle.delays for one in delay.causes}
