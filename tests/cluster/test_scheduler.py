"""The scheduler on a real API server: what is bound, what is reported, and what outlives faults."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from tests.cluster.node_pool import NodePool, Replica, until

pytestmark = pytest.mark.cluster


@pytest.fixture
def node_pool(control_plane: ControlPlane, namespace: str, stack: Stack) -> Iterator[NodePool]:
    node_pool = NodePool(control_plane, namespace)
    yield node_pool
    node_pool.close()


def all_nodes(node_pool: NodePool) -> int:
    return len(node_pool.api.call("GET", "/api/v1/nodes")["items"])


def test_a_pod_is_bound_and_reported_as_by_kube_scheduler(node_pool: NodePool) -> None:
    node = node_pool.add_node("a")
    node_pool.create(node_pool.pod("one"))
    nodes = node_pool.all_bound(1)
    events = until(lambda: node_pool.events("Scheduled"), bool)
    assert (nodes, events) == (
        {"one": node},
        [("one", "Normal", f"Successfully assigned {node_pool.namespace}/one to {node}")],
    )


def test_a_pod_that_fits_nowhere_says_why_in_event_and_condition(node_pool: NodePool) -> None:
    node_pool.add_node("a", cpu="2")
    total = all_nodes(node_pool)
    node_pool.create(node_pool.pod("big", cpu="3"))
    text = (
        f"0/{total} nodes are available: 1 Insufficient cpu, "
        f"{total - 1} node(s) didn't match Pod's node affinity/selector."
    )
    condition = until(lambda: node_pool.condition("big"), lambda found: bool(found[1]))
    events = until(lambda: node_pool.events("FailedScheduling"), bool)
    assert (condition, events) == (("False", "Unschedulable", text), [("big", "Warning", text)])


def test_a_claim_that_does_not_exist_is_named(node_pool: NodePool) -> None:
    node_pool.add_node("a")
    node_pool.create(
        node_pool.pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    )
    condition = until(lambda: node_pool.condition("p"), lambda found: bool(found[1]))
    assert (condition[1], node_pool.nodes_of_pods()) == ("Unschedulable", {"p": ""})
    assert f'could not find ResourceClaim "{node_pool.namespace}/mine"' in condition[2]


def test_a_gang_waits_for_its_members_and_then_for_capacity_and_is_bound_whole(
    node_pool: NodePool,
) -> None:
    for name in ("a", "b", "c"):
        node_pool.add_node(name, cpu="1")
    members = [node_pool.pod(f"m{i}", gang=("g", 4)) for i in range(4)]
    node_pool.create(*members[:3])
    forming = until(lambda: node_pool.condition("m0"), lambda found: "3/4" in found[2])
    node_pool.create(members[3])
    short = until(lambda: node_pool.condition("m0"), lambda found: found[1] == "Unschedulable")
    before = node_pool.nodes_of_pods()
    node_pool.add_node("d", cpu="1")
    bound = node_pool.all_bound(4)
    assert forming == (
        "False",
        "WaitingForPodGroup",
        f"{vocabulary.WAITING_FOR_POD_GROUP} g: 3/4 pods exist",
    )
    assert short[2].endswith(f"{vocabulary.WAITING_FOR_POD_GROUP} g: 3/4 members fit")
    assert set(before.values()) == {""}
    assert sorted(bound.values()) == sorted(f"{node_pool.namespace}-{name}" for name in "abcd")


def test_numa_assignments_ride_on_the_binding_and_survive_a_crash(
    node_pool: NodePool, stack: Stack
) -> None:
    label = vocabulary.numa_node_label
    node = node_pool.add_node(
        "numa",
        labels={
            vocabulary.NUMA_NODE_COUNT_LABEL: "2",
            label(0, "cpus"): "0-1",
            label(0, "memory"): "8Gi",
            label(1, "cpus"): "2-3",
            label(1, "memory"): "8Gi",
        },
    )
    strict = {vocabulary.NUMA_POLICY_ANNOTATION: "single-numa"}
    node_pool.create(node_pool.pod("first", cpu="1500m", annotations=strict))
    node_pool.all_bound(1)
    stack.restart(SCHEDULER, crash=True)
    node_pool.create(node_pool.pod("second", cpu="1500m", annotations=strict))
    bound = node_pool.all_bound(2)
    node_pool.create(node_pool.pod("third", cpu="1", annotations=strict))
    refused = until(lambda: node_pool.condition("third"), lambda found: bool(found[1]))
    assigned = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"].get(
            vocabulary.NUMA_ASSIGNED_ANNOTATION
        )
        for pod in node_pool.pods()
    }
    assert (bound, assigned) == (
        {"first": node, "second": node},
        {
            "first": '{"numa":[0],"gpus":[],"cpu":[1500],"memory":[0]}',
            "second": '{"numa":[1],"gpus":[],"cpu":[1500],"memory":[0]}',
            "third": None,
        },
    )
    assert f"1 {vocabulary.NO_SINGLE_NUMA_NODE}" in refused[2]


def test_pods_created_around_a_restart_of_the_api_server_are_all_bound(
    node_pool: NodePool, control_plane: ControlPlane
) -> None:
    for name in ("a", "b"):
        node_pool.add_node(name, cpu="20")
    pods = [node_pool.pod(f"p{i:02}") for i in range(40)]
    creating = threading.Thread(target=node_pool.create, args=pods)
    creating.start()
    control_plane.restart_apiserver(crash=True)
    creating.join()
    bound = node_pool.all_bound(40)
    per_node = {node: list(bound.values()).count(node) for node in set(bound.values())}
    assert per_node == {f"{node_pool.namespace}-a": 20, f"{node_pool.namespace}-b": 20}


def test_a_killed_scheduler_starts_from_what_the_api_says(
    node_pool: NodePool, stack: Stack
) -> None:
    for name in ("a", "b"):
        node_pool.add_node(name, cpu="10")
    creating = threading.Thread(
        target=node_pool.create, args=[node_pool.pod(f"p{i:02}") for i in range(25)]
    )
    creating.start()
    stack.restart(SCHEDULER, crash=True)
    creating.join()
    nodes = until(
        node_pool.nodes_of_pods,
        lambda found: len(found) == 25 and sum(1 for node in found.values() if node) >= 20,
        60.0,
    )
    counts = {node: list(nodes.values()).count(node) for node in set(nodes.values())}
    assert counts == {f"{node_pool.namespace}-a": 10, f"{node_pool.namespace}-b": 10, "": 5}


def test_a_leader_plans_and_gives_its_lease_back_on_sigterm(
    node_pool: NodePool, control_plane: ControlPlane, tmp_path: Path
) -> None:
    node = node_pool.add_node("a")
    replica = Replica(control_plane, "elected", tmp_path / "leader.log")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.SYSTEM_NAMESPACE}/leases/elected"
    replica.start()
    try:
        node_pool.create(node_pool.pod("one", schedulerName="elected"))
        bound = node_pool.all_bound(1)
        held = node_pool.api.call("GET", lease)["spec"]["holderIdentity"]
    finally:
        replica.stop()
    given_back = node_pool.api.call("GET", lease)["spec"].get("holderIdentity", "")
    assert (bound, bool(held), given_back) == ({"one": node}, True, "")
