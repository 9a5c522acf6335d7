"""Which gangs are partial: what was seen, what the API shows, and what is no evidence."""

from typing import Any

import pytest

from scheduler.gang.partial_gangs import PartialGangTracker
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.pod import Pod
from tests.unit.scheduler.bench import an_owner
from tests.unit.scheduler.builders import a_pod, pod_json

G = GangKey("ns", "g")


def member(index: int, *, owner: str | None = "job-1", **more: Any) -> Pod:
    """A bound member of a gang of three, made by a controller."""
    obj = pod_json(f"g-{index}", **{"node": "n", "gang": ("g", 3), **more})
    if owner is not None:
        obj["metadata"]["ownerReferences"] = [an_owner(owner)]
    return Pod.read(obj)


DONE = {"phase": "Succeeded"}


@pytest.mark.parametrize(
    ("story", "half"),
    [
        pytest.param([member(0)], True, id="one of three has a node"),
        pytest.param([member(0), member(1), member(2)], False, id="all have a node"),
        pytest.param(
            [member(0), member(1), member(2), member(2, status=DONE), member(1, status=DONE)],
            False,
            id="a gang that ends pod by pod was whole once",
        ),
        pytest.param(
            [member(0), member(1), member(2), member(2, deleted=True), member(1, deleted=True)],
            False,
            id="a gang that lost members was whole once",
        ),
        pytest.param(
            [member(0, status=DONE), member(1, status=DONE), member(2)],
            False,
            id="found ending: those that finished belong to the same controller",
        ),
        pytest.param(
            [
                member(0, status=DONE, owner="yesterday"),
                member(1, status=DONE, owner="yesterday"),
                member(2),
            ],
            True,
            id="finished pods of another run are no evidence",
        ),
        pytest.param(
            [member(0, status=DONE, owner=None), member(1, status=DONE, owner=None), member(2)],
            True,
            id="finished bare pods are no evidence",
        ),
        pytest.param(
            [
                *(member(i) for i in range(3)),
                *(member(i, status=DONE) for i in range(3)),
                member(3, owner="job-2"),
            ],
            True,
            id="a new run under the old name starts from nothing",
        ),
        pytest.param([a_pod("p", node="n")], False, id="no gang at all"),
    ],
)
def test_partial_gangs(story: list[Pod], half: bool) -> None:
    tracker = PartialGangTracker()
    for pod in story:
        tracker.put(pod)
    assert (tracker.is_partial(G), len(tracker)) == (half, int(half))


@pytest.mark.parametrize(
    ("phase", "half"),
    [
        pytest.param("Failed", True, id="siblings that failed count for nothing"),
        pytest.param("Succeeded", False, id="siblings that succeeded did their part"),
    ],
)
def test_a_witnessed_gang_counts_only_members_that_succeeded(phase: str, half: bool) -> None:
    tracker = PartialGangTracker()
    for i in range(2):
        tracker.put(member(i, status={"phase": phase}))
    tracker.start_binding(G)
    tracker.bound(member(2, node=None), "n")
    tracker.finish_binding(G)
    assert (tracker.is_partial(G), tracker.describe(G).witnessed) == (half, True)


def test_a_member_deleted_during_the_last_bind_leaves_the_gang_complete() -> None:
    tracker = PartialGangTracker()
    tracker.start_binding(G)
    for i in range(3):
        tracker.bound(member(i, node=None), "n")
    tracker.drop("uid-g-0")
    tracker.completed(G)
    tracker.finish_binding(G)
    assert tracker.is_partial(G) is False


def test_the_timeout_counts_from_the_first_tick_of_the_leader() -> None:
    tracker = PartialGangTracker()
    tracker.put(member(0))
    never = tracker.due_at(G)
    tracker.tick(50.0)
    tracker.tick(60.0)
    first = tracker.due_at(G)
    tracker.restart_timeout(G, 70.0)
    assert (never, first, tracker.due_at(G)) == (float("inf"), 60.15, 80.15)


def test_the_size_may_come_from_a_pod_group_that_changes() -> None:
    sizes: dict[GangKey, PodGroup] = {}
    tracker = PartialGangTracker(sizes.get)
    label = {"scheduling.x-k8s.io/pod-group": "g"}
    tracker.put(a_pod("a", node="n", labels=label))
    unknown = tracker.is_partial(G)
    sizes[G] = PodGroup(2, timeout=7.0)
    tracker.pod_group_changed(G)
    known, timeout = tracker.is_partial(G), tracker.describe(G).timeout
    sizes[G] = PodGroup(1)
    tracker.pod_group_changed(G)
    assert (unknown, known, timeout, tracker.is_partial(G)) == (False, True, 7.0, False)


def test_gangs_without_pods_are_forgotten() -> None:
    tracker = PartialGangTracker()
    for i in range(2):
        tracker.put(member(i))
    tracker.put(member(1, status=DONE))
    for i in range(2):
        tracker.drop(f"uid-g-{i}")
    assert (len(tracker), tracker.live(G), tracker.is_binding(G), vars(tracker)["_gangs"]) == (
        0,
        0,
        False,
        {},
    )
