"""Units between arriving and being planned: order, backoff, parking, forming."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import LONGEST_PARKING, SchedulingQueue
from scheduler.queueing.unschedulable import QueueingHint
from tests.unit.scheduler.builders import a_gang, a_pod


def always(_: Pod) -> QueueingHint:
    return QueueingHint.FITS


def never(_: Pod) -> QueueingHint:
    return QueueingHint.NONE


@dataclass
class Desk:
    """A queue with a clock at hand and a count of bound members to set."""

    now: float = 100.0
    bound: dict[GangKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = SchedulingQueue(bound=lambda gang: self.bound.get(gang, 0))

    def put(self, *pods: Pod) -> None:
        for pod in pods:
            self.queue.put(pod, self.now)

    def pop(self) -> list[str] | None:
        unit = self.queue.pop(self.now)
        return None if unit is None else [pod.key.name for pod in unit.pods]

    def fail(self, pod: Pod) -> None:
        assert self.pop() is not None
        self.queue.park(key_of(pod), self.now)

    def take(self, *pods: Pod) -> None:
        self.queue.take(key_of(pods[0]), [pod.uid for pod in pods], self.now)

    def after(self, seconds: float) -> list[Unit]:
        self.now += seconds
        return self.queue.tick(self.now)

    def state(self, pod: Pod) -> QueueState | None:
        return self.queue.state(key_of(pod))


def test_units_come_out_by_priority_age_and_uid() -> None:
    desk = Desk()
    old = "2025-01-01T00:00:00Z"
    desk.put(
        a_pod("c"), a_pod("b"), a_pod("old", created=old), a_pod("high", priority=1), *a_gang(2)
    )
    assert [desk.pop() for _ in range(6)] == [["high"], ["old"], ["b"], ["c"], ["g-0", "g-1"], None]


def test_a_changed_priority_moves_the_unit() -> None:
    desk = Desk()
    desk.put(a_pod("a"), a_pod("b"), a_pod("b", priority=1))
    assert [desk.pop(), desk.pop(), desk.pop()] == [["b"], ["a"], None]


def test_a_unit_that_did_not_fit_stays_parked_until_something_helps() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    desk.fail(pod)
    desk.after(60)
    desk.queue.wake(desk.now, never)
    unhelped = desk.pop()
    desk.queue.wake(desk.now, always)
    assert (unhelped, desk.pop()) == (None, ["p"])


def test_a_parked_unit_is_tried_again_in_any_case_after_a_while() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    desk.fail(pod)
    desk.after(LONGEST_PARKING - 1)
    early = desk.pop()
    desk.after(1)
    assert (early, desk.pop()) == (None, ["p"])


def test_backoff_doubles_from_one_second_to_ten() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    waits = []
    for _ in range(6):
        desk.fail(pod)
        desk.queue.wake(desk.now, always)
        due = desk.queue.next_at()
        assert due is not None
        waits.append(due - desk.now)
        desk.after(waits[-1] - 0.001)
        assert desk.pop() is None
        desk.after(0.002)
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10])


def test_a_unit_woken_after_its_backoff_is_tried_at_once() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    desk.fail(pod)
    desk.after(1.5)
    desk.queue.wake(desk.now, always)
    assert desk.state(pod) is QueueState.ACTIVE


def test_a_pod_whose_bind_failed_waits_out_a_backoff() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    desk.pop()
    desk.take(pod)
    desk.queue.put_back([pod], desk.now)
    early = desk.pop()
    desk.after(1.0)
    assert (early, desk.pop()) == (None, ["p"])


def test_a_gang_of_which_all_binds_failed_comes_back_whole() -> None:
    desk, pods = Desk(), a_gang(3)
    desk.put(*pods)
    desk.pop()
    desk.take(*pods)
    desk.queue.put_back(pods, desk.now)
    state = desk.state(pods[0])
    desk.after(1.0)
    assert (state, desk.pop()) == (QueueState.BACKOFF, ["g-0", "g-1", "g-2"])


@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(lambda desk, pods: None, QueueState.FORMING, id="a member is missing"),
        pytest.param(
            lambda desk, pods: desk.put(pods[2]), QueueState.ACTIVE, id="the last one came"
        ),
        pytest.param(
            lambda desk, pods: (
                desk.bound.update({GangKey("ns", "g"): 1}),
                desk.queue.reconsider(GangKey("ns", "g"), desk.now),
            ),
            QueueState.ACTIVE,
            id="a member was found to have a node",
        ),
        pytest.param(
            lambda desk, pods: (desk.put(pods[2]), desk.queue.remove(pods[0].uid, desk.now)),
            QueueState.FORMING,
            id="a member went again",
        ),
        pytest.param(
            lambda desk, pods: [desk.queue.remove(pod.uid, desk.now) for pod in pods[:2]],
            None,
            id="all went",
        ),
    ],
)
def test_forming(act: Callable[[Desk, list[Pod]], object], want: QueueState | None) -> None:
    desk, pods = Desk(), a_gang(3)
    desk.put(*pods[:2])
    act(desk, pods)
    assert desk.state(pods[0]) is want


def test_a_forming_gang_is_told_about_when_it_stands_still_and_at_its_timeout() -> None:
    desk, pods = Desk(), a_gang(4)
    told: list[tuple[float, int]] = []
    desk.put(pods[0])
    for step in range(60):
        if step == 2:
            desk.put(pods[1])
        told += [(desk.now - 100.0, unit.exist) for unit in desk.after(0.25)]
    assert told == [(1.5, 2), (10.25, 2)]


def test_a_gang_that_lost_a_bound_member_forms_again_instead_of_being_planned() -> None:
    desk, pods = Desk(bound={GangKey("ns", "g"): 1}), a_gang(3)
    desk.put(*pods[:2])
    desk.bound.clear()
    assert (desk.pop(), desk.state(pods[0])) == (None, QueueState.FORMING)


def test_a_parked_gang_is_tried_when_a_member_joins() -> None:
    desk, pods = Desk(), a_gang(3, size=2)
    desk.put(*pods[:2])
    desk.fail(pods[0])
    desk.after(2)
    desk.put(pods[2])
    assert desk.pop() == ["g-0", "g-1", "g-2"]


def test_what_is_left_of_a_gang_keeps_waiting() -> None:
    desk, pods = Desk(), a_gang(3, size=2)
    desk.put(*pods)
    desk.pop()
    desk.bound[GangKey("ns", "g")] = 2
    desk.take(*pods[:2])
    desk.queue.park(key_of(pods[0]), desk.now)
    desk.after(1)
    desk.queue.wake(desk.now, always)
    assert desk.pop() == ["g-2"]


def test_an_unchanged_pod_is_not_tried_again() -> None:
    desk, pod = Desk(), a_pod()
    desk.put(pod)
    desk.fail(pod)
    desk.after(30)
    desk.put(a_pod())
    unchanged = desk.state(pod)
    desk.put(a_pod(cpu="2"))
    assert (unchanged, desk.state(pod)) == (QueueState.PARKED, QueueState.ACTIVE)


def test_counts_are_of_pods_by_state() -> None:
    desk = Desk()
    parked = a_pod("parked", priority=9)
    desk.put(parked)
    desk.fail(parked)
    desk.put(a_pod("a"), *a_gang(3)[:2])
    assert (dict(desk.queue.counts()), len(desk.queue)) == (
        {QueueState.PARKED: 1, QueueState.ACTIVE: 1, QueueState.FORMING: 2},
        4,
    )
