"""
Capacity for members that a leader will make, on a real API server.

The test plays the drivers: it makes the executors of a job once its driver has a node, as Spark
does. One scheduler of the stack serves all of it; where it must die, it is killed and started anew.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from kubenexus.rbac import TENANT, TENANT_NAMESPACE
from policies import vocabulary
from tests.cluster.conftest import Kubectl
from tests.cluster.node_pool import Json, NodePool, until
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

SIZE = 3


@pytest.fixture
def node_pool(stack: Stack, control_plane: ControlPlane, namespace: str) -> Iterator[NodePool]:
    found = NodePool(control_plane, namespace)
    yield found
    for pod in found.pods():
        found.api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
    found.close()


def driver(node_pool: NodePool, job: str) -> Json:
    made = node_pool.pod(f"{job}-driver", gang=(job, SIZE))
    made["metadata"]["labels"][vocabulary.GANG_ROLE_LABEL] = "leader"
    made["metadata"]["annotations"][vocabulary.GANG_MEMBERS_ANNOTATION] = "cpu=1"
    return made


def executors(node_pool: NodePool, job: str) -> list[Json]:
    return [node_pool.pod(f"{job}-{number}", gang=(job, SIZE)) for number in range(1, SIZE)]


def objects(node_pool: NodePool) -> list[Json]:
    path = f"/apis/{vocabulary.API_VERSION}/namespaces/{node_pool.namespace}/resourcereservations"
    rows: list[Json] = node_pool.api.call("GET", path)["items"]
    return rows


def held(node_pool: NodePool) -> list[tuple[str, str]]:
    """(gang, what is kept) of every object."""
    return sorted(
        (row["spec"]["podGroup"]["name"], row.get("status", {}).get("held", ""))
        for row in objects(node_pool)
    )


def bound(node_pool: NodePool) -> set[str]:
    return {name for name, node in node_pool.nodes_of_pods().items() if node}


def first_driver(node_pool: NodePool, *jobs: str) -> str:
    """The job whose driver has a node."""
    names = eventually(lambda: bound(node_pool), "a driver has a node")
    (name,) = names
    assert name in {f"{job}-driver" for job in jobs}
    return name.removesuffix("-driver")


def test_two_jobs_and_capacity_for_one(node_pool: NodePool, kubectl: Kubectl) -> None:
    node = node_pool.add_node("n", cpu="5")
    node_pool.create(driver(node_pool, "a"), driver(node_pool, "b"))
    one = first_driver(node_pool, "a", "b")
    other = {"a": "b", "b": "a"}[one]
    assert until(lambda: held(node_pool), lambda rows: rows == [(one, "2 x cpu 1")]) == [
        (one, "2 x cpu 1")
    ]
    (found,) = objects(node_pool)
    assert [row["name"] for row in found["metadata"]["ownerReferences"]] == [f"{one}-driver"]
    assert [row["node"] for row in found["status"]["places"]] == [node, node]
    table = kubectl("get", "resourcereservations", "-n", node_pool.namespace).stdout.splitlines()
    assert table[0].split() == ["NAME", "TENANT", "FOR", "HELD", "PHASE", "UNTIL", "AGE"]
    assert " 2 x cpu 1 " in table[1]
    assert " Active " in table[1]

    # No other pod gets the reserved capacity, though most of the node is free.
    node_pool.create(node_pool.pod("thief", cpu="3"))
    eventually(lambda: node_pool.events("FailedScheduling"), "an Event about the thief")
    node_pool.create(*executors(node_pool, one))
    whole = {f"{one}-driver", *(f"{one}-{number}" for number in range(1, SIZE))}
    assert until(lambda: bound(node_pool), lambda names: names == whole) == whole
    assert until(lambda: held(node_pool), lambda rows: not rows) == []
    assert eventually(lambda: node_pool.events("ReservationEnded"), "an Event reports the end") == [
        (
            f"{one}-driver",
            "Normal",
            f"released the capacity reserved for pending members of pod group {one}:"
            " all members exist",
        )
    ]
    assert node_pool.nodes_of_pods()[f"{other}-driver"] == ""


def test_a_deleted_leader_leaves_nothing(node_pool: NodePool, kubectl: Kubectl) -> None:
    node_pool.add_node("n", cpu="3")
    node_pool.create(driver(node_pool, "a"))
    eventually(lambda: held(node_pool) == [("a", "2 x cpu 1")], "capacity is reserved")
    kubectl("delete", "pod", "a-driver", "-n", node_pool.namespace, "--wait=false")
    node_pool.create(node_pool.pod("next", cpu="3"))
    assert until(lambda: bound(node_pool), lambda names: "next" in names) >= {"next"}
    assert until(lambda: held(node_pool), lambda rows: not rows) == []


def test_a_scheduler_that_dies_between_leader_and_members(
    stack: Stack, node_pool: NodePool
) -> None:
    node_pool.add_node("n", cpu="3")
    node_pool.create(driver(node_pool, "a"))
    eventually(
        lambda: objects(node_pool) and "a-driver" in bound(node_pool), "the driver has a node"
    )
    stack.child(SCHEDULER).kill()
    node_pool.create(node_pool.pod("thief", cpu="2"))
    stack.restart(SCHEDULER)
    eventually(lambda: node_pool.events("FailedScheduling"), "an Event about the thief")
    node_pool.create(*executors(node_pool, "a"))
    whole = {"a-driver", "a-1", "a-2"}
    assert until(lambda: bound(node_pool), lambda names: names == whole) == whole
    assert until(lambda: held(node_pool), lambda rows: not rows) == []


def test_a_scheduler_that_dies_with_each_step_half_done(stack: Stack, node_pool: NodePool) -> None:
    """Killed when one of two members is there, and when the leader is deleted."""
    node_pool.add_node("n", cpu="3")
    node_pool.create(driver(node_pool, "a"))
    eventually(lambda: held(node_pool) == [("a", "2 x cpu 1")], "capacity is reserved")
    first, second = executors(node_pool, "a")
    node_pool.create(first)
    eventually(lambda: held(node_pool) == [("a", "1 x cpu 1")], "one has taken its place")
    stack.child(SCHEDULER).kill()
    node_pool.create(node_pool.pod("thief"), second)
    stack.restart(SCHEDULER)
    whole = {"a-driver", "a-1", "a-2"}
    assert until(lambda: bound(node_pool), lambda names: names == whole) == whole
    assert until(lambda: held(node_pool), lambda rows: not rows) == []

    for name in sorted(whole):
        delete(node_pool, name)
    delete(node_pool, "thief")
    node_pool.create(driver(node_pool, "b"))
    eventually(lambda: held(node_pool) == [("b", "2 x cpu 1")], "capacity is reserved")
    stack.child(SCHEDULER).kill()
    delete(node_pool, "b-driver")
    node_pool.create(node_pool.pod("next", cpu="3"))
    stack.restart(SCHEDULER)
    assert until(lambda: bound(node_pool), lambda names: names == {"next"}) == {"next"}
    assert until(lambda: objects(node_pool), lambda rows: not rows) == []


def delete(node_pool: NodePool, pod: str) -> None:
    path = f"/api/v1/namespaces/{node_pool.namespace}/pods/{pod}"
    node_pool.api.call("DELETE", path, {"gracePeriodSeconds": 0})


def test_places_on_a_node_that_is_lost(node_pool: NodePool) -> None:
    """The driver has most of the first node; each of the two nodes has capacity for one member."""
    node_pool.add_node("n", cpu="3")
    lost = node_pool.add_node("m", cpu="1")
    leader = driver(node_pool, "a")
    leader["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    node_pool.create(leader)
    eventually(lambda: held(node_pool) == [("a", "2 x cpu 1")], "capacity is reserved")
    node_pool.lose_node(lost)
    assert until(lambda: held(node_pool), lambda rows: rows == [("a", "1 x cpu 1")]) == [
        ("a", "1 x cpu 1")
    ]
    incomplete = "1 of 2 pending members of pod group a; searching for the rest"
    assert eventually(lambda: node_pool.events("ReservationIncomplete"), "an Event") == [
        ("a-driver", "Warning", f"reserved capacity for {incomplete}: node {lost} was deleted")
    ]
    node_pool.create(executors(node_pool, "a")[0])
    other = node_pool.add_node("o", cpu="1")
    assert eventually(lambda: node_pool.events("ReservationMoved"), "an Event")[0][0] == "a-driver"
    node_pool.create(executors(node_pool, "a")[1])
    nodes = until(node_pool.nodes_of_pods, lambda found: all(found.values()) and len(found) == 3)
    assert sorted(nodes.values()).count(other) == 1
    assert until(lambda: held(node_pool), lambda rows: not rows) == []


def reservation(namespace: str, name: str, **spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": vocabulary.API_VERSION,
            "kind": "ResourceReservation",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"until": "2099-01-01T00:00:00Z", **spec},
        }
    )


def test_capacity_for_tenants(node_pool: NodePool, kubectl: Kubectl) -> None:
    space, tenant = node_pool.namespace, f"tenant-{node_pool.namespace}"
    kubectl("label", "namespace", space, f"{vocabulary.TENANT_LABEL}={tenant}")
    ours, theirs = node_pool.add_node("ours"), node_pool.add_node("theirs")
    for body in (
        reservation(space, "ours", tenant=tenant, nodes=[ours], resources={"cpu": "4"}),
        reservation(space, "theirs", tenant="another", nodes=[theirs]),
    ):
        done = kubectl("apply", "-f", "-", input=body)
        assert done.returncode == 0, done.stderr

    def table() -> list[list[str]]:
        """Name, tenant, what is held, phase."""
        found = kubectl("get", "resourcereservations", "-n", space, "--no-headers").stdout
        rows = [re.split(r"  +", line) for line in found.splitlines()]
        return [[*row[:2], *row[2:-2]] for row in rows]

    whole = ["theirs", "another", "1 node (cpu 4, memory 16Gi free)", "Active"]
    kept = [["ours", tenant, "1 x cpu 4 (cpu 4 free)", "Active"], whole]
    assert until(table, lambda rows: rows == kept) == kept
    node_pool.create(node_pool.pod("mine", cpu="3"))
    eventually(lambda: bound(node_pool) == {"mine"}, "the first one has a node")
    node_pool.create(node_pool.pod("large", cpu="4"))
    used = [["ours", tenant, "1 x cpu 4 (cpu 1 free)", "Active"], whole]
    assert until(table, lambda rows: rows == used) == used
    eventually(lambda: node_pool.events("FailedScheduling"), "an Event about the large one")
    assert node_pool.nodes_of_pods() == {"mine": ours, "large": ""}
    kubectl("delete", "resourcereservation", "theirs", "-n", space)
    assert until(node_pool.nodes_of_pods, lambda nodes: bool(nodes["large"]))["large"] == theirs
    assert {row[2] for row in node_pool.events("ReservationEnded")} == {
        "released the capacity reserved for tenant another: the object was deleted or changed"
    }


def in_seconds(seconds: float) -> str:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_capacity_from_a_time_until_a_time(
    stack: Stack, node_pool: NodePool, kubectl: Kubectl
) -> None:
    """One pod runs there, another would run past the begin; the scheduler dies before it begins."""
    space, tenant = node_pool.namespace, f"tenant-{node_pool.namespace}"
    node = node_pool.add_node("n")
    node_pool.create(node_pool.pod("before", cpu="1"))
    eventually(lambda: bound(node_pool) == {"before"}, "a pod runs there")
    times = {"from": in_seconds(3600), "until": in_seconds(7200)}
    body = reservation(space, "r", tenant=tenant, nodes=[node], **times)
    done = kubectl("apply", "-f", "-", input=body)
    assert done.returncode == 0, done.stderr
    assert f"no namespace or policy names tenant {tenant!r}" in done.stderr

    def said() -> tuple[str, str, str]:
        (found,) = objects(node_pool)
        status = found.get("status", {})
        return status.get("phase", ""), status.get("held", ""), status.get("message", "")

    def change(**spec: str | None) -> None:
        body = json.dumps({"spec": spec})
        done = kubectl("patch", "knxrr/r", "-n", space, "--type=merge", f"--patch={body}")
        assert done.returncode == 0, done.stderr

    waits = f"waits for {space}/before (no known end)"
    assert until(said, lambda row: row[0] == "Pending") == ("Pending", "", waits)
    stack.child(SCHEDULER).kill()
    lasts = {vocabulary.EXPECTED_DURATION_ANNOTATION: "2h"}
    node_pool.create(node_pool.pod("long", annotations=lasts))
    stack.restart(SCHEDULER)
    rows = eventually(lambda: node_pool.events("FailedScheduling"), "an Event about the longer pod")
    assert "1 node(s) will be reserved for another tenant before it ends" in rows[0][2]
    change(**{"from": None})
    kept = ("Active", "1 node (cpu 3, memory 16Gi free)", waits)
    assert until(said, lambda row: row == kept) == kept
    change(until=in_seconds(3))
    assert until(said, lambda row: row[0] == "Expired") == ("Expired", "", "")
    assert until(lambda: bound(node_pool), lambda names: "long" in names) == {"before", "long"}
    for reason, note in (
        ("ReservationStarted", f"reserved for tenant {tenant}: 1 node"),
        (
            "ReservationEnded",
            f"released the capacity reserved for tenant {tenant}: its time has ended",
        ),
    ):
        assert until(partial(node_pool.events, reason), bool) == [("r", "Normal", note)]


def test_write_access_to_a_namespace_does_not_allow_reservations(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    """The tenant's user gets every right on reservations of its own namespace."""
    api = "rbac.authorization.k8s.io"
    about = {"name": "test-reserving", "namespace": TENANT_NAMESPACE}
    everything = {"apiGroups": [vocabulary.GROUP], "resources": ["*"], "verbs": ["*"]}
    named = {"apiGroup": api, "kind": "Role", "name": "test-reserving"}
    user = {"apiGroup": api, "kind": "User", "name": TENANT}
    for kind, rest in (
        ("Role", {"rules": [everything]}),
        ("RoleBinding", {"roleRef": named, "subjects": [user]}),
    ):
        control_plane.api().apply(
            {"apiVersion": f"{api}/v1", "kind": kind, "metadata": about, **rest}
        )
    body = reservation(TENANT_NAMESPACE, "mine", tenant=TENANT_NAMESPACE, nodes=["n"])

    def apply(user: str) -> str:
        return kubectl("apply", "-f", "-", input=body, user=user).stderr

    refused = f"{TENANT!r} reserves capacity for a tenant, and does not manage tenants"
    try:
        eventually(lambda: refused in apply(TENANT), "the right to write, and the refusal")
        assert apply("admin") == "Warning: there is no node n\n"
        status = kubectl(
            "patch",
            "resourcereservation/mine",
            "--namespace",
            TENANT_NAMESPACE,
            "--subresource=status",
            "--type=merge",
            '--patch={"status":{"held":"all"}}',
            user=TENANT,
        )
        assert "but only the scheduler writes it" in status.stderr
    finally:
        for name in (
            "resourcereservation/mine",
            "role/test-reserving",
            "rolebinding/test-reserving",
        ):
            kubectl("delete", name, "--namespace", TENANT_NAMESPACE)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"tenant": "a", "until": "2099-01-01T00:00:00Z"},
            "found nothing to reserve; want nodes, nodeSelector or resources (spec)",
            id="nothing is kept",
        ),
        pytest.param(
            {"tenant": "a", "nodes": ["n"], "until": "2001-01-01T00:00:00Z"},
            "found 2001-01-01T00:00:00Z, which has passed",
            id="it has ended",
        ),
        pytest.param(
            {
                "podGroup": {
                    "name": "a",
                    "leader": "x",
                    "members": 1,
                    "resources": {"cpu": "1"},
                    "places": [],
                },
                "until": "2099-01-01T00:00:00Z",
            },
            "written by the scheduler alone; reserve for a tenant",
            id="in the scheduler's name",
        ),
    ],
)
def test_a_faulty_object_is_refused(
    stack: Stack, kubectl: Kubectl, namespace: str, spec: Json, message: str
) -> None:
    done = kubectl("apply", "-f", "-", input=reservation(namespace, "r", **spec))
    assert done.returncode != 0
    assert message in done.stderr
