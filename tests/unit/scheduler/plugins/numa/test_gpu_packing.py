"""Hosts for GPU pods: islands stay whole, and no GPU is stranded."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from policies import vocabulary
from policies.hosts.topology import Gpu, Topology, Zone
from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

GPU = vocabulary.GPU_RESOURCES[0]
FAST = vocabulary.GPU_MODEL_LABEL


def host(name: str, *, gpus: int = 8, cpu: int = 96, **more: Any) -> Node:
    return a_node(name, cpu=str(cpu), memory="512Gi", gpus=gpus, **more)


def islands(name: str, *sizes: int, cpu: int = 96) -> Node:
    """A host that tells its islands, GPUs numbered through."""
    named = [f"island-{i}" for i, size in enumerate(sizes) for _ in range(size)]
    gpus = tuple(Gpu(index, 0, island=island) for index, island in enumerate(named))
    topology = Topology((Zone(0, cpu * 1000, 512 * 2**30),), gpus)
    return replace(host(name, gpus=sum(sizes), cpu=cpu), topology=topology)


def held(node: str, gpus: int, cpu: int = 0, *, at: tuple[int, ...] = ()) -> tuple[Pod, str]:
    """A pod that holds GPUs of the node, by index where some are given."""
    pod = a_pod(f"on-{node}-{gpus}-{at}", cpu=str(cpu), gpus=gpus)
    return replace(pod, assignment=Assignment(gpus=at) if at else NO_ASSIGNMENT), node


def chosen(nodes: list[Node], pods: list[tuple[Pod, str]], *members: Pod) -> set[str]:
    unit = Unit(key_of(members[0]), members)
    plan = planner.plan(unit, Snapshot.of(nodes, pods))
    assert isinstance(plan, Placed)
    return {one.node for one in plan.placements}


@pytest.mark.parametrize(
    ("nodes", "pods", "pod", "want"),
    [
        pytest.param(
            [host("a"), host("b")],
            [held("b", 1)],
            {"gpus": 1},
            "b",
            id="a broken host is taken before a pristine one",
        ),
        pytest.param(
            [host("a", gpus=2, cpu=8), host("b")],
            [held("b", 1, 90)],
            {"gpus": 1, "cpu": "4"},
            "b",
            id="a pristine host stays whole although the broken one has little CPU left",
        ),
        pytest.param(
            [host("a"), host("b")],
            [held("b", 7, 80)],
            {"gpus": 1, "cpu": "20"},
            "a",
            id="a pristine host is broken when the broken one cannot take the pod",
        ),
        pytest.param(
            [host("a", cpu=16), host("b")],
            [held("a", 5), held("b", 6)],
            {"gpus": 2, "cpu": "2"},
            "b",
            id="what completes a host comes before what is tight in CPU",
        ),
        pytest.param(
            [host("a"), host("b", gpus=2)],
            [held("a", 4)],
            {"gpus": 2},
            "b",
            id="a whole host is completed, which breaks nothing",
        ),
        pytest.param(
            [host("a"), host("b")],
            [held("a", 4, 60), held("b", 2)],
            {"gpus": 1, "cpu": "12"},
            "b",
            id="CPU that ends before the GPUs do strands them",
        ),
        pytest.param(
            [host("a"), host("b")],
            [held("a", 2), held("b", 3)],
            {"gpus": 4},
            "b",
            id="the smaller odd remainder",
        ),
        pytest.param(
            [host("a", cpu=128), host("b", cpu=64)],
            [held("a", 4), held("b", 4)],
            {"gpus": 1, "cpu": "1"},
            "b",
            id="a small pod is placed where little is left",
        ),
        pytest.param(
            [host("a"), host("b")],
            [held("a", 2), held("b", 2)],
            {"gpus": 1},
            "a",
            id="equals go to the first name",
        ),
        pytest.param(
            [host("a", labels={FAST: "x"}), host("b", labels={FAST: "x"}), host("c")],
            [held("b", 1), held("c", 7)],
            {"gpus": 1, "nodeSelector": {FAST: "x"}},
            "b",
            id="only hosts that may take the pod are compared",
        ),
        pytest.param(
            [islands("a", 4, 4), islands("b", 4, 4)],
            [held("a", 4, at=(0, 1, 2, 3)), held("b", 1, at=(0,))],
            {"gpus": 1},
            "b",
            id="a host whose islands are taken or pristine is no broken one",
        ),
        pytest.param(
            [islands("a", 4, 4), islands("b", 4, 4)],
            [held("a", 4, at=(0, 1, 4, 5)), held("b", 2, at=(4, 5))],
            {"gpus": 4},
            "b",
            id="four GPUs of two islands are not one island of four",
        ),
        pytest.param(
            [islands("a", 4, 4), islands("b", 4, 4)],
            [held("a", 2, at=(0, 4)), held("b", 1, at=(0,))],
            {"gpus": 3},
            "a",
            id="islands alike: the host with less left beside them",
        ),
        pytest.param(
            [islands("a", 4, 4), host("b")],
            [held("a", 4, at=(0, 1, 2, 3)), held("b", 2)],
            {"gpus": 2},
            "b",
            id="a host that tells no islands counts as one",
        ),
        pytest.param(
            [islands("a", 4, 4), host("b", cpu=32)],
            [held("a", 1, 8), held("b", 5)],
            {"gpus": 2},
            "b",
            id="GPUs held at an unknown place make a host count as one island",
        ),
        pytest.param(
            [islands("a", 4, 4), host("b")],
            [held("a", 1, at=(0,))],
            {"gpus": 8},
            "b",
            id="more than one island holds",
        ),
    ],
)
def test_host(
    nodes: list[Node], pods: list[tuple[Pod, str]], pod: dict[str, Any], want: str
) -> None:
    assert chosen(nodes, pods, a_pod(**pod)) == {want}


def test_a_gang_completes_a_host_as_one_pod_would() -> None:
    nodes, pods = [host("a"), host("b"), host("c")], [held("b", 3), held("c", 4)]
    assert chosen(nodes, pods, *a_gang(4, gpus=1)) == {"c"}


def test_the_order_in_which_hosts_were_met_decides_nothing() -> None:
    nodes = [host("a"), host("b", gpus=4), host("c"), islands("d", 4, 4)]
    pods = [held("a", 2, 40), held("c", 2, 40), held("d", 3, 40, at=(0, 1, 4))]
    found = {
        frozenset(chosen(list(order), pods, a_pod(gpus=2, cpu="8")))
        for order in permutations(nodes)
    }
    assert len(found) == 1


def test_islands_follow_what_is_placed_released_and_changed() -> None:
    snapshot, memo = Snapshot.of([islands("a", 4, 4), islands("b", 4, 4)]), planner.Memo()
    pod = a_pod(gpus=1)

    def now() -> str:
        plan = planner.plan(Unit(key_of(pod), (pod,)), snapshot, memo=memo)
        assert isinstance(plan, Placed)
        return plan.placements[0].node

    one, other = held("b", 1, at=(0,)), held("b", 3, at=(1, 2, 3))
    seen = [now()]
    for step in (
        lambda: snapshot.charge(one[0], "b", Assignment(gpus=(0,))),
        lambda: snapshot.charge(other[0], "b", Assignment(gpus=(1, 2, 3))),
        lambda: snapshot.release(one[0], "b", Assignment(gpus=(0,))),
        lambda: snapshot.put_node(host("b", gpus=1)),
        lambda: snapshot.drop_node("b"),
    ):
        step()
        seen.append(now())
    assert seen == ["a", "b", "a", "b", "a", "a"]
