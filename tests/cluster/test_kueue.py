"""
Kueue beside the product: tiers from its queues, and pods that it holds back or gave a place.

Its kinds are those of a release, and everything that Kueue would write is written by hand: the
label, its scheduling gates, and the node selector of a topology assignment.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.api import path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from scheduler.report import events
from tests.cluster.conftest import Kubectl
from tests.cluster.node_pool import NodePool, until
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

CRDS = sorted((Path(__file__).parent / "crds" / "others").glob("*.kueue.x-k8s.io.yaml"))
API = "kueue.x-k8s.io/v1beta2"
QUEUE, TIER = vocabulary.QUEUE_NAME_LABEL, vocabulary.TIER_LABEL
GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
HOST, RACK = vocabulary.HOSTNAME_LABEL, vocabulary.RACK_LABEL
SILENT = "Warning: queue 'gpu' gives no tier: "


class Queues:
    """Kueue's objects, and pods and Jobs that name its queues."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self._made = plane, False

    def install(self) -> None:
        if self._made:
            return
        self._made = True
        for item in map(_read, CRDS):
            self.plane.api().apply(item)
        for item in map(_read, CRDS):
            path = f"/apis/{API}/{item['spec']['names']['plural']}"
            eventually(partial(self._there, path), path)

    def uninstall(self) -> None:
        for item in map(_read, CRDS) if self._made else ():
            self.plane.api().call("DELETE", path_of(item))
            eventually(partial(self._gone, path_of(item)), f"{path_of(item)} gone")

    def _gone(self, path: str) -> bool:
        return not self._there(path)

    def _there(self, path: str) -> bool:
        try:
            self.plane.api().call("GET", path)
        except CallFailed:
            return False
        return True

    def cluster_queue(self, name: str, tier: str, selector: Json | None = None) -> None:
        metadata = {"name": name, "labels": {TIER: tier}}
        self._put("clusterqueues", "ClusterQueue", metadata, {"namespaceSelector": selector or {}})

    def local_queue(self, namespace: str, cluster_queue: str) -> None:
        spec = {"clusterQueue": cluster_queue}
        self._put("localqueues", "LocalQueue", {"name": "gpu", "namespace": namespace}, spec)

    def _put(self, plural: str, kind: str, metadata: Json, spec: Json) -> None:
        where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        self.plane.api().call(
            "PATCH",
            f"/apis/{API}{where}/{plural}/{metadata['name']}?fieldManager=test&force=true",
            {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec},
            content_type="application/apply-patch+yaml",
        )

    def tier_of_a_new_pod(self, namespace: str) -> str:
        """
        What admission would write now on a pod that names the queue.

        Empty for the moment in which one worker has seen a change of the queue and another has not:
        the first denies the tier that the second wrote, and a client tries again.
        """
        pod = NodePool(self.plane, namespace).pod("new")
        pod["metadata"]["labels"][QUEUE] = "gpu"
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        try:
            made = self.plane.api().call("POST", path, pod)
        except CallFailed as error:
            if "but its queue has tier" not in str(error):
                raise
            return ""
        return str(made["metadata"]["labels"][TIER])


def _read(path: Path) -> Json:
    found: Json = yaml.safe_load(path.read_text())
    return found


@pytest.fixture(scope="module")
def absent(stack: Stack, control_plane: ControlPlane) -> Iterator[Queues]:
    """A test installs the kinds while the webhook runs."""
    queues = Queues(control_plane)
    yield queues
    queues.uninstall()


@pytest.fixture
def queues(absent: Queues) -> Queues:
    absent.install()
    return absent


@pytest.fixture
def node_pool(control_plane: ControlPlane, stack: Stack, namespace: str) -> Iterator[NodePool]:
    node_pool = NodePool(control_plane, namespace)
    yield node_pool
    node_pool.close()


def a_job(node_pool: NodePool, name: str, count: int = 1) -> Json:
    """A Job that stands in the queue `gpu`; its pods carry no label of their own."""
    spec = node_pool.pod(name)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": node_pool.namespace, "labels": {QUEUE: "gpu"}},
        "spec": {"parallelism": count, "completions": count, "template": {"spec": spec}},
    }


def applied(kubectl: Kubectl, obj: Json) -> tuple[bool, str]:
    got = kubectl("apply", "-f", "-", input=json.dumps(obj))
    return got.returncode == 0, got.stderr


def stamped(pod: Json) -> tuple[str, str, str]:
    """The tier on the label and in the profile, and the queue in the profile."""
    profile = json.loads(pod["metadata"]["annotations"][vocabulary.PROFILE_ANNOTATION])
    return pod["metadata"]["labels"][TIER], profile["tier"], profile.get("queue", "")


def test_kueue_is_noticed_when_it_comes(
    absent: Queues, node_pool: NodePool, kubectl: Kubectl
) -> None:
    namespace = node_pool.namespace
    text = f"this cluster has no LocalQueues; install Kueue, or remove the label {QUEUE}\n"
    assert applied(kubectl, a_job(node_pool, "before")) == (True, f"{SILENT}{text}")
    absent.install()
    absent.cluster_queue("early", "gold")
    absent.local_queue(namespace, "early")
    assert until(lambda: absent.tier_of_a_new_pod(namespace), lambda tier: tier == "gold") == "gold"


def test_the_tier_of_a_queue_reaches_the_pods_of_a_job_and_changes_for_new_ones_alone(
    queues: Queues, node_pool: NodePool, kubectl: Kubectl
) -> None:
    namespace = node_pool.namespace
    node = node_pool.add_node("n")
    # Applied and used at once: the webhook reads what the watches have not seen.
    queues.cluster_queue("turning", "gold")
    queues.local_queue(namespace, "turning")
    assert applied(kubectl, a_job(node_pool, "first", 2)) == (True, "")
    until(node_pool.nodes_of_pods, lambda found: len(found) == 2 and all(found.values()))
    assert [stamped(pod) for pod in node_pool.pods()] == [("gold", "gold", "gpu")] * 2
    queues.cluster_queue("turning", "silver")
    until(lambda: queues.tier_of_a_new_pod(namespace), lambda tier: tier == "silver")
    # The label of the first pods is theirs; an update of one is judged by it.
    name = node_pool.pods()[0]["metadata"]["name"]
    assert kubectl("annotate", "pod", "-n", namespace, name, "note=1").returncode == 0
    assert applied(kubectl, a_job(node_pool, "second")) == (True, "")
    until(node_pool.nodes_of_pods, lambda found: len(found) == 3)
    assert (
        sorted(stamped(pod) for pod in node_pool.pods()),
        set(node_pool.all_bound(3).values()),
    ) == (
        [("gold", "gold", "gpu"), ("gold", "gold", "gpu"), ("silver", "silver", "gpu")],
        {node},
    )


def test_a_queue_that_leads_nowhere_is_warned_about(
    queues: Queues, node_pool: NodePool, kubectl: Kubectl
) -> None:
    namespace = node_pool.namespace
    said = [applied(kubectl, a_job(node_pool, "no-local"))]
    queues.local_queue(namespace, "missing")
    eventually(lambda: "ClusterQueue" in applied(kubectl, a_job(node_pool, "x"))[1], "seen")
    said.append(applied(kubectl, a_job(node_pool, "no-cluster")))
    queues.cluster_queue("missing", "platinum")
    said.append(applied(kubectl, a_job(node_pool, "no-tier")))
    queues.cluster_queue("closed", "gold", {"matchLabels": {"team": "others"}})
    kubectl("delete", "localqueue", "-n", namespace, "gpu")
    queues.local_queue(namespace, "closed")
    said.append(
        until(
            lambda: applied(kubectl, a_job(node_pool, "not-ours")),
            lambda found: "closed" in found[1],
        )
    )
    its = f"{SILENT}its ClusterQueue"
    assert said == [
        (
            True,
            f"{SILENT}namespace '{namespace}' has no LocalQueue of that name; "
            f"create it, or correct the label {QUEUE}\n",
        ),
        (True, f"{its} 'missing' does not exist; create it, or name another in the LocalQueue\n"),
        (
            True,
            f"{its} 'missing' has {TIER} 'platinum', want one of gold, silver, bronze: "
            "ask the cluster admin to correct the label\n",
        ),
        (
            True,
            f"{its} 'closed' takes no work of namespace '{namespace}'; "
            "ask the cluster admin to change its spec.namespaceSelector\n",
        ),
    ]


def held(node_pool: NodePool, name: str, *gates: str, **annotations: str) -> Json:
    """A member of a gang of two, behind these gates."""
    return node_pool.pod(
        name,
        gang=("g", 2),
        annotations=annotations,
        schedulingGates=[{"name": gate} for gate in gates],
    )


def let_go(node_pool: NodePool, name: str, **place: str) -> None:
    """As Kueue does: its gates go, and the node selector gets its topology assignment."""
    path = f"/api/v1/namespaces/{node_pool.namespace}/pods/{name}"
    spec = node_pool.api.call("GET", path)["spec"]
    left = [gate for gate in spec["schedulingGates"] if gate["name"] not in GATES]
    body = [
        {"op": "add", "path": "/spec/nodeSelector", "value": {**spec["nodeSelector"], **place}},
        {"op": "replace", "path": "/spec/schedulingGates", "value": left},
    ]
    node_pool.api.call("PATCH", path, body, content_type="application/json-patch+json")  # type: ignore[arg-type]  # a JSON patch is a list


def seen_by_the_scheduler(node_pool: NodePool) -> None:
    """The scheduler has seen all pods before this one: it binds a pod that came after them."""
    node_pool.create(node_pool.pod("after", cpu="100m"))
    until(node_pool.nodes_of_pods, lambda found: bool(found["after"]))


def gates_of(node_pool: NodePool) -> dict[str, list[str]]:
    return {
        pod["metadata"]["name"]: [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
        for pod in node_pool.pods()
    }


def test_a_gang_that_kueue_holds_is_left_alone_and_then_placed_where_kueue_said(
    queues: Queues, node_pool: NodePool
) -> None:
    nodes = [
        node_pool.add_node(name, cpu=cpu, labels={HOST: f"{node_pool.namespace}-{name}"})
        for name, cpu in (("roomy", "16"), ("one", "2"), ("two", "2"))
    ]
    # The gate of the product behind those of Kueue: it is lifted, and only when theirs are gone.
    for name in ("a", "b"):
        node_pool.create(held(node_pool, name, *GATES, vocabulary.GANG_GATE))
    seen_by_the_scheduler(node_pool)
    kept = [*GATES, vocabulary.GANG_GATE]
    waiting = (
        "False",
        "SchedulingGated",
        "Scheduling is blocked due to non-empty scheduling gates",
    )
    assert (gates_of(node_pool), node_pool.condition("a"), node_pool.condition("b")) == (
        {"a": kept, "b": kept, "after": []},
        waiting,
        waiting,
    )
    let_go(node_pool, "a", **{HOST: nodes[1]})
    reported = until(lambda: node_pool.events(events.GANG_WAITING), bool)
    assert (reported, gates_of(node_pool)["a"], gates_of(node_pool)["b"]) == (
        [("a", "Normal", "waiting for pod group g: 1/2 pods exist")],
        [vocabulary.GANG_GATE],
        kept,
    )
    let_go(node_pool, "b", **{HOST: nodes[2]})
    found = node_pool.all_bound(3)
    assert (found["a"], found["b"]) == (nodes[1], nodes[2])


def test_a_level_that_contradicts_the_assignment_of_kueue_is_reported(
    queues: Queues, node_pool: NodePool
) -> None:
    for name, rack in (("one", "r1"), ("two", "r2")):
        full = f"{node_pool.namespace}-{name}"
        node_pool.add_node(name, labels={HOST: full, RACK: f"{node_pool.namespace}-{rack}"})
    for name in ("a", "b"):
        near = {vocabulary.CO_LOCATE_ANNOTATION: "strict:rack"}
        node_pool.create(held(node_pool, name, *GATES, **near))
    for name, node in (("a", "one"), ("b", "two")):
        let_go(node_pool, name, **{HOST: f"{node_pool.namespace}-{node}"})
    status, _, text = until(lambda: node_pool.condition("a"), lambda row: row[1] == "Unschedulable")
    outside = "1 node(s) were outside any rack that can hold the gang (largest holds 1 of 2)"
    assert (status, outside in text, node_pool.nodes_of_pods()) == (
        "False",
        True,
        {"a": "", "b": ""},
    )
