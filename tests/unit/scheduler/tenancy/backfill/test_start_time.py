"""When a unit can start, and who may go ahead of it."""

from collections.abc import Callable

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NOWHERE
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placement, Plan
from scheduler.model.unit import StartReservation, units
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.start_time import ExpectedEnd, earliest, keeps
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

Running = list[tuple[str, str, int, float | None]]  # name, node, GPUs, expected end


def scene(
    nodes: dict[str, int], running: Running, want: tuple[int, int]
) -> tuple[Snapshot, list[ExpectedEnd], Callable[[Memo], Plan]]:
    placed = [(a_pod(name, gpus=gpus, cpu="0"), node) for name, node, gpus, _ in running]
    snapshot = Snapshot.of([a_node(name, gpus=gpus) for name, gpus in nodes.items()], placed)
    endings = [
        ExpectedEnd(row[3], Placement(pod, node, NOWHERE))
        for row, (pod, node) in zip(running, placed, strict=True)
        if row[3] is not None
    ]
    unit = units(a_gang(want[0], gpus=want[1], cpu="0"))[0]
    return snapshot, endings, lambda memo: planner.plan(unit, snapshot, memo=memo)


KEY = GangKey("ns", "g")


@pytest.mark.parametrize(
    ("nodes", "running", "want", "promise"),
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
            id="what never ends is not waited for",
        ),
        pytest.param(
            {"n1": 4},
            [("a", "n1", 4, 50.0)],
            (1, 4),
            StartReservation(KEY, 100.0, frozenset({"n1"}), ("ns/a",)),
            id="what is overdue ends now at the earliest",
        ),
        pytest.param(
            {"n1": 4}, [("a", "n1", 4, 300.0)], (1, 8), None, id="too large for every node"
        ),
    ],
)
def test_when_it_can_start(
    nodes: dict[str, int], running: Running, want: tuple[int, int], promise: StartReservation | None
) -> None:
    snapshot, endings, plan = scene(nodes, running, want)
    before = snapshot.state()
    assert earliest(KEY, snapshot, endings, plan, now=100.0) == promise
    assert snapshot.state() == before


@pytest.mark.parametrize(
    ("ahead", "kept"),
    [
        pytest.param([("x", "n2", 2)], True, id="on a node that the promise does not name"),
        pytest.param([("x", "n1", 1)], True, id="room that the unit will not need"),
        pytest.param([("x", "n1", 2)], False, id="room that the unit will need"),
    ],
)
def test_who_may_go_ahead(ahead: list[tuple[str, str, int]], kept: bool) -> None:
    nodes, running = {"n1": 8, "n2": 4}, [("a", "n1", 5, 300.0), ("b", "n2", 2, None)]
    snapshot, endings, plan = scene(nodes, running, (1, 7))
    promise = earliest(KEY, snapshot, endings, plan, now=100.0)
    assert promise is not None
    pods = [Placement(a_pod(name, gpus=gpus, cpu="0"), node, NOWHERE) for name, node, gpus in ahead]
    assert keeps(promise, snapshot, endings, plan, pods) is kept
