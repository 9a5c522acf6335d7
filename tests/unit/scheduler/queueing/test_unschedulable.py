"""The cost of a backlog: it grows with distinct units, never with the number of units."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.plan import filters, planner
from scheduler.plugins.protocol import QueueingHint
from scheduler.queueing.entry import QueueState
from scheduler.queueing.retry_line import AT_ONCE
from scheduler.queueing.scheduling_queue import MAX_UNSCHEDULABLE, SchedulingQueue
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_pod
from tests.unit.scheduler.queueing.hinted import Classes


class Backlog:
    """A queue with a backlog of equal pods in a few classes, and a count of queueing hints."""

    def __init__(self, each: int, classes: int = 3) -> None:
        self.now = 100.0
        self.classes = Classes()
        self.queue = SchedulingQueue(bound=lambda _: 0, observer=self.classes)
        self.hints: Counter[str] = Counter()
        self.pods = [
            a_pod(f"c{kind}-{i:04}", cpu=str(10 + kind))
            for kind in range(classes)
            for i in range(each)
        ]
        for pod in self.pods:
            self.queue.put(pod, self.now)
        while (unit := self.queue.pop(self.now)) is not None:
            self.queue.mark_unschedulable(unit.key, self.now)

    def move_to_active(self, hint: QueueingHint) -> int:
        def count(pod: Pod) -> QueueingHint:
            self.hints[pod.key.name[:2]] += 1
            return hint

        return self.queue.move_to_active(self.now, self.classes.hints(count))

    def popped(self) -> list[Unit]:
        units = []
        while (unit := self.queue.pop(self.now)) is not None:
            units.append(unit)
            self.queue.mark_unschedulable(unit.key, self.now)
        return units


def test_an_event_costs_one_hint_and_one_plan_for_each_class() -> None:
    backlog = Backlog(each=1700)
    backlog.now += 60.0
    moved = backlog.move_to_active(QueueingHint.FITS)
    assert (moved, dict(backlog.hints), len(backlog.popped())) == (
        3,
        {"c0": 1, "c1": 1, "c2": 1},
        3,
    )


def test_equals_follow_as_long_as_they_fit() -> None:
    backlog = Backlog(each=5, classes=1)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.FITS)
    placed = []
    for _ in range(3):
        unit = backlog.queue.pop(backlog.now)
        assert unit is not None
        placed.append(unit.key.name)
        backlog.queue.start_binding(unit.key, [unit.pods[0].uid], backlog.now)
    assert (placed, len(backlog.popped())) == (["c0-0000", "c0-0001", "c0-0002"], 1)
    assert backlog.queue.pop(backlog.now) is None


def test_the_next_equal_unit_follows_when_the_probe_is_deleted() -> None:
    backlog = Backlog(each=3, classes=1)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.FITS)
    backlog.queue.remove(backlog.pods[0].uid, backlog.now)
    assert [unit.key.name for unit in backlog.popped()] == ["c0-0001"]


def test_after_a_failure_the_first_unit_whose_backoff_is_over_is_tried() -> None:
    backlog = Backlog(each=3, classes=1)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.FITS)
    first = backlog.popped()
    backlog.move_to_active(QueueingHint.FITS)
    assert [[unit.key.name for unit in units] for units in (first, backlog.popped())] == [
        ["c0-0000"],
        ["c0-0001"],
    ]


def test_an_event_that_may_help_costs_one_probe_at_a_time() -> None:
    backlog = Backlog(each=50, classes=1)
    backlog.now += 60.0
    tries = 0
    for _ in range(100):
        backlog.now += 0.1
        backlog.queue.tick(backlog.now)
        backlog.move_to_active(QueueingHint.PERHAPS)
        tries += len(backlog.popped())
    # Ten seconds: at once, then after its backoff of 2, 4 and 8 seconds at most.
    assert tries <= 4


def test_after_a_long_time_one_of_each_class_is_tried_without_an_event() -> None:
    backlog = Backlog(each=100)
    backlog.now += MAX_UNSCHEDULABLE
    backlog.queue.tick(backlog.now)
    assert len(backlog.popped()) == 3


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        pytest.param({"cpu": "10"}, True, id="equal"),
        pytest.param({"cpu": "10", "priority": 5}, True, id="of another priority"),
        pytest.param({"cpu": "11"}, False, id="of another size"),
        pytest.param({"cpu": "10", "gang": ("g", 1)}, False, id="a gang"),
    ],
)
def test_equal_units_share_one_probe(other: dict[str, Any], equal: bool) -> None:
    backlog = Backlog(each=1, classes=1)
    pod = a_pod("other", **other)
    backlog.queue.put(pod, backlog.now)
    backlog.popped()
    backlog.now += 60.0
    assert backlog.move_to_active(QueueingHint.FITS) == (1 if equal else 2)
    assert backlog.queue.state(key_of(pod)) in (QueueState.ACTIVE, QueueState.UNSCHEDULABLE)


def test_a_standby_keeps_nothing_about_pods_that_others_placed() -> None:
    queue = SchedulingQueue(bound=lambda _: 0)
    for i in range(5000):
        pod = a_pod(f"p{i}", gang=("g", 2) if i % 2 else None)
        queue.put(pod, float(i))
        queue.remove(pod.uid, float(i))
    heaps = vars(queue)
    assert (len(queue), len(heaps["_active"]) <= 1025, len(heaps["_timers"]) <= 1025) == (
        0,
        True,
        True,
    )


def test_a_unit_that_is_tried_for_days_is_in_the_heap_once() -> None:
    backlog = Backlog(each=2, classes=1)
    for _ in range(200):
        backlog.now += 20.0
        backlog.move_to_active(QueueingHint.FITS)
        backlog.popped()
    (heap,) = vars(backlog.queue)["_unschedulable"]._heaps.values()
    assert len(heap) == 2


def test_units_that_leave_do_not_pile_up_in_the_heap() -> None:
    """One unit stays, so that its signature does."""
    backlog = Backlog(each=1, classes=1)
    for i in range(2000):
        pod = a_pod(f"passing-{i}", cpu="10")
        backlog.queue.put(pod, backlog.now)
        backlog.popped()
        backlog.queue.remove(pod.uid, backlog.now)
    (heap,) = vars(backlog.queue)["_unschedulable"]._heaps.values()
    assert len(heap) <= 66


def test_where_only_planning_can_tell_a_few_units_are_tried_at_a_time() -> None:
    backlog = Backlog(each=2, classes=100)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.LIKELY)
    tries = []
    while (due := backlog.queue.next_at()) is not None and due < backlog.now + 1.0:
        tries.append(len(backlog.popped()))
        backlog.now = max(backlog.now, due)
        backlog.queue.tick(backlog.now)
    assert (max(tries), sum(tries) + len(backlog.popped())) == (AT_ONCE, 100)


def test_units_that_fit_do_not_wait_in_the_line() -> None:
    backlog = Backlog(each=1, classes=100)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.LIKELY)
    first = len(backlog.popped())
    assert (first, backlog.move_to_active(QueueingHint.FITS)) == (AT_ONCE, 100)


def test_a_backlog_of_thousands_does_not_slow_pods_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted in plans and in tests of classes, through the whole cycle."""
    counts: Counter[str] = Counter()
    plan, open_rows = planner.plan, filters.open_rows

    def counted_plan(*args: Any, **more: Any) -> Any:
        counts["plans"] += 1
        return plan(*args, **more)

    def counted_test(*args: Any) -> Any:
        counts["tests"] += 1
        return open_rows(*args)

    monkeypatch.setattr(planner, "plan", counted_plan)
    monkeypatch.setattr(filters, "open_rows", counted_test)

    async def story() -> tuple[int, Counter[str], int]:
        bench = Bench()
        for i in range(4):
            bench.node(f"n{i}", cpu="8")
        for i in range(5000):
            bench.pod(f"big-{i:04}", cpu="9")
        await bench.settle()
        first = counts["plans"]
        counts.clear()
        for i in range(30):
            bench.pod(f"small-{i}")
            await bench.settle(1.0)
        for i in range(30):
            bench.delete(f"small-{i}")
            await bench.settle(1.0)
        return first, Counter(counts), bench.api.binds

    first, after, bound = asyncio.run(story())
    assert (first, bound) == (5000, 30)
    # One plan for each small pod; no deletion frees as much as a unit of the backlog requests.
    assert after == {"plans": 30}


def test_a_deleted_unit_at_the_head_of_its_class_hides_none_behind_it() -> None:
    backlog = Backlog(each=3, classes=1)
    for pod in backlog.pods[:2]:
        backlog.queue.remove(pod.uid, backlog.now)
    backlog.now += 60.0
    backlog.move_to_active(QueueingHint.FITS)
    assert [unit.key.name for unit in backlog.popped()] == ["c0-0002"]


def test_a_class_whose_probe_waits_for_its_turn_keeps_no_other_class_waiting() -> None:
    backlog = Backlog(each=2, classes=3)
    backlog.now += 60.0
    only_first = lambda pod: (  # noqa: E731 (a hint for one class alone)
        QueueingHint.PERHAPS if pod.key.name.startswith("c0") else QueueingHint.NONE
    )
    moved = [
        backlog.queue.move_to_active(backlog.now, backlog.classes.hints(only_first)),
        backlog.move_to_active(QueueingHint.PERHAPS),
        backlog.move_to_active(QueueingHint.PERHAPS),
    ]
    names = [unit.key.name for unit in backlog.popped()]
    assert (moved, names) == ([1, 2, 0], ["c0-0000", "c1-0000", "c2-0000"])
