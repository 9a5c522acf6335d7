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
from tests.cluster.waiting import eventually
from tests.cluster.yard import Yard, until

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

CRDS = sorted((Path(__file__).parent / "crds" / "others").glob("*.kueue.x-k8s.io.yaml"))
API = "kueue.x-k8s.io/v1beta2"
QUEUE, TIER = vocabulary.QUEUE_NAME_LABEL, vocabulary.TIER_LABEL
GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
HOST, RACK = vocabulary.HOSTNAME_LABEL, vocabulary.RACK_LABEL
SILENT = "Warning: queue 'gpu' says nothing of the tier: "


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
        """What admission would write now on a pod that names the queue."""
        pod = Yard(self.plane, namespace).pod("new")
        pod["metadata"]["labels"][QUEUE] = "gpu"
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        made = self.plane.api().call("POST", path, pod)
        return str(made["metadata"]["labels"][TIER])


def _read(path: Path) -> Json:
    found: Json = yaml.safe_load(path.read_text())
    return found


@pytest.fixture(scope="module")
def absent(stack: Stack, control_plane: ControlPlane) -> Iterator[Queues]:
    """Whoever installs the kinds does so while the webhook runs."""
    queues = Queues(control_plane)
    yield queues
    queues.uninstall()


@pytest.fixture
def queues(absent: Queues) -> Queues:
    absent.install()
    return absent


@pytest.fixture
def yard(control_plane: ControlPlane, stack: Stack, namespace: str) -> Iterator[Yard]:
    yard = Yard(control_plane, namespace)
    yield yard
    yard.close()


def a_job(yard: Yard, name: str, count: int = 1) -> Json:
    """A Job that stands in the queue `gpu`; its pods carry no label of their own."""
    spec = yard.pod(name)["spec"] | {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": yard.namespace, "labels": {QUEUE: "gpu"}},
        "spec": {"parallelism": count, "completions": count, "template": {"spec": spec}},
    }


def applied(kubectl: Kubectl, obj: Json) -> tuple[bool, str]:
    got = kubectl("apply", "-f", "-", input=json.dumps(obj))
    return got.returncode == 0, got.stderr


def stamped(pod: Json) -> tuple[str, str, str]:
    """The tier on the label and in the profile, and the queue in the profile."""
    profile = json.loads(pod["metadata"]["annotations"][vocabulary.PROFILE_ANNOTATION])
    return pod["metadata"]["labels"][TIER], profile["tier"], profile.get("queue", "")


def test_kueue_is_noticed_when_it_comes(absent: Queues, yard: Yard, kubectl: Kubectl) -> None:
    namespace = yard.namespace
    text = f"this cluster has no LocalQueues; install Kueue, or remove the label {QUEUE}\n"
    assert applied(kubectl, a_job(yard, "before")) == (True, f"{SILENT}{text}")
    absent.install()
    absent.cluster_queue("early", "gold")
    absent.local_queue(namespace, "early")
    assert until(lambda: absent.tier_of_a_new_pod(namespace), lambda tier: tier == "gold") == "gold"


def test_the_tier_of_a_queue_reaches_the_pods_of_a_job_and_changes_for_new_ones_alone(
    queues: Queues, yard: Yard, kubectl: Kubectl
) -> None:
    namespace = yard.namespace
    node = yard.add_node("n")
    # Applied and used at once: whatever the watches have not seen is asked for.
    queues.cluster_queue("turning", "gold")
    queues.local_queue(namespace, "turning")
    assert applied(kubectl, a_job(yard, "first", 2)) == (True, "")
    until(yard.nodes_of_pods, lambda found: len(found) == 2 and all(found.values()))
    assert [stamped(pod) for pod in yard.pods()] == [("gold", "gold", "gpu")] * 2
    queues.cluster_queue("turning", "silver")
    until(lambda: queues.tier_of_a_new_pod(namespace), lambda tier: tier == "silver")
    # The label of the first pods is theirs; an update of one is judged by it.
    name = yard.pods()[0]["metadata"]["name"]
    assert kubectl("annotate", "pod", "-n", namespace, name, "note=1").returncode == 0
    assert applied(kubectl, a_job(yard, "second")) == (True, "")
    until(yard.nodes_of_pods, lambda found: len(found) == 3)
    assert (sorted(stamped(pod) for pod in yard.pods()), set(yard.all_bound(3).values())) == (
        [("gold", "gold", "gpu"), ("gold", "gold", "gpu"), ("silver", "silver", "gpu")],
        {node},
    )


def test_a_queue_that_leads_nowhere_is_warned_about(
    queues: Queues, yard: Yard, kubectl: Kubectl
) -> None:
    namespace = yard.namespace
    said = [applied(kubectl, a_job(yard, "no-local"))]
    queues.local_queue(namespace, "missing")
    eventually(lambda: "ClusterQueue" in applied(kubectl, a_job(yard, "x"))[1], "seen")
    said.append(applied(kubectl, a_job(yard, "no-cluster")))
    queues.cluster_queue("missing", "platinum")
    said.append(applied(kubectl, a_job(yard, "no-tier")))
    queues.cluster_queue("closed", "gold", {"matchLabels": {"team": "others"}})
    kubectl("delete", "localqueue", "-n", namespace, "gpu")
    queues.local_queue(namespace, "closed")
    said.append(
        until(
            lambda: applied(kubectl, a_job(yard, "not-ours")),
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


def held(yard: Yard, name: str, *gates: str, **annotations: str) -> Json:
    """A member of a gang of two, behind these gates."""
    return yard.pod(
        name,
        gang=("g", 2),
        annotations=annotations,
        schedulingGates=[{"name": gate} for gate in gates],
    )


def let_go(yard: Yard, name: str, **place: str) -> None:
    """As Kueue does: its gates go, and the node selector gets its topology assignment."""
    path = f"/api/v1/namespaces/{yard.namespace}/pods/{name}"
    spec = yard.api.call("GET", path)["spec"]
    left = [gate for gate in spec["schedulingGates"] if gate["name"] not in GATES]
    body = [
        {"op": "add", "path": "/spec/nodeSelector", "value": {**spec["nodeSelector"], **place}},
        {"op": "replace", "path": "/spec/schedulingGates", "value": left},
    ]
    yard.api.call("PATCH", path, body, content_type="application/json-patch+json")  # type: ignore[arg-type]  # a JSON patch is a list


def seen_by_the_scheduler(yard: Yard) -> None:
    """Whatever was created before: the scheduler bound a pod that came after it."""
    yard.create(yard.pod("after", cpu="100m"))
    until(yard.nodes_of_pods, lambda found: bool(found["after"]))


def gates_of(yard: Yard) -> dict[str, list[str]]:
    return {
        pod["metadata"]["name"]: [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
        for pod in yard.pods()
    }


def test_a_gang_that_kueue_holds_is_left_alone_and_then_placed_where_kueue_said(
    queues: Queues, yard: Yard
) -> None:
    nodes = [
        yard.add_node(name, cpu=cpu, labels={HOST: f"{yard.namespace}-{name}"})
        for name, cpu in (("roomy", "16"), ("one", "2"), ("two", "2"))
    ]
    # The gate of the product behind those of Kueue: it is lifted, and only when theirs are gone.
    for name in ("a", "b"):
        yard.create(held(yard, name, *GATES, vocabulary.GANG_GATE))
    seen_by_the_scheduler(yard)
    kept = [*GATES, vocabulary.GANG_GATE]
    waiting = (
        "False",
        "SchedulingGated",
        "Scheduling is blocked due to non-empty scheduling gates",
    )
    assert (gates_of(yard), yard.condition("a"), yard.condition("b")) == (
        {"a": kept, "b": kept, "after": []},
        waiting,
        waiting,
    )
    let_go(yard, "a", **{HOST: nodes[1]})
    told = until(lambda: yard.events(events.GANG_WAITING), bool)
    assert (told, gates_of(yard)["a"], gates_of(yard)["b"]) == (
        [("a", "Normal", "waiting for pod group g: 1/2 pods exist")],
        [vocabulary.GANG_GATE],
        kept,
    )
    let_go(yard, "b", **{HOST: nodes[2]})
    found = yard.all_bound(3)
    assert (found["a"], found["b"]) == (nodes[1], nodes[2])


def test_a_level_that_contradicts_what_kueue_assigned_is_told(queues: Queues, yard: Yard) -> None:
    for name, rack in (("one", "r1"), ("two", "r2")):
        full = f"{yard.namespace}-{name}"
        yard.add_node(name, labels={HOST: full, RACK: f"{yard.namespace}-{rack}"})
    for name in ("a", "b"):
        near = {vocabulary.CO_LOCATE_ANNOTATION: "strict:rack"}
        yard.create(held(yard, name, *GATES, **near))
    for name, node in (("a", "one"), ("b", "two")):
        let_go(yard, name, **{HOST: f"{yard.namespace}-{node}"})
    status, _, text = until(lambda: yard.condition("a"), lambda row: row[1] == "Unschedulable")
    outside = "1 node(s) were outside any rack that can hold the gang (largest holds 1 of 2)"
    assert (status, outside in text, yard.nodes_of_pods()) == ("False", True, {"a": "", "b": ""})
