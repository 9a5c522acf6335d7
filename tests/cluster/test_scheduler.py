"""The scheduler on a real API server: what is bound, what is told, and what outlives faults."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kubenexus.dev import own, ports
from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane import ControlPlane, healthy
from kubenexus.dev.processes import Child
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary

pytestmark = pytest.mark.cluster

T = TypeVar("T")
Json = dict[str, Any]


def until(read: Callable[[], T], want: Callable[[T], bool], seconds: float = 30.0) -> T:
    """Poll until the state is as wanted; the last state found, for the assertion to show."""
    end = time.monotonic() + seconds
    while not want(found := read()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


class Yard:
    """Nodes for one test alone: labelled and tainted with its namespace, taken away afterwards."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self._nodes: list[str] = []

    @property
    def api(self) -> Api:
        return self.plane.api()

    def add_node(self, name: str, *, cpu: str = "4", labels: dict[str, str] | None = None) -> str:
        full = f"{self.namespace}-{name}"
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        self.plane.add_nodes(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": full,
                        "labels": {"yard": self.namespace, **(labels or {})},
                    },
                    "spec": {"taints": [{"key": "yard", "effect": "NoSchedule"}]},
                    "status": {"capacity": amounts, "allocatable": amounts},
                }
            ]
        )
        self._nodes.append(full)
        return full

    def close(self) -> None:
        for name in self._nodes:
            self.api.call("DELETE", f"/api/v1/nodes/{name}")

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        gang: tuple[str, int] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        labels = {}
        if gang is not None:
            labels = {
                vocabulary.GANG_NAME_LABEL: gang[0],
                vocabulary.GANG_MIN_AVAILABLE_LABEL: str(gang[1]),
            }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels,
                "annotations": annotations or {},
            },
            "spec": {
                "schedulerName": vocabulary.SCHEDULER_NAME,
                "nodeSelector": {"yard": self.namespace},
                "tolerations": [{"key": "yard", "operator": "Exists"}],
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                ],
                **spec,
            },
        }

    def create(self, *pods: Json) -> None:
        """Create each, however long the API server takes to come back."""
        for pod in pods:
            self._create(pod)

    def _create(self, pod: Json) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self.api.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod)
                return
            except CallFailed as exc:
                if exc.status == 409:
                    return
                if exc.status < 500 or time.monotonic() > end:
                    raise
            except OSError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def pods(self) -> list[Json]:
        found = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        rows: list[Json] = found["items"]
        return rows

    def nodes_of_pods(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}

    def all_bound(self, count: int, seconds: float = 60.0) -> dict[str, str]:
        return until(
            self.nodes_of_pods,
            lambda nodes: len(nodes) == count and all(nodes.values()),
            seconds,
        )

    def events(self, reason: str) -> list[tuple[str, str, str]]:
        """(pod, type, note), sorted."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        rows = self.api.call("GET", path)["items"]
        return sorted(
            (row["regarding"]["name"], row["type"], row["note"])
            for row in rows
            if row["reason"] == reason
        )

    def condition(self, name: str) -> tuple[str, str, str]:
        """(status, reason, message) of PodScheduled."""
        pod = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        for row in pod["status"].get("conditions", []):
            if row["type"] == "PodScheduled":
                return row["status"], row.get("reason", ""), row.get("message", "")
        return "", "", ""


@pytest.fixture
def yard(control_plane: ControlPlane, namespace: str, stack: Stack) -> Iterator[Yard]:
    yard = Yard(control_plane, namespace)
    yield yard
    yard.close()


def all_nodes(yard: Yard) -> int:
    return len(yard.api.call("GET", "/api/v1/nodes")["items"])


def test_a_pod_is_bound_and_told_as_by_kube_scheduler(yard: Yard) -> None:
    node = yard.add_node("a")
    yard.create(yard.pod("one"))
    nodes = yard.all_bound(1)
    told = until(lambda: yard.events("Scheduled"), bool)
    assert (nodes, told) == (
        {"one": node},
        [("one", "Normal", f"Successfully assigned {yard.namespace}/one to {node}")],
    )


def test_a_pod_that_fits_nowhere_says_why_in_event_and_condition(yard: Yard) -> None:
    yard.add_node("a", cpu="2")
    total = all_nodes(yard)
    yard.create(yard.pod("big", cpu="3"))
    text = (
        f"0/{total} nodes are available: 1 Insufficient cpu, "
        f"{total - 1} node(s) didn't match Pod's node affinity/selector."
    )
    condition = until(lambda: yard.condition("big"), lambda found: bool(found[1]))
    told = until(lambda: yard.events("FailedScheduling"), bool)
    assert (condition, told) == (("False", "Unschedulable", text), [("big", "Warning", text)])


def test_what_is_not_honoured_is_refused_and_named(yard: Yard) -> None:
    yard.add_node("a")
    ports = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    yard.create(yard.pod("ports", containers=ports))
    condition = until(lambda: yard.condition("ports"), lambda found: bool(found[1]))
    assert (condition[1], yard.nodes_of_pods()) == ("Unschedulable", {"ports": ""})
    assert "asks for host ports, which this scheduler does not honour yet" in condition[2]


def test_a_gang_waits_for_its_members_and_then_for_room_and_is_bound_whole(yard: Yard) -> None:
    for name in ("a", "b", "c"):
        yard.add_node(name, cpu="1")
    members = [yard.pod(f"m{i}", gang=("g", 4)) for i in range(4)]
    yard.create(*members[:3])
    forming = until(lambda: yard.condition("m0"), lambda found: "3/4" in found[2])
    yard.create(members[3])
    short = until(lambda: yard.condition("m0"), lambda found: found[1] == "Unschedulable")
    nobody = yard.nodes_of_pods()
    yard.add_node("d", cpu="1")
    bound = yard.all_bound(4)
    assert forming == (
        "False",
        "WaitingForPodGroup",
        f"{vocabulary.WAITING_FOR_POD_GROUP} g: 3/4 pods exist",
    )
    assert short[2].endswith(f"{vocabulary.WAITING_FOR_POD_GROUP} g: 3/4 members fit")
    assert set(nobody.values()) == {""}
    assert sorted(bound.values()) == sorted(f"{yard.namespace}-{name}" for name in "abcd")


def test_numa_assignments_ride_on_the_binding_and_survive_a_crash(yard: Yard, stack: Stack) -> None:
    label = vocabulary.numa_node_label
    node = yard.add_node(
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
    yard.create(yard.pod("first", cpu="1500m", annotations=strict))
    yard.all_bound(1)
    stack.restart(SCHEDULER, crash=True)
    yard.create(yard.pod("second", cpu="1500m", annotations=strict))
    bound = yard.all_bound(2)
    yard.create(yard.pod("third", cpu="1", annotations=strict))
    refused = until(lambda: yard.condition("third"), lambda found: bool(found[1]))
    assigned = {
        pod["metadata"]["name"]: pod["metadata"]["annotations"].get(
            vocabulary.NUMA_ASSIGNED_ANNOTATION
        )
        for pod in yard.pods()
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
    yard: Yard, control_plane: ControlPlane
) -> None:
    for name in ("a", "b"):
        yard.add_node(name, cpu="20")
    pods = [yard.pod(f"p{i:02}") for i in range(40)]
    creating = threading.Thread(target=yard.create, args=pods)
    creating.start()
    control_plane.restart_apiserver(crash=True)
    creating.join()
    bound = yard.all_bound(40)
    per_node = {node: list(bound.values()).count(node) for node in set(bound.values())}
    assert per_node == {f"{yard.namespace}-a": 20, f"{yard.namespace}-b": 20}


def test_a_killed_scheduler_starts_from_what_the_api_says(yard: Yard, stack: Stack) -> None:
    for name in ("a", "b"):
        yard.add_node(name, cpu="10")
    creating = threading.Thread(target=yard.create, args=[yard.pod(f"p{i:02}") for i in range(25)])
    creating.start()
    stack.restart(SCHEDULER, crash=True)
    creating.join()
    nodes = until(
        yard.nodes_of_pods,
        lambda found: len(found) == 25 and sum(1 for node in found.values() if node) >= 20,
        60.0,
    )
    counts = {node: list(nodes.values()).count(node) for node in set(nodes.values())}
    assert counts == {f"{yard.namespace}-a": 10, f"{yard.namespace}-b": 10, "": 5}


def test_a_leader_plans_and_gives_its_lease_back_when_asked_to_end(
    yard: Yard, control_plane: ControlPlane, tmp_path: Path
) -> None:
    node = yard.add_node("a")
    (port,) = ports.free(1)
    user = vocabulary.SCHEDULER_NAME
    child = Child(
        "leader",
        [
            *own.COMMAND,
            "scheduler",
            f"--kubeconfig={control_plane.kubeconfig(user)}",
            f"--port={port}",
            "--scheduler-name=elected",
            "--leader-elect",
        ],
        log=tmp_path / "leader.log",
        env=own.environment(os.environ),
    )
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.SYSTEM_NAMESPACE}/leases/elected"
    child.start()
    try:
        ready = until(lambda: healthy(f"http://127.0.0.1:{port}/readyz"), bool)
        yard.create(yard.pod("one", schedulerName="elected"))
        bound = yard.all_bound(1)
        held = yard.api.call("GET", lease)["spec"]["holderIdentity"]
    finally:
        child.stop()
    given_back = yard.api.call("GET", lease)["spec"].get("holderIdentity", "")
    assert (ready, bound, bool(held), given_back) == (True, {"one": node}, True, "")
