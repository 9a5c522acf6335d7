"""Promises over random clusters and histories in virtual time, where everybody is as long as said."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubenexus.simulate.virtual import Job, Turns, World
from scheduler.tables import Tables
from scheduler.units import UnitKey
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

CLOCK = 1_000_000.0  # the time of day when the clock of the simulation shows nought
LATE = 1.0  # promises are looked at once a second

Piece = tuple[int, int, int, int, int]  # members, GPUs of each, arrival, duration, priority

pieces = st.tuples(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 300),
    st.integers(5, 400),
    st.just(0),
)
mixed = st.tuples(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 300),
    st.integers(5, 400),
    st.sampled_from((0, 0, 10)),
)
clusters = st.lists(st.integers(1, 8), min_size=1, max_size=4)


def job(number: int, piece: Piece) -> Job:
    count, gpus, arrives, lasts, priority = piece
    more: dict[str, Any] = {
        "gpus": gpus,
        "cpu": "0",
        "priority": priority,
        "annotations": {"scheduling.kubenexus.io/expected-duration": f"{lasts}s"},
    }
    name = f"j{number}"
    pods = [a_pod(name, **more)] if count == 1 else a_gang(count, name=name, **more)
    made = (replace(pod, created=float(arrives)) for pod in pods)
    return Job(tuple(made), float(arrives), float(lasts))


def history(
    gpus: list[int], work: list[Piece]
) -> tuple[dict[UnitKey, list[float]], dict[UnitKey, float], dict[UnitKey, int]]:
    """For each unit the times promised to it, one after the other; its start; its priority."""
    nodes = [a_node(f"n{i}", gpus=count) for i, count in enumerate(gpus)]
    jobs = [job(number, piece) for number, piece in enumerate(work)]
    world = World(nodes, jobs, Tables(), lambda: 0.0)
    turns = Turns(world, fair=True)
    told: dict[UnitKey, list[float]] = {}
    while (at := world.next_at(turns.next_at())) is not None:
        world.now = at
        turns.take(*world.pass_by())
        turns.decide()
        for key, promise in turns.queue.promised.items():
            times = told.setdefault(key, [])
            if not times or times[-1] != promise.start - CLOCK:
                times.append(promise.start - CLOCK)
    return told, world.run.starts, {one.key: one.pods[0].priority for one in jobs}


@settings(max_examples=60, deadline=None)
@given(gpus=clusters, work=st.lists(pieces, min_size=2, max_size=12))
def test_a_promise_is_kept_and_never_moved_where_durations_are_true(
    gpus: list[int], work: list[Piece]
) -> None:
    told, starts, _ = history(gpus, work)
    assert {key: times for key, times in told.items() if len(times) > 1} == {}
    assert {k: (times, starts[k]) for k, times in told.items() if starts[k] > times[0] + LATE} == {}


@settings(max_examples=60, deadline=None)
@given(gpus=clusters, work=st.lists(mixed, min_size=2, max_size=12))
def test_only_a_higher_priority_moves_a_promise_where_durations_are_true(
    gpus: list[int], work: list[Piece]
) -> None:
    told, starts, priorities = history(gpus, work)
    highest = {key: times for key, times in told.items() if priorities[key] == 10}
    assert {k: times for k, times in highest.items() if starts[k] > times[0] + LATE} == {}
    if 10 not in priorities.values():
        assert all(len(times) == 1 for times in told.values())
