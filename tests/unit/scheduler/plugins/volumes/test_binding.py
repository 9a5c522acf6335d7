"""Volumes inside a plan: assumed volumes are not given twice, and a trial leaves no state."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import units
from scheduler.plan import planner
from scheduler.plugins.volumes.binding import VolumeDecision
from tests.unit.scheduler.builders import a_node, a_pod
from tests.unit.scheduler.plugins.volumes.builders import (
    CLASSES,
    MADE,
    a_claim,
    a_csi_node,
    a_csi_volume,
    a_volume,
    mounting,
    put,
)


def a_host(name: str, cpu: str = "4") -> Node:
    return a_node(name, cpu=cpu, labels={vocabulary.HOSTNAME_LABEL: name})


def gang_members(*volumes: tuple[str, ...], cpu: str = "1") -> list[Pod]:
    return [
        a_pod(f"m{number}", gang=("g", len(volumes)), cpu=cpu, volumes=mounting(*claims))
        for number, claims in enumerate(volumes)
    ]


def nodes_of(found: object) -> dict[str, str]:
    assert isinstance(found, Placed), found
    return {one.pod.key.name: one.node for one in found.placements}


def planned(snapshot: Snapshot, pods: list[Pod]) -> Placed | NoFit:
    """Plan, and check that the state is as before."""
    before = snapshot.state()
    (unit,) = units(pods)
    found = planner.plan(unit, snapshot)
    assert snapshot.state() == before
    return found


def test_members_with_own_pvcs_go_to_their_volumes() -> None:
    snapshot = Snapshot.of([a_host("a"), a_host("b"), a_host("c")])
    put(snapshot, *CLASSES, a_claim("c0"), a_claim("c1"), a_volume("pa", on="a"))
    assert isinstance(planned(snapshot, gang_members(("c0",), ("c1",))), NoFit)
    put(snapshot, a_volume("pb", on="b"))
    found = nodes_of(planned(snapshot, gang_members(("c0",), ("c1",))))
    assert sorted(found.values()) == ["a", "b"]


def test_one_disk_is_not_given_to_two_members() -> None:
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c0"), a_claim("c1"), a_volume("pa", on="a"))
    found = planned(snapshot, gang_members(("c0",), ("c1",)))
    assert isinstance(found, NoFit)
    assert "1 node(s) didn't find available persistent volumes to bind" in found.text


def test_members_that_share_a_pvc_follow_the_first_of_them() -> None:
    """The volume is made for one node: all pods that mount it go there, or none."""
    snapshot = Snapshot.of([a_host("a"), a_host("b")])
    put(snapshot, *CLASSES, a_claim("shared", class_name=MADE))
    found = nodes_of(planned(snapshot, gang_members(*[("shared",)] * 4)))
    assert set(found.values()) == {"a"}
    assert isinstance(planned(snapshot, gang_members(*[("shared",)] * 5)), NoFit)


def test_members_cannot_share_a_read_write_once_pod_claim() -> None:
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c", volume="pv", modes=("ReadWriteOncePod",)), a_volume())
    found = planned(snapshot, gang_members(("c",), ("c",)))
    assert isinstance(found, NoFit)
    assert "ReadWriteOncePod access mode already in-use by another pod" in found.text


def test_limits_hold_inside_a_plan() -> None:
    snapshot = Snapshot.of([a_host("a", cpu="8"), a_host("b", cpu="8")])
    claims = [a_claim(f"c{n}", class_name=MADE) for n in range(4)]
    put(snapshot, *CLASSES, *claims, a_csi_node("a", csi=2), a_csi_node("b", csi=2))
    found = nodes_of(planned(snapshot, gang_members(*[(f"c{n}",) for n in range(4)])))
    assert sorted(found.values()) == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("pod", "affects_equal_pods", "shares_node"),
    [
        pytest.param(a_pod(), False, False, id="no volumes"),
        pytest.param(a_pod(volumes=mounting("bound")), False, False, id="a bound volume"),
        pytest.param(a_pod(volumes=mounting("one")), True, False, id="a claim for one pod"),
        pytest.param(a_pod(volumes=mounting("late")), True, True, id="a late claim"),
        pytest.param(a_pod(volumes=mounting("bound", "late")), True, True, id="one of each"),
        pytest.param(a_pod(volumes=mounting("none")), False, False, id="a claim that is not there"),
        pytest.param(
            a_pod(volumes=[{"name": "d", "rbd": {"image": "i"}}]), True, False, id="a disk"
        ),
    ],
)
def test_affects_equal_pods(pod: Pod, affects_equal_pods: bool, shares_node: bool) -> None:
    snapshot = Snapshot.of([a_host("a")])
    one = a_claim("one", volume="pw", modes=("ReadWriteOncePod",))
    put(snapshot, *CLASSES, a_claim("late"), a_claim("bound", volume="pv"), a_volume("pv"))
    put(snapshot, one, a_volume("pw"))
    assert snapshot.volumes.affects_equal_pods(pod) is affects_equal_pods
    assert snapshot.volumes.shares_node(pod) is shares_node


# --- assumed volumes ---


def test_a_placed_pod_has_an_assumed_volume_until_it_is_uncharged() -> None:
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c0"), a_claim("c1"), a_volume("pa", on="a"))
    first, second = gang_members(("c0",), ("c1",))
    snapshot.place(first, "a")
    assert snapshot.volumes.decision(first, "a") == VolumeDecision(
        static_bindings=((("ns", "c0"), "pa"),)
    )
    assert isinstance(planner.plan(units([a_pod(volumes=mounting("c1"))])[0], snapshot), NoFit)
    snapshot.release(first, "a")
    snapshot.place(second, "a")
    assert snapshot.volumes.decision(second, "a") == VolumeDecision(
        static_bindings=((("ns", "c1"), "pa"),)
    )


def test_the_api_takes_over_an_assumed_volume() -> None:
    """Bound to another volume, the claim no longer keeps the assumed one from others."""
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c0"), a_claim("c1"), a_volume("pa", on="a"))
    first, second = gang_members(("c0",), ("c1",))
    snapshot.place(first, "a")
    put(snapshot, a_volume("px", on="a", claim="c0", phase="Bound"), a_claim("c0", volume="px"))
    snapshot.place(second, "a")
    assert snapshot.volumes.decision(second, "a") == VolumeDecision(
        static_bindings=((("ns", "c1"), "pa"),)
    )


def test_pods_share_an_assumed_volume() -> None:
    snapshot = Snapshot.of([a_host("a"), a_host("b")])
    put(snapshot, *CLASSES, a_claim("shared", class_name=MADE))
    first, second, third = gang_members(("shared",), ("shared",), ("shared",))
    snapshot.place(first, "a")
    snapshot.place(second, "a")
    snapshot.release(first, "a")
    assert nodes_of(planner.plan(units([a_pod(volumes=mounting("shared"))])[0], snapshot)) == {
        "p": "a"
    }
    snapshot.release(second, "a")
    snapshot.place(third, "b")
    assert snapshot.volumes.decision(third, "b") == VolumeDecision(provisions=(("ns", "shared"),))


def test_pods_with_a_node_get_no_assumed_volume() -> None:
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c0"), a_volume("pa", on="a"))
    running = a_pod("running", node="a", volumes=mounting("c0"))
    snapshot.charge(running, "a")
    assert not snapshot.volumes.decision(running, "a")


def test_a_pod_on_a_node_without_a_volume_has_unmatched_pvcs() -> None:
    """What changed between plan and assumption is found out before anything is written."""
    snapshot = Snapshot.of([a_host("a")])
    put(snapshot, *CLASSES, a_claim("c0"))
    (pod,) = gang_members(("c0",))
    snapshot.place(pod, "a")
    assert snapshot.volumes.decision(pod, "a") == VolumeDecision(unmatched=(("ns", "c0"),))


# --- every step is undone exactly ---

CLAIMS = ("late-0", "late-1", "made", "bound", "one-pod")


def a_snapshot_with_volumes() -> Snapshot:
    snapshot = Snapshot.of([a_host("a", cpu="64"), a_host("b", cpu="64")])
    put(
        snapshot,
        *CLASSES,
        a_claim("late-0"),
        a_claim("late-1", size="5Gi"),
        a_claim("made", class_name=MADE),
        a_claim("bound", volume="pv"),
        a_csi_volume("pv"),
        a_claim("one-pod", volume="pw", modes=("ReadWriteOncePod",)),
        a_csi_volume("pw"),
        *(a_volume(f"{node}{n}", on=node, size=f"{n + 1}Gi") for node in "ab" for n in (0, 3, 6)),
        a_csi_node("a", csi=2),
    )
    return snapshot


@st.composite
def steps(draw: st.DrawFn) -> list[Pod]:
    return [
        a_pod(
            f"p{number}",
            volumes=[
                *mounting(*draw(st.lists(st.sampled_from(CLAIMS), max_size=3))),
                *draw(st.sampled_from([[], [{"name": "d", "rbd": {"image": "i"}}]])),
            ],
            node=draw(st.sampled_from([None, None, "a"])),
        )
        for number in range(draw(st.integers(1, 6)))
    ]


def answers(snapshot: Snapshot) -> list[object]:
    """All results for pods that may come."""
    return [
        [
            (reason, rows.tolist())
            for reason, rows in snapshot.volumes.filter(
                a_pod(volumes=mounting(*claims)), snapshot.table.alive
            )
        ]
        for claims in (("late-0",), ("late-1", "late-0"), ("made",), ("bound",), ("one-pod",))
    ]


@settings(max_examples=60, deadline=None)
@given(steps(), st.randoms(use_true_random=False))
def test_uncharge_is_the_exact_opposite_of_charge(pods: list[Pod], rng: random.Random) -> None:
    """In any order, the state is the same as before."""
    snapshot = a_snapshot_with_volumes()
    state, answered = snapshot.state(), answers(snapshot)
    taken = [(pod, rng.choice([0, 1])) for pod in pods]
    for pod, row in taken:
        snapshot.volumes.charge(pod, row, NO_ASSIGNMENT)
        if rng.random() < 0.5:
            answers(snapshot)
    rng.shuffle(taken)
    for pod, row in taken:
        snapshot.volumes.uncharge(pod, row, NO_ASSIGNMENT)
    assert (snapshot.state(), answers(snapshot)) == (state, answered)


@settings(max_examples=30, deadline=None)
@given(steps())
def test_a_deleted_node_leaves_no_state(pods: list[Pod]) -> None:
    snapshot = a_snapshot_with_volumes()
    for pod in pods:
        snapshot.volumes.charge(pod, 0, NO_ASSIGNMENT)
    snapshot.volumes.drop(0)
    fresh = a_snapshot_with_volumes()
    assert (snapshot.state(), answers(snapshot)) == (fresh.state(), answers(fresh))


@pytest.mark.parametrize("late", [True, False], ids=["made for its first pod", "bound at once"])
def test_objects_may_arrive_in_any_order(late: bool) -> None:
    """Watches keep no order among each other: the last state counts, not the order of events."""
    claim = a_claim(class_name=MADE) if late else a_claim(volume="pv")
    objects = [*CLASSES, claim, a_csi_volume("pv"), a_csi_node("a", csi=0), a_csi_node("b", csi=1)]
    want = None
    for seed in range(6):
        random.Random(seed).shuffle(objects)
        snapshot = Snapshot.of([a_host("a"), a_host("b")])
        snapshot.charge(a_pod("s", node="b", volumes=mounting("data")), "b")
        for obj in objects:
            put(snapshot, obj)
            list(snapshot.volumes.filter(a_pod(volumes=mounting("data")), snapshot.table.alive))
        answered = [
            (reason, rows.tolist())
            for reason, rows in snapshot.volumes.filter(
                a_pod(volumes=mounting("data")), snapshot.table.alive
            )
        ]
        want = answered if want is None else want
        assert answered == want
    assert want
