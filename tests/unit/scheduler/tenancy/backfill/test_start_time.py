"""The earliest start of a unit, and which pods may start ahead of it."""

from collections.abc import Callable

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placement, Plan
from scheduler.model.unit import StartReservation, units
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.start_time import ExpectedEnd, earliest_start, starts_in_time
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

Running = list[tuple[str, str, int, float | None]]  # name, node, GPUs, expected end


def scene(
    nodes: dict[str, int], running: Running, want: tuple[int, int]
) -> tuple[Snapshot, list[ExpectedEnd], Callable[[Memo], Plan]]:
    placed = [(a_pod(name, gpus=gpus, cpu="0"), node) for name, node, gpus, _ in running]
    snapshot = Snapshot.of([a_node(name, gpus=gpus) for name, gpus in nodes.items()], placed)
    ends = [
        ExpectedEnd(row[3], Placement(pod, node, NO_ASSIGNMENT))
        for row, (pod, node) in zip(running, placed, strict=True)
        if row[3] is not None
    ]
    unit = units(a_gang(want[0], gpus=want[1], cpu="0"))[0]
    return snapshot, ends, lambda memo: planner.plan(unit, snapshot, memo=memo)


KEY = GangKey("ns", "g")


@pytest.mark.parametrize(
    ("nodes", "running", "want", "reservation"),
    [
        pytest.param(
            {"n1": 4, "n2": 4},
            [("a", "n1", 4, 300.0), ("b", "n2", 4, 200.0)],
            (1, 4),
            StartReservation(KEY, 200.0, frozenset({"n2"}), ("ns/b",)),
            id="the first node that comes free",
        ),
        pytest.param(
            {"n1": 4, "n2": 4},
            [("a", "n1", 4, 300.0), ("b", "n2", 4, 200.0)],
            (2, 4),
            StartReservation(KEY, 300.0, frozenset({"n1", "n2"}), ("ns/a", "ns/b")),
            id="the whole gang at once",
        ),
        pytest.param(
            {"n1": 4},
            [("a", "n1", 2, 50.0), ("b", "n1", 2, None)],
            (1, 4),
            None,
            id="a pod without a known end",
        ),
        pytest.param(
            {"n1": 4},
            [("a", "n1", 4, 50.0)],
            (1, 4),
            StartReservation(KEY, 100.0, frozenset({"n1"}), ("ns/a",)),
            id="an overdue pod ends now at the earliest",
        ),
        pytest.param(
            {"n1": 4}, [("a", "n1", 4, 300.0)], (1, 8), None, id="too large for every node"
        ),
    ],
)
def test_earliest_start(
    nodes: dict[str, int],
    running: Running,
    want: tuple[int, int],
    reservation: StartReservation | None,
) -> None:
    snapshot, ends, plan = scene(nodes, running, want)
    before = snapshot.state()
    assert earliest_start(KEY, snapshot, ends, plan, now=100.0) == reservation
    assert snapshot.state() == before


@pytest.mark.parametrize(
    ("ahead", "in_time"),
    [
        pytest.param([("x", "n2", 2)], True, id="on a node without the reservation"),
        pytest.param([("x", "n1", 1)], True, id="capacity that the unit does not need"),
        pytest.param([("x", "n1", 2)], False, id="capacity that the unit needs"),
    ],
)
def test_pods_ahead_leave_the_unit_its_capacity(
    ahead: list[tuple[str, str, int]], in_time: bool
) -> None:
    nodes, running = {"n1": 8, "n2": 4}, [("a", "n1", 5, 300.0), ("b", "n2", 2, None)]
    snapshot, ends, plan = scene(nodes, running, (1, 7))
    reservation = earliest_start(KEY, snapshot, ends, plan, now=100.0)
    assert reservation is not None
    pods = [
        Placement(a_pod(name, gpus=gpus, cpu="0"), node, NO_ASSIGNMENT)
        for name, node, gpus in ahead
    ]
    assert starts_in_time(reservation, snapshot, ends, plan, pods) is in_time
