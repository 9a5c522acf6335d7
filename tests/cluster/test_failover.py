"""Gangs across the death of schedulers and API servers: finished or released, never left half."""

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from policies import vocabulary
from tests.cluster.node_pool import NodePool, Replica, until

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

_numbers = itertools.count(1)

X_POD_GROUPS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.x-k8s.io"},
    "spec": {
        "group": "scheduling.x-k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class Pair:
    """Up to two replicas of one scheduler name, in the node pool's namespace."""

    def __init__(self, node_pool: NodePool, folder: Path) -> None:
        self.node_pool, self.name = node_pool, f"pair-{next(_numbers)}"
        self._folder = folder
        self.replicas: list[Replica] = []

    def start(self, *, alone: bool = False) -> Replica:
        log = self._folder / f"{self.name}-{len(self.replicas)}.log"
        replica = Replica(self.node_pool.plane, self.name, log, alone=alone)
        self.replicas.append(replica)
        replica.start()
        return replica

    def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()

    def pod(self, name: str, **more: Any) -> Json:
        return self.node_pool.pod(name, **{"schedulerName": self.name, **more})

    def replicas_of(self, name: str, count: int, *, timeout: str = "3s") -> Json:
        """A controller that makes a gang's pods, and makes them again."""
        notes = {vocabulary.GANG_TIMEOUT_ANNOTATION: timeout}
        pod = self.pod("-", gang=(name, count), annotations=notes)
        about = {key: pod["metadata"][key] for key in ("labels", "annotations")}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": name, "namespace": self.node_pool.namespace},
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": about["labels"]},
                "template": {"metadata": about, "spec": pod["spec"]},
            },
        }

    def create_gang(self, name: str, count: int) -> None:
        self.node_pool.post("apis/apps/v1/replicasets", self.replicas_of(name, count))

    def gangs(self) -> dict[str, tuple[int, int]]:
        """For each gang how many live members have a node, and how many there are."""
        bound: Counter[str] = Counter()
        there: Counter[str] = Counter()
        for pod in self.node_pool.pods():
            name = pod["metadata"].get("labels", {}).get(vocabulary.GANG_NAME_LABEL)
            if name is None or "deletionTimestamp" in pod["metadata"]:
                continue
            there[name] += 1
            bound[name] += bool(pod["spec"].get("nodeName"))
        return {name: (bound[name], there[name]) for name in sorted(there)}


@pytest.fixture
def node_pool(control_plane: ControlPlane, namespace: str) -> Iterator[NodePool]:
    node_pool = NodePool(control_plane, namespace)
    yield node_pool
    node_pool.close()


@pytest.fixture
def pair(node_pool: NodePool, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(node_pool, tmp_path)
    yield pair
    pair.stop()


def half_bind(pair: Pair, count: int, node: str) -> list[str]:
    """Give some members of a gang their node, as a scheduler that died then would have."""
    node_pool = pair.node_pool
    pods = until(node_pool.pods, lambda found: len(found) == 3)
    names = sorted(pod["metadata"]["name"] for pod in pods)[:count]
    for pod in names:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node},
        }
        node_pool.api.call(
            "POST", f"/api/v1/namespaces/{node_pool.namespace}/pods/{pod}/binding", binding
        )
    return names


def test_a_new_leader_finishes_the_gang_that_a_dead_one_left_half_bound(
    node_pool: NodePool, pair: Pair
) -> None:
    node = node_pool.add_node("a", cpu="3")
    pair.create_gang("g", 3)
    half_bind(pair, 2, node)
    node_pool.create(pair.pod("late"))
    pair.start()
    found = until(pair.gangs, lambda gangs: gangs == {"g": (3, 3)})
    assert (found, node_pool.nodes_of_pods()["late"]) == ({"g": (3, 3)}, "")


def test_a_new_leader_releases_the_gang_that_it_cannot_finish(
    node_pool: NodePool, pair: Pair
) -> None:
    node = node_pool.add_node("a", cpu="2")
    pair.create_gang("g", 3)
    half = half_bind(pair, 2, node)
    pair.start()
    events = until(lambda: node_pool.events("GangReleased"), lambda rows: len(rows) == 2)
    note = (
        "pod group g had 2 of 3 members bound for 3s; evicted, so that the gang can start complete"
    )
    assert events == [(name, "Warning", note) for name in half]
    again = until(pair.gangs, lambda gangs: gangs == {"g": (0, 3)})
    node_pool.add_node("b", cpu="1")
    whole = until(pair.gangs, lambda gangs: gangs == {"g": (3, 3)})
    assert (again, whole) == ({"g": (0, 3)}, {"g": (3, 3)})


def test_a_leader_killed_among_gangs_is_replaced_and_no_gang_stays_half_bound(
    node_pool: NodePool, pair: Pair
) -> None:
    """Capacity for ten gangs of the sixteen, so that some fit, some wait, and some are cut in half."""
    for i in range(10):
        node_pool.add_node(f"n{i}", cpu="4")
    first = pair.start()
    until(lambda: first.leads, bool)
    second = pair.start()

    def create() -> None:
        for i in range(16):
            pair.create_gang(f"g{i:02}", 4)

    creating = threading.Thread(target=create)
    creating.start()
    until(lambda: sum(bound for bound, _ in pair.gangs().values()), lambda bound: bound >= 6)
    standby = second.leads
    first.kill()
    creating.join()
    leads = until(lambda: second.leads, bool, 60.0)

    def settled(gangs: dict[str, tuple[int, int]]) -> bool:
        whole = sum(bound == 4 for bound, _ in gangs.values())
        return whole == 10 and all(bound in (0, 4) for bound, _ in gangs.values())

    found = until(pair.gangs, settled, 90.0)
    assert (standby, leads, Counter(bound for bound, _ in found.values())) == (
        False,
        True,
        {4: 10, 0: 6},
    )
    per_node = Counter(node for node in node_pool.nodes_of_pods().values() if node)
    assert set(per_node.values()) == {4}


def test_gangs_are_bound_whole_although_the_api_server_restarts(
    node_pool: NodePool, pair: Pair, control_plane: ControlPlane
) -> None:
    for i in range(6):
        node_pool.add_node(f"n{i}", cpu="4")
    pair.start(alone=True)
    pods = [pair.pod(f"g{i}-{j}", gang=(f"g{i}", 4)) for i in range(6) for j in range(4)]
    creating = threading.Thread(target=node_pool.create, args=pods)
    creating.start()
    until(lambda: any(node_pool.nodes_of_pods().values()), bool)
    control_plane.restart_apiserver(crash=True)
    creating.join()
    node_pool.all_bound(24, 90.0)
    per_node = Counter(node_pool.nodes_of_pods().values())
    assert (pair.gangs(), set(per_node.values())) == ({f"g{i}": (4, 4) for i in range(6)}, {4})


def test_a_restart_counts_hundreds_of_bound_pods_from_the_api_alone(
    node_pool: NodePool, pair: Pair
) -> None:
    nodes = [node_pool.add_node(name, cpu="81") for name in "abc"]
    node_pool.create(*(pair.pod(f"old-{i:03}", nodeName=nodes[i % 3]) for i in range(240)))
    pair.start()
    node_pool.create(*(pair.pod(f"g-{i}", gang=("g", 3)) for i in range(3)), pair.pod("more"))
    until(pair.gangs, lambda gangs: gangs == {"g": (3, 3)})
    where = node_pool.nodes_of_pods()
    assert sorted(where[f"g-{i}"] for i in range(3)) == nodes
    assert where["more"] == ""


def test_a_leader_that_was_frozen_ends_when_it_wakes_and_another_has_the_lease(
    node_pool: NodePool, pair: Pair
) -> None:
    node = node_pool.add_node("a")
    first = pair.start()
    until(lambda: first.leads, bool)
    second = pair.start()
    pid = first.child.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        taken = until(lambda: second.leads, bool, 60.0)
    finally:
        os.kill(pid, signal.SIGCONT)
    ended = until(lambda: first.child.exit_code, lambda code: code is not None)
    node_pool.create(pair.pod("p"))
    assert (taken, ended, node_pool.all_bound(1)) == (True, 1, {"p": node})


def test_gang_gates_are_lifted_when_the_gang_is_complete_and_foreign_ones_stay(
    node_pool: NodePool, pair: Pair
) -> None:
    node_pool.add_node("a")
    gate, foreign = {"name": vocabulary.GANG_GATE}, {"name": "example.io/quota"}
    members = [pair.pod(f"m{i}", gang=("g", 3), schedulingGates=[gate]) for i in range(3)]
    pair.start()
    node_pool.create(*members[:2], pair.pod("x", gang=("g", 3), schedulingGates=[gate, foreign]))
    events = until(lambda: node_pool.events("GangWaiting"), lambda rows: len(rows) == 2)
    gates = {
        pod["metadata"]["name"]: len(pod["spec"]["schedulingGates"]) for pod in node_pool.pods()
    }
    node_pool.create(members[2])
    found = until(node_pool.nodes_of_pods, lambda nodes: sum(map(bool, nodes.values())) == 3)
    text = f"{vocabulary.WAITING_FOR_POD_GROUP} g: 2/3 pods exist"
    assert events == [(name, "Normal", text) for name in ("m0", "m1")]
    assert gates == {"m0": 1, "m1": 1, "x": 2}
    assert {name for name, node in found.items() if not node} == {"x"}


def test_the_size_of_a_gang_may_stand_in_a_pod_group_object(
    node_pool: NodePool, pair: Pair
) -> None:
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    node_pool.api.call("POST", kinds, X_POD_GROUPS)
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{node_pool.namespace}/podgroups"
    until(lambda: node_pool.api.ready(path), bool)
    node_pool.add_node("a")
    pair.start()
    pods = [pair.pod(f"m{i}") for i in range(3)]
    for pod in pods:
        pod["metadata"]["labels"] = {vocabulary.X_K8S_POD_GROUP: "g"}
    node_pool.create(*pods[:2])
    start = f"{vocabulary.WAITING_FOR_POD_GROUP} g"
    missing = until(lambda: node_pool.condition("m0"), lambda found: "object" in found[2])
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": node_pool.namespace},
        "spec": {"minMember": 3},
    }
    node_pool.post("apis/scheduling.x-k8s.io/v1alpha1/podgroups", group)
    short = until(lambda: node_pool.condition("m0"), lambda found: "2/3" in found[2])
    node_pool.create(pods[2])
    bound = node_pool.all_bound(3)
    assert (missing[1:], short[1:], set(bound.values())) == (
        ("WaitingForPodGroup", f"{start}: its PodGroup object does not exist"),
        ("WaitingForPodGroup", f"{start}: 2/3 pods exist"),
        {f"{node_pool.namespace}-a"},
    )


def test_a_bare_driver_and_the_executors_of_a_deployment_are_one_gang(
    node_pool: NodePool, pair: Pair
) -> None:
    node = node_pool.add_node("a", cpu="3")
    pair.start()
    node_pool.create(pair.pod("driver", gang=("g", 3)))
    alone = until(lambda: node_pool.condition("driver"), lambda found: "1/3" in found[2])
    pod = pair.pod("-", gang=("g", 3))
    labels = pod["metadata"]["labels"]
    node_pool.post(
        "apis/apps/v1/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "executors", "namespace": node_pool.namespace},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        },
    )
    found = until(pair.gangs, lambda gangs: gangs == {"g": (3, 3)})
    assert (alone[1], found, set(node_pool.nodes_of_pods().values())) == (
        "WaitingForPodGroup",
        {"g": (3, 3)},
        {node},
    )
