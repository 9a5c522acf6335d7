"""What a backlog costs: by what differs among those that wait, never by how many they are."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.plan import planner
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import LONGEST_PARKING, SchedulingQueue
from scheduler.queueing.unschedulable import QueueingHint
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_pod


class Desk:
    """A queue with a backlog of equal pods in a few classes, and a count of what it costs."""

    def __init__(self, each: int, classes: int = 3) -> None:
        self.now = 100.0
        self.queue = SchedulingQueue(bound=lambda _: 0)
        self.asked: Counter[str] = Counter()
        self.pods = [
            a_pod(f"c{kind}-{i:04}", cpu=str(10 + kind))
            for kind in range(classes)
            for i in range(each)
        ]
        for pod in self.pods:
            self.queue.put(pod, self.now)
        while (unit := self.queue.pop(self.now)) is not None:
            self.queue.park(unit.key, self.now)

    def wake(self, help: QueueingHint) -> int:
        def helps(pod: Pod) -> QueueingHint:
            self.asked[pod.key.name[:2]] += 1
            return help

        return self.queue.wake(self.now, helps)

    def popped(self) -> list[Unit]:
        units = []
        while (unit := self.queue.pop(self.now)) is not None:
            units.append(unit)
            self.queue.park(unit.key, self.now)
        return units


def test_a_change_costs_one_question_and_one_plan_for_each_class() -> None:
    desk = Desk(each=1700)
    desk.now += 60.0
    woken = desk.wake(QueueingHint.FITS)
    assert (woken, dict(desk.asked), len(desk.popped())) == (3, {"c0": 1, "c1": 1, "c2": 1}, 3)


def test_equals_follow_as_long_as_they_fit() -> None:
    desk = Desk(each=5, classes=1)
    desk.now += 60.0
    desk.wake(QueueingHint.FITS)
    placed = []
    for _ in range(3):
        unit = desk.queue.pop(desk.now)
        assert unit is not None
        placed.append(unit.key.name)
        desk.queue.take(unit.key, [unit.pods[0].uid], desk.now)
    assert (placed, len(desk.popped())) == (["c0-0000", "c0-0001", "c0-0002"], 1)
    assert desk.queue.pop(desk.now) is None


def test_the_next_one_follows_when_the_one_that_was_woken_goes() -> None:
    desk = Desk(each=3, classes=1)
    desk.now += 60.0
    desk.wake(QueueingHint.FITS)
    desk.queue.remove(desk.pods[0].uid, desk.now)
    assert [unit.key.name for unit in desk.popped()] == ["c0-0001"]


def test_after_a_failure_room_is_offered_to_the_first_whose_backoff_is_over() -> None:
    desk = Desk(each=3, classes=1)
    desk.now += 60.0
    desk.wake(QueueingHint.FITS)
    first = desk.popped()
    desk.wake(QueueingHint.FITS)
    assert [[unit.key.name for unit in found] for found in (first, desk.popped())] == [
        ["c0-0000"],
        ["c0-0001"],
    ]


def test_what_may_help_without_anybody_knowing_is_tried_by_one_at_a_time() -> None:
    desk = Desk(each=50, classes=1)
    desk.now += 60.0
    tries = 0
    for _ in range(100):
        desk.now += 0.1
        desk.queue.tick(desk.now)
        desk.wake(QueueingHint.PERHAPS)
        tries += len(desk.popped())
    # Ten seconds: at once, then after its backoff of 2, 4 and 8 seconds at most.
    assert tries <= 4


def test_after_a_long_time_one_of_each_class_is_tried_in_any_case() -> None:
    desk = Desk(each=100)
    desk.now += LONGEST_PARKING
    desk.queue.tick(desk.now)
    assert len(desk.popped()) == 3


@pytest.mark.parametrize(
    ("other", "together"),
    [
        pytest.param({"cpu": "10"}, True, id="equal"),
        pytest.param({"cpu": "10", "priority": 5}, True, id="of another priority"),
        pytest.param({"cpu": "11"}, False, id="of another size"),
        pytest.param({"cpu": "10", "gang": ("g", 1)}, False, id="a gang"),
    ],
)
def test_who_answers_for_whom(other: dict[str, Any], together: bool) -> None:
    desk = Desk(each=1, classes=1)
    pod = a_pod("other", **other)
    desk.queue.put(pod, desk.now)
    desk.popped()
    desk.now += 60.0
    assert desk.wake(QueueingHint.FITS) == (1 if together else 2)
    assert desk.queue.state(key_of(pod)) in (QueueState.ACTIVE, QueueState.PARKED)


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


def test_a_unit_that_is_tried_for_days_stands_in_line_once() -> None:
    desk = Desk(each=2, classes=1)
    for _ in range(200):
        desk.now += 20.0
        desk.wake(QueueingHint.FITS)
        desk.popped()
    ((line),) = vars(desk.queue)["_parking"]._lines.values()
    assert len(line) == 2


def test_a_backlog_of_thousands_does_not_slow_pods_that_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted in plans and questions, through the whole cycle."""
    counts: Counter[str] = Counter()
    plan, helps = planner.plan, planner.helps

    def counted_plan(*args: Any, **more: Any) -> Any:
        counts["plans"] += 1
        return plan(*args, **more)

    def counted_helps(*args: Any) -> bool:
        counts["questions"] += 1
        return helps(*args)

    monkeypatch.setattr(planner, "plan", counted_plan)
    monkeypatch.setattr(planner, "helps", counted_helps)

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
    # One plan for each small pod; one question for each deletion, and nobody is helped by it.
    assert after == {"plans": 30, "questions": 30}
