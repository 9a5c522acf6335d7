"""What the scheduler answers to a request for the reasons why a pod waits."""

from typing import Any

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.explain.inspection import Inspection
from scheduler.explain.response import answer
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.queueing.entry import QueueState, UnitView
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

NOW = 100.0


def waiting(
    pods: list[Pod], snapshot: Snapshot, state: QueueState = QueueState.UNSCHEDULABLE
) -> Inspection:
    """Pods that were planned three times, the last time on this snapshot."""
    unit = Unit(key_of(pods[0]), tuple(pods))
    plan = planner.plan(unit, snapshot)
    why = plan if isinstance(plan, NoFit) and not plan.forming else None
    return Inspection(pods[0], UnitView(unit, state, 3, 40.0, 40.0, why))


def explanation_of(
    seen: Inspection, snapshot: Snapshot, *members: tuple[Pod, str]
) -> dict[str, Any]:
    before = snapshot.state()
    found = answer(seen, snapshot, Memo(), members=members, now=NOW)
    assert snapshot.state() == before
    return found


def test_a_pod_that_does_not_fit() -> None:
    snapshot = Snapshot.of([a_node("a", cpu="2"), a_node("b", cpu="3")])
    assert explanation_of(waiting([a_pod(cpu="4")], snapshot), snapshot) == {
        "pod": "ns/p",
        "state": "unschedulable",
        "waited": 60.0,
        "attempts": 3,
        "message": "0/2 nodes are available: 2 Insufficient cpu.",
        "reasons": [{"reason": "Insufficient cpu", "nodes": 2}],
        "changes": ["request at most 3 cpu instead of 4: node b has it"],
        "nearest": {
            "node": "b",
            "reasons": ["Insufficient cpu"],
            "short": [{"resource": "cpu", "requested": "4", "free": "3"}],
        },
    }


def test_a_gang_whose_members_fit_one_by_one_and_not_together() -> None:
    snapshot = Snapshot.of([a_node("a", cpu="2")])
    pods = a_gang(3, cpu="1")
    found = explanation_of(waiting(pods, snapshot), snapshot, *((pod, "") for pod in pods))
    assert found == {
        "pod": "ns/g-0",
        "state": "unschedulable",
        "waited": 60.0,
        "attempts": 3,
        "message": "0/1 nodes are available: 1 Insufficient cpu. "
        "waiting for pod group g: 2/3 members fit",
        "reasons": [{"reason": "Insufficient cpu", "nodes": 1}],
        "changes": ["free capacity for 1 more pod of pod group g"],
        "nearest": {
            "node": "a",
            "reasons": ["Insufficient cpu"],
            "short": [{"resource": "cpu", "requested": "1", "free": "0"}],
        },
        "gang": {
            "name": "g",
            "size": 3,
            "exist": 3,
            "bound": 0,
            "members": [{"pod": f"g-{i}", "state": "waiting", "node": ""} for i in range(3)],
        },
    }


def test_a_gang_that_forms() -> None:
    snapshot = Snapshot.of([a_node("a")])
    (pod,) = a_gang(1, size=2)
    found = explanation_of(waiting([pod], snapshot, QueueState.FORMING), snapshot, (pod, ""))
    assert found == {
        "pod": "ns/g-0",
        "state": "its pod group is forming",
        "waited": 60.0,
        "attempts": 3,
        "gang": {
            "name": "g",
            "size": 2,
            "exist": 1,
            "bound": 0,
            "members": [{"pod": "g-0", "state": "waiting", "node": ""}],
        },
    }


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(
            Inspection(a_pod(), None, node="a"), {"pod": "ns/p", "node": "a"}, id="has its node"
        ),
        pytest.param(
            Inspection(a_pod(schedulingGates=[{"name": "example.com/wait"}]), None),
            {"pod": "ns/p", "state": "behind scheduling gates: example.com/wait"},
            id="is gated",
        ),
        pytest.param(
            Inspection(a_pod(deleted=True), None),
            {"pod": "ns/p", "state": "being deleted"},
            id="is being deleted",
        ),
    ],
)
def test_pods_that_do_not_wait(seen: Inspection, want: dict[str, Any]) -> None:
    assert explanation_of(seen, Snapshot()) == want
