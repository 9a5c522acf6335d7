"""Units in the queue: order, backoff, unschedulable and forming units."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.model.gang import GangKey
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey, key_of
from scheduler.plugins.protocol import QueueingHint
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import MAX_UNSCHEDULABLE, SchedulingQueue
from tests.unit.scheduler.builders import a_gang, a_pod
from tests.unit.scheduler.queueing.hinted import Classes


def always(_: Pod) -> QueueingHint:
    return QueueingHint.FITS


def never(_: Pod) -> QueueingHint:
    return QueueingHint.NONE


@dataclass
class QueueFixture:
    """A queue, its clock, and the number of bound members per gang."""

    now: float = 100.0
    bound: dict[GangKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.classes = Classes()
        self.queue = SchedulingQueue(
            bound=lambda gang: self.bound.get(gang, 0), observer=self.classes
        )

    def put(self, *pods: Pod) -> None:
        for pod in pods:
            self.queue.put(pod, self.now)

    def pop(self) -> list[str] | None:
        unit = self.queue.pop(self.now)
        return None if unit is None else [pod.key.name for pod in unit.pods]

    def fail(self, pod: Pod) -> None:
        assert self.pop() is not None
        self.queue.mark_unschedulable(key_of(pod), self.now)

    def take(self, *pods: Pod) -> None:
        self.queue.start_binding(key_of(pods[0]), [pod.uid for pod in pods], self.now)

    def move_to_active(self, hint: Callable[[Pod], QueueingHint]) -> None:
        self.queue.move_to_active(self.now, self.classes.hints(hint))

    def after(self, seconds: float) -> list[Unit]:
        self.now += seconds
        return self.queue.tick(self.now)

    def state(self, pod: Pod) -> QueueState | None:
        return self.queue.state(key_of(pod))


def test_units_come_out_by_priority_age_and_uid() -> None:
    fixture = QueueFixture()
    old = "2025-01-01T00:00:00Z"
    fixture.put(
        a_pod("c"), a_pod("b"), a_pod("old", created=old), a_pod("high", priority=1), *a_gang(2)
    )
    assert [fixture.pop() for _ in range(6)] == [
        ["high"],
        ["old"],
        ["b"],
        ["c"],
        ["g-0", "g-1"],
        None,
    ]


def test_a_changed_priority_moves_the_unit() -> None:
    fixture = QueueFixture()
    fixture.put(a_pod("a"), a_pod("b"), a_pod("b", priority=1))
    assert [fixture.pop(), fixture.pop(), fixture.pop()] == [["b"], ["a"], None]


def test_a_unit_that_did_not_fit_stays_unschedulable_until_an_event_may_help() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    fixture.fail(pod)
    fixture.after(60)
    fixture.move_to_active(never)
    unhelped = fixture.pop()
    fixture.move_to_active(always)
    assert (unhelped, fixture.pop()) == (None, ["p"])


def test_an_unschedulable_unit_is_tried_without_an_event_after_a_while() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    fixture.fail(pod)
    fixture.after(MAX_UNSCHEDULABLE - 1)
    early = fixture.pop()
    fixture.after(1)
    assert (early, fixture.pop()) == (None, ["p"])


def test_backoff_doubles_from_one_second_to_ten() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    waits = []
    for _ in range(6):
        fixture.fail(pod)
        fixture.move_to_active(always)
        due = fixture.queue.next_at()
        assert due is not None
        waits.append(due - fixture.now)
        fixture.after(waits[-1] - 0.001)
        assert fixture.pop() is None
        fixture.after(0.002)
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10])


def test_a_unit_that_an_event_helps_after_its_backoff_is_tried_at_once() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    fixture.fail(pod)
    fixture.after(1.5)
    fixture.move_to_active(always)
    assert fixture.state(pod) is QueueState.ACTIVE


def test_a_pod_whose_bind_failed_backs_off() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    fixture.pop()
    fixture.take(pod)
    fixture.queue.requeue([pod], fixture.now)
    early = fixture.pop()
    fixture.after(1.0)
    assert (early, fixture.pop()) == (None, ["p"])


def test_a_gang_whose_binds_all_failed_is_requeued_with_all_members() -> None:
    fixture, pods = QueueFixture(), a_gang(3)
    fixture.put(*pods)
    fixture.pop()
    fixture.take(*pods)
    fixture.queue.requeue(pods, fixture.now)
    state = fixture.state(pods[0])
    fixture.after(1.0)
    assert (state, fixture.pop()) == (QueueState.BACKOFF, ["g-0", "g-1", "g-2"])


@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(lambda fixture, pods: None, QueueState.FORMING, id="a member is missing"),
        pytest.param(
            lambda fixture, pods: fixture.put(pods[2]),
            QueueState.ACTIVE,
            id="the last one was added",
        ),
        pytest.param(
            lambda fixture, pods: (
                fixture.bound.update({GangKey("ns", "g"): 1}),
                fixture.queue.members_changed(GangKey("ns", "g"), fixture.now),
            ),
            QueueState.ACTIVE,
            id="a member was found to have a node",
        ),
        pytest.param(
            lambda fixture, pods: (
                fixture.put(pods[2]),
                fixture.queue.remove(pods[0].uid, fixture.now),
            ),
            QueueState.FORMING,
            id="a member was deleted",
        ),
        pytest.param(
            lambda fixture, pods: [fixture.queue.remove(pod.uid, fixture.now) for pod in pods[:2]],
            None,
            id="all were deleted",
        ),
    ],
)
def test_forming(act: Callable[[QueueFixture, list[Pod]], object], want: QueueState | None) -> None:
    fixture, pods = QueueFixture(), a_gang(3)
    fixture.put(*pods[:2])
    act(fixture, pods)
    assert fixture.state(pods[0]) is want


def test_a_forming_gang_is_reported_when_it_has_settled_and_at_its_timeout() -> None:
    fixture, pods = QueueFixture(), a_gang(4)
    reported: list[tuple[float, int]] = []
    fixture.put(pods[0])
    for step in range(60):
        if step == 2:
            fixture.put(pods[1])
        reported += [(fixture.now - 100.0, unit.existing) for unit in fixture.after(0.25)]
    assert reported == [(1.5, 2), (10.25, 2)]


def test_a_gang_that_lost_a_bound_member_forms_again_instead_of_being_planned() -> None:
    fixture, pods = QueueFixture(bound={GangKey("ns", "g"): 1}), a_gang(3)
    fixture.put(*pods[:2])
    fixture.bound.clear()
    assert (fixture.pop(), fixture.state(pods[0])) == (None, QueueState.FORMING)


def test_a_unit_that_forms_again_does_not_end_the_pass() -> None:
    fixture, pods = QueueFixture(bound={GangKey("ns", "g"): 1}), a_gang(3, priority=1)
    fixture.put(*pods[:2], a_pod("low"))
    fixture.bound.clear()
    assert (fixture.pop(), fixture.state(pods[0])) == (["low"], QueueState.FORMING)


def test_an_unschedulable_gang_is_tried_when_a_member_is_added() -> None:
    fixture, pods = QueueFixture(), a_gang(3, size=2)
    fixture.put(*pods[:2])
    fixture.fail(pods[0])
    fixture.after(2)
    fixture.put(pods[2])
    assert fixture.pop() == ["g-0", "g-1", "g-2"]


def test_the_rest_of_a_gang_keeps_waiting() -> None:
    fixture, pods = QueueFixture(), a_gang(3, size=2)
    fixture.put(*pods)
    fixture.pop()
    fixture.bound[GangKey("ns", "g")] = 2
    fixture.take(*pods[:2])
    fixture.queue.mark_unschedulable(key_of(pods[0]), fixture.now)
    fixture.after(1)
    fixture.move_to_active(always)
    assert fixture.pop() == ["g-2"]


def test_an_unchanged_pod_is_not_tried_again() -> None:
    fixture, pod = QueueFixture(), a_pod()
    fixture.put(pod)
    fixture.fail(pod)
    fixture.after(30)
    fixture.put(a_pod())
    unchanged = fixture.state(pod)
    fixture.put(a_pod(cpu="2"))
    assert (unchanged, fixture.state(pod)) == (QueueState.UNSCHEDULABLE, QueueState.ACTIVE)


def test_counts_are_of_pods_by_state() -> None:
    fixture = QueueFixture()
    large = a_pod("large", priority=9)
    fixture.put(large)
    fixture.fail(large)
    fixture.put(a_pod("a"), *a_gang(3)[:2])
    assert (dict(fixture.queue.counts()), len(fixture.queue)) == (
        {QueueState.UNSCHEDULABLE: 1, QueueState.ACTIVE: 1, QueueState.FORMING: 2},
        4,
    )


def quarantine(fixture: QueueFixture, pod: Pod) -> float | None:
    return fixture.queue.quarantine(key_of(pod), fixture.now, "Bug: x")


def test_a_quarantined_unit_waits_longer_after_each_error() -> None:
    fixture, pod = QueueFixture(), a_pod("p")
    fixture.put(pod)
    delays = []
    for _ in range(8):
        assert fixture.pop() == ["p"]
        delay = quarantine(fixture, pod)
        assert delay is not None
        delays.append(delay)
        fixture.after(delay - 0.1)
        assert (fixture.pop(), fixture.state(pod)) == (None, QueueState.QUARANTINED)
        fixture.after(0.1)
    assert delays == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_a_unit_that_was_tried_without_an_error_is_quarantined_shortly_again() -> None:
    fixture, pod = QueueFixture(), a_pod("p")
    fixture.put(pod)
    for _ in range(3):
        fixture.pop()
        quarantine(fixture, pod)
        fixture.after(300.0)
    fixture.pop()
    fixture.queue.mark_unschedulable(key_of(pod), fixture.now)
    fixture.queue.tried(key_of(pod))
    fixture.move_to_active(always)
    fixture.after(10.0)
    assert (fixture.pop(), quarantine(fixture, pod)) == (["p"], 5.0)


CONDITION = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError", "message": "m"}


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"cpu": "2"}, QueueState.BACKOFF, id="another request"),
        pytest.param({"labels": {"a": "b"}}, QueueState.BACKOFF, id="another label"),
        pytest.param(
            {"annotations": {"scheduling.kubenexus.io/expected-duration": "1h"}},
            QueueState.BACKOFF,
            id="another annotation that the scheduler reads",
        ),
        pytest.param(
            {"status": {"conditions": [CONDITION]}},
            QueueState.QUARANTINED,
            id="the condition that the scheduler wrote",
        ),
        pytest.param({}, QueueState.QUARANTINED, id="nothing"),
    ],
)
def test_a_quarantined_unit_that_its_user_changes_is_tried_after_its_backoff(
    change: dict[str, Any], want: QueueState
) -> None:
    fixture, pod = QueueFixture(), a_pod("p")
    fixture.put(pod)
    fixture.pop()
    quarantine(fixture, pod)
    fixture.put(a_pod("p", **change))
    tried = fixture.after(1.0), fixture.pop()
    assert (tried[1] is not None) is (want is QueueState.BACKOFF)


def test_a_quarantined_unit_ends_with_its_last_pod() -> None:
    fixture, pod = QueueFixture(), a_pod("p")
    fixture.put(pod)
    fixture.pop()
    quarantine(fixture, pod)
    fixture.queue.remove(pod.uid, fixture.now)
    assert (fixture.state(pod), fixture.queue.quarantined(), quarantine(fixture, pod)) == (
        None,
        0,
        None,
    )


def test_a_quarantined_probe_hands_over_to_its_next_equal() -> None:
    fixture = QueueFixture()
    equals = [a_pod(f"p{number}") for number in range(2)]
    fixture.put(*equals)
    for pod in equals:
        fixture.fail(pod)
    fixture.now += 10.0
    fixture.move_to_active(always)
    assert fixture.pop() == ["p0"]
    quarantine(fixture, equals[0])
    assert fixture.pop() == ["p1"]


def test_an_error_about_one_unit_stops_no_timer_of_another() -> None:
    """The size of gang g cannot be read for a while."""
    broken, heard = [False], []

    def bound(gang: GangKey) -> int:
        if broken[0] and gang.name == "g":
            raise OverflowError
        return 0

    def on_error(key: UnitKey, error: Exception) -> None:
        heard.append((str(key), type(error)))
        queue.quarantine(key, now, str(error))

    now, queue = 100.0, SchedulingQueue(bound=bound, on_error=on_error)
    for pod in (a_pod(f"{gang}-{i}", gang=(gang, 2)) for gang in "gh" for i in range(2)):
        queue.put(pod, now)
    for _ in range(2):
        unit = queue.pop(now)
        assert unit is not None
        queue.requeue(unit.pods, now)
    broken[0] = True
    now += 10.0
    queue.tick(now)
    popped = [unit.key.name for unit in iter(lambda: queue.pop(now), None)]
    assert (popped, heard) == (["h"], [("ns/g", OverflowError)])
    broken[0] = False
    now += 5.0
    queue.tick(now)
    unit = queue.pop(now)
    assert unit is not None
    assert unit.key.name == "g"
