"""Where the planner places units, and what it reports when they fit nowhere."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of, order
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

TAINT = {"key": "only", "value": "gpu", "effect": "NoSchedule"}


def unit_of(*pods: Pod, bound: int = 0) -> Unit:
    return Unit(key_of(pods[0]), tuple(sorted(pods, key=order)), bound)


def outcome(unit: Unit, snapshot: Snapshot) -> dict[str, str] | str:
    """Node by pod name, or the text of the refusal."""
    match planner.plan(unit, snapshot):
        case Placed() as plan:
            return {one.pod.key.name: one.node for one in plan.placements}
        case NoFit() as misfit:
            return misfit.text


@pytest.mark.parametrize(
    ("nodes", "pod", "want"),
    [
        pytest.param(
            [a_node("a", gpus=4), a_node("b", gpus=2)], {"gpus": 2}, "b", id="the tightest wins"
        ),
        pytest.param(
            [a_node("b", cpu="2"), a_node("a", cpu="2")],
            {"cpu": "2"},
            "a",
            id="equals go to the first name",
        ),
        pytest.param(
            [a_node("a", cpu="8", gpus=8), a_node("b", cpu="64")],
            {"cpu": "2"},
            "b",
            id="a host with GPUs is kept for pods that request them",
        ),
        pytest.param(
            [a_node("a", gpus=8), a_node("b", cpu="1")],
            {"cpu": "2"},
            "a",
            id="a GPU host takes other pods if no other host has capacity",
        ),
        pytest.param(
            [a_node("a", cpu="64", gpus=8), a_node("b", cpu="128", gpus=2)],
            {"cpu": "2", "gpus": 2},
            "b",
            id="for a GPU pod the GPUs left decide",
        ),
        pytest.param(
            [a_node("a"), a_node("b", labels={"disk": "ssd"})],
            {"nodeSelector": {"disk": "ssd"}},
            "b",
            id="the node selector is obeyed",
        ),
        pytest.param(
            [a_node("a", taints=[TAINT]), a_node("b", taints=[TAINT])],
            {"tolerations": [{"key": "only", "operator": "Exists"}]},
            "a",
            id="a toleration opens tainted nodes",
        ),
        pytest.param(
            [a_node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])],
            {},
            "a",
            id="a soft taint does not filter",
        ),
        pytest.param(
            [a_node("a", unschedulable=True)],
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            "a",
            id="a cordon can be tolerated",
        ),
    ],
)
def test_node_choice(nodes: list[Node], pod: dict[str, Any], want: str) -> None:
    assert outcome(unit_of(a_pod(**pod)), Snapshot.of(nodes)) == {"p": want}


@pytest.mark.parametrize(
    ("nodes", "pod", "want"),
    [
        pytest.param([], {}, "no nodes available to schedule pods", id="an empty cluster"),
        pytest.param(
            [a_node("a"), a_node("b")],
            {"cpu": "5", "memory": "17Gi"},
            "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory.",
            id="every short resource is named",
        ),
        pytest.param(
            [a_node("a", pods="0")],
            {},
            "0/1 nodes are available: 1 Too many pods.",
            id="the number of pods is a resource with a text of its own",
        ),
        pytest.param(
            [a_node("a", taints=[TAINT]), a_node("b", unschedulable=True), a_node("c")],
            {"cpu": "5"},
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable.",
            id="each node gives its first reason",
        ),
        pytest.param(
            [*(a_node(f"n{i}", cpu="1") for i in range(10)), a_node("x", taints=[TAINT])],
            {"cpu": "2"},
            "0/11 nodes are available: 1 node(s) had untolerated taint(s), 10 Insufficient cpu.",
            id="reasons are sorted as texts",
        ),
        pytest.param(
            [a_node("a", taints=[TAINT])],
            {"tolerations": [{"key": "only", "value": "cpu", "effect": "NoSchedule"}]},
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            id="a toleration of another value does not help",
        ),
        pytest.param(
            [a_node("a", labels={"disk": "hdd"}), a_node("b")],
            {"nodeSelector": {"disk": "ssd"}},
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            id="no node has the label",
        ),
        pytest.param(
            [a_node("a"), a_node("b")],
            {"gpus": 1},
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
            id="a resource that no node has",
        ),
        pytest.param(
            [a_node("a")],
            {"numa": "single-numa"},
            "0/1 nodes are available: no nodes with NUMA topology.",
            id="a strict NUMA policy where no host tells its NUMA nodes",
        ),
        pytest.param(
            [a_node("a"), a_node("b", zones=2)],
            {"numa": "single-numa", "cpu": "3"},
            "0/2 nodes are available: 1 no single NUMA node has sufficient capacity: need cpu 3; largest free cpu 2, "
            "1 node(s) had no NUMA topology.",
            id="too large for one NUMA node",
        ),
        pytest.param(
            [a_node("a", zones=2)],
            {"numa": "single-numa", "cpu": "5"},
            "0/1 nodes are available: 1 Insufficient cpu.",
            id="NUMA nodes are not checked on a host that is too small as a whole",
        ),
        pytest.param(
            [a_node("a", gpus=2, labels={vocabulary.GFD_MEMORY_LABEL: "40960"})],
            {"gpus": 2, "annotations": {vocabulary.VRAM_ANNOTATION: "160Gi"}},
            "0/1 nodes are available: 1 insufficient VRAM: need 80Gi per GPU, largest 40Gi.",
            id="GPUs with too little memory",
        ),
        pytest.param(
            [a_node("a")],
            {"resourceClaims": [{"name": "gpu"}]},
            "0/1 nodes are available: requests a resource claim by neither name nor template, "
            "which this scheduler does not support.",
            id="an unsupported request is named",
        ),
    ],
)
def test_unschedulable_pods(nodes: list[Node], pod: dict[str, Any], want: str) -> None:
    assert outcome(unit_of(a_pod(**pod)), Snapshot.of(nodes)) == want


def test_a_gpu_sold_as_80_gb_satisfies_80gi() -> None:
    node = a_node("a", gpus=1, labels={vocabulary.GFD_MEMORY_LABEL: "81559"})
    pod = a_pod(gpus=1, annotations={vocabulary.VRAM_ANNOTATION: "80Gi"})
    assert outcome(unit_of(pod), Snapshot.of([node])) == {"p": "a"}


@pytest.mark.parametrize(
    ("by", "want"),
    [
        pytest.param("policy", {"p": "a"}, id="a default counts a silent host as one NUMA node"),
        pytest.param(
            "user",
            "0/1 nodes are available: no nodes with NUMA topology.",
            id="a user's requirement needs a host that reports its NUMA nodes",
        ),
    ],
)
def test_the_origin_of_a_strict_policy(by: str, want: dict[str, str] | str) -> None:
    profile = f'{{"numa":{{"policy":"single-numa","by":"{by}"}}}}'
    pod = a_pod(numa="single-numa", annotations={vocabulary.PROFILE_ANNOTATION: profile})
    assert outcome(unit_of(pod), Snapshot.of([a_node("a")])) == want


@pytest.mark.parametrize(
    ("nodes", "pods", "bound", "want"),
    [
        pytest.param(
            [a_node("a", cpu="2"), a_node("b", cpu="8"), a_node("c", cpu="4")],
            a_gang(4),
            0,
            {"g-0": "c", "g-1": "c", "g-2": "c", "g-3": "c"},
            id="the tightest node that holds all",
        ),
        pytest.param(
            [a_node("a", cpu="1"), a_node("b", cpu="3"), a_node("c", cpu="2")],
            a_gang(5),
            0,
            {"g-0": "b", "g-1": "b", "g-2": "b", "g-3": "c", "g-4": "c"},
            id="the fewest nodes, the last one tight",
        ),
        pytest.param(
            [a_node("a", cpu="1"), a_node("b", cpu="1"), a_node("c", cpu="1")],
            a_gang(4),
            0,
            "0/3 nodes are available: 3 Insufficient cpu. waiting for pod group g: 3/4 members fit",
            id="all or nothing",
        ),
        pytest.param(
            [a_node("a", cpu="3")],
            a_gang(4, size=3),
            0,
            {"g-0": "a", "g-1": "a", "g-2": "a"},
            id="members above the size follow only if they fit",
        ),
        pytest.param(
            [a_node("a", cpu="1")],
            a_gang(2, size=4)[:1],
            3,
            {"g-0": "a"},
            id="members that have a node count",
        ),
        pytest.param(
            [a_node("a", cpu="1")],
            a_gang(1, size=4, cpu="2"),
            4,
            "0/1 nodes are available: 1 Insufficient cpu.",
            id="a member above the size waits for a node alone",
        ),
        pytest.param(
            [a_node("a")],
            a_gang(4)[:2],
            1,
            "waiting for pod group g: 3/4 pods exist",
            id="a forming gang is not planned",
        ),
        pytest.param(
            [a_node("a", cpu="8", gpus=2), a_node("b", cpu="64")],
            [a_pod("lead", gang=("g", 2), cpu="2"), a_pod("work", gang=("g", 2), gpus=2)],
            0,
            {"work": "a", "lead": "a"},
            id="unequal members share a node although another is free of GPUs",
        ),
        pytest.param(
            [a_node("a", cpu="4"), a_node("b", cpu="3")],
            [
                a_pod("big", gang=("g", 2), cpu="3"),
                a_pod("small", gang=("g", 2), cpu="1"),
                a_pod("late", gang=("g", 2), cpu="4"),
            ],
            0,
            {"late": "a", "big": "b"},
            id="the most demanding members go first",
        ),
        pytest.param(
            [a_node("a", cpu="3")],
            [
                a_pod("big", gang=("g", 3), cpu="3"),
                *(a_pod(f"small-{i}", gang=("g", 3)) for i in range(3)),
            ],
            0,
            {"small-0": "a", "small-1": "a", "small-2": "a"},
            id="the least demanding go first when that alone completes the gang",
        ),
        pytest.param(
            [a_node("a", cpu="2"), a_node("b", cpu="1")],
            [a_pod("one", gang=("g", 2)), a_pod("bad", gang=("g", 2), resourceClaims=[{}])],
            0,
            "0/2 nodes are available: requests a resource claim by neither name nor template, "
            "which this scheduler does not support. waiting for pod group g: 1/2 members fit",
            id="one member with an unsupported request stops the gang",
        ),
    ],
)
def test_gangs(nodes: list[Node], pods: list[Pod], bound: int, want: dict[str, str] | str) -> None:
    snapshot = Snapshot.of(nodes)
    before = snapshot.state()
    assert (outcome(unit_of(*pods, bound=bound), snapshot), snapshot.state()) == (want, before)


def test_unplaced_members_get_their_reasons() -> None:
    plan = planner.plan(unit_of(*a_gang(3, size=2)), Snapshot.of([a_node("a", cpu="2")]))
    assert isinstance(plan, Placed)
    assert (
        [pod.key.name for pod in plan.unplaced],
        plan.why_unplaced and plan.why_unplaced.text,
    ) == (
        ["g-2"],
        "0/1 nodes are available: 1 Insufficient cpu.",
    )


def test_a_memoised_misfit_ends_when_capacity_is_freed() -> None:
    holder = a_pod("holder", cpu="4")
    snapshot, memo = Snapshot.of([a_node("a")], [(holder, "a")]), planner.Memo()
    unit = unit_of(a_pod())
    first = planner.plan(unit, snapshot, memo=memo)
    again = planner.plan(unit, snapshot, memo=memo)
    snapshot.release(holder, "a")
    now = planner.plan(unit, snapshot, memo=memo)
    assert (first, type(now)) == (again, Placed)


def test_a_memoised_misfit_does_not_name_another_gang() -> None:
    snapshot, memo = Snapshot.of([a_node("a", cpu="1")]), planner.Memo()
    texts = [
        plan.text
        for name in ("first", "second")
        if isinstance(
            plan := planner.plan(unit_of(*a_gang(2, name=name)), snapshot, memo=memo), NoFit
        )
    ]
    assert [text.partition("group ")[2] for text in texts] == [
        "first: 1/2 members fit",
        "second: 1/2 members fit",
    ]


def test_statics_follow_a_changed_node() -> None:
    snapshot, memo = Snapshot.of([a_node("a")]), planner.Memo()
    unit = unit_of(a_pod(nodeSelector={"disk": "ssd"}))
    before = planner.plan(unit, snapshot, memo=memo)
    snapshot.put_node(a_node("a", labels={"disk": "ssd"}))
    after = planner.plan(unit, snapshot, memo=memo)
    assert (type(before), type(after)) == (NoFit, Placed)
