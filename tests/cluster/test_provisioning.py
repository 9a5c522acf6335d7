"""
Gangs that lack capacity and what autoscalers learn of them, on a real API server.

The test plays the autoscaler: it answers requests and adds the nodes. One scheduler requests nodes
and serves the module, another one does not.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.process.child import Child
from policies import vocabulary
from scheduler.model.placeholder import like, spec_of
from scheduler.model.pod import Pod
from scheduler.provisioning import objects
from scheduler.provisioning.objects import EqualMembers
from tests.cluster.node_pool import Json, NodePool, Replica, until
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

REQUESTS, PLAIN = "scheduler-that-requests", "scheduler-that-does-not"
CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
KIND = "/apis/autoscaling.x-k8s.io/v1"
CRD = Path(__file__).parent / "crds/others/provisioningrequests.autoscaling.x-k8s.io.yaml"
WHOSE = {vocabulary.TENANT_LABEL: "limited"}
QUOTA = """
apiVersion: policy.kubenexus.io/v1alpha1
kind: TenantPolicy
metadata: {name: limited}
spec:
  tenant: {name: limited, tier: gold}
  quota: {max: {cpu: "1"}}
"""


def there(api: Api, path: str) -> Json | None:
    try:
        return api.call("GET", path)
    except CallFailed as exc:
        if exc.status not in (404, 429):  # 429: its storage is being set up
            raise
        return None


@pytest.fixture(scope="module")
def kind(control_plane: ControlPlane) -> None:
    """The kind is served. The fixture waits for the end of one that another module deleted."""
    api, definition = control_plane.api(), yaml.safe_load(CRD.read_text())
    name = definition["metadata"]["name"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"

    def stays() -> bool:
        found = there(api, path)
        return found is None or "deletionTimestamp" not in found["metadata"]

    eventually(stays, "the kind is not terminating")
    api.apply(definition)
    eventually(lambda: there(api, f"{KIND}/provisioningrequests"), "the kind is served")


class RequestingScheduler(Replica):
    """A scheduler that requests nodes, and knows a tenant with a quota."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(plane, REQUESTS, folder / "requests.log", alone=True)
        policies = folder / "quota.yaml"
        policies.write_text(QUOTA)
        more = (f"--provisioning-class={CLASS}", f"--policies={policies}")
        self.child = Child(
            self.child.name,
            (*self.child.argv, *more),
            log=self.child.log,
            env=self_exec.environment(os.environ),
        )


@pytest.fixture(scope="module")
def requesting_scheduler(
    control_plane: ControlPlane, kind: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RequestingScheduler]:
    found = RequestingScheduler(control_plane, tmp_path_factory.mktemp("provisioning"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def node_pool(control_plane: ControlPlane, namespace: str) -> Iterator[NodePool]:
    found = NodePool(control_plane, namespace)
    yield found
    found.close()


def members(
    node_pool: NodePool, gang: str, count: int, *, size: int = 0, **more: Any
) -> list[Json]:
    found = []
    for number in range(count):
        pod = node_pool.pod(f"{gang}-{number}", gang=(gang, size or count), **more)
        pod["spec"]["schedulerName"] = REQUESTS
        found.append(pod)
    return found


def job(node_pool: NodePool, name: str, count: int) -> Json:
    (pod, *_) = members(node_pool, name, count)
    about = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    spec = {**pod["spec"], "restartPolicy": "Never"}
    spec["containers"][0]["env"] = [{"name": "TOKEN", "value": "secret"}]
    template = {"metadata": about, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": count, "completions": count, "template": template},
    }


def requests(node_pool: NodePool) -> dict[str, Json]:
    """Gang -> its request; two for one gang are an error."""
    rows = node_pool.api.call(
        "GET", f"{KIND}/namespaces/{node_pool.namespace}/provisioningrequests"
    )["items"]
    found = {row["metadata"]["labels"][vocabulary.GANG_NAME_LABEL]: row for row in rows}
    assert len(found) == len(rows), [row["metadata"]["name"] for row in rows]
    return found


def templates(node_pool: NodePool) -> dict[str, Json]:
    rows = node_pool.api.call("GET", f"/api/v1/namespaces/{node_pool.namespace}/podtemplates")[
        "items"
    ]
    return {row["metadata"]["name"]: row for row in rows}


def answer(
    node_pool: NodePool, gang: str, kind: str, message: str, at: str = "2020-01-01T00:00:00Z"
) -> None:
    """As the autoscaler would."""
    row = {"type": kind, "status": "True", "reason": kind, "message": message}
    name = requests(node_pool)[gang]["metadata"]["name"]
    node_pool.api.call(
        "PATCH",
        f"{KIND}/namespaces/{node_pool.namespace}/provisioningrequests/{name}/status",
        {"status": {"conditions": [{**row, "lastTransitionTime": at}]}},
        content_type="application/merge-patch+json",
    )


def reasons(node_pool: NodePool) -> dict[str, str]:
    """Gang -> the reasons of its members' conditions."""
    found: dict[str, set[str]] = {}
    for pod in node_pool.pods():
        gang = pod["metadata"]["labels"][vocabulary.GANG_NAME_LABEL]
        rows = pod["status"].get("conditions", [])
        said = [row.get("reason", "") for row in rows if row["type"] == "PodScheduled"]
        found.setdefault(gang, set()).update(said or [""])
    return {gang: " ".join(sorted(said)) for gang, said in found.items()}


def test_nodes_for_a_whole_gang(
    requesting_scheduler: RequestingScheduler, node_pool: NodePool
) -> None:
    node_pool.add_node("first", cpu="1")
    for pod in members(node_pool, "over", 2):
        pod["metadata"]["labels"] |= WHOSE
        node_pool.create(pod)
    node_pool.post("apis/batch/v1/jobs", job(node_pool, "train", 3))
    made = eventually(lambda: requests(node_pool).get("train"), "a request for nodes")
    name = made["metadata"]["name"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "train")
    assert made["spec"] == {
        "provisioningClassName": CLASS,
        "podSets": [{"podTemplateRef": {"name": f"{name}-0"}, "count": 3}],
    }
    (template,) = templates(node_pool).values()
    assert template["metadata"]["name"] == f"{name}-0"
    assert template["template"]["spec"]["nodeSelector"] == {"node-pool": node_pool.namespace}
    assert "secret" not in str(template)
    want = {"train": "WaitingForProvisioning", "over": "QuotaExceeded"}
    assert until(lambda: reasons(node_pool), lambda found: found == want) == want

    # Another scheduler process resumes where the first one was killed. When a gang that came
    # later has its request, the scheduler has inspected the first gang as well.
    requesting_scheduler.kill()
    requesting_scheduler.start()
    node_pool.create(*members(node_pool, "wide", 2, cpu="2"))
    eventually(lambda: requests(node_pool).get("wide"), "the request of the later gang")
    assert requests(node_pool)["train"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert set(requests(node_pool)) == {"train", "wide"}

    answer(node_pool, "train", "Provisioned", "nodes are on their way")
    eventually(lambda: node_pool.events("Provisioned"), "an Event about the answer")
    node_pool.add_node("second", cpu="2")

    def bound() -> dict[str, str]:
        return {name: node for name, node in node_pool.nodes_of_pods().items() if node}

    assert len(until(bound, lambda nodes: len(nodes) == 3)) == 3
    assert {name.rsplit("-", 1)[0] for name in bound()} == {"train"}
    assert set(until(lambda: requests(node_pool), lambda found: set(found) == {"wide"})) == {"wide"}

    # The autoscaler fails the other one, so long ago that the pause is over.
    first = requests(node_pool)["wide"]["metadata"]["name"]
    answer(node_pool, "wide", "Failed", "the group of nodes is at its largest")
    last = f"{first.removesuffix('-1')}-2"
    names = until(
        lambda: [row["metadata"]["name"] for row in requests(node_pool).values()],
        lambda found: found == [last],
    )
    assert names == [last]
    ((_, _, note),) = node_pool.events("ProvisioningFailed")
    said = f"ProvisioningRequest {first} provides no nodes: Failed: the group of nodes is at its largest"
    assert note.startswith(said)
    for number in range(2):
        node_pool.api.call("DELETE", f"/api/v1/namespaces/{node_pool.namespace}/pods/wide-{number}")
    assert until(
        lambda: (requests(node_pool), templates(node_pool)), lambda left: left == ({}, {})
    ) == (
        {},
        {},
    )


def test_without_requests_all_missing_members_say_so_together(
    control_plane: ControlPlane, kind: None, node_pool: NodePool, tmp_path: Path
) -> None:
    alone = Replica(control_plane, PLAIN, tmp_path / "plain.log", alone=True)
    alone.start()
    try:
        node_pool.add_node("n", cpu="1")
        for pod in (
            *members(node_pool, "g", 4, size=3),
            node_pool.pod("invalid-0", gang=("invalid", 1)),
        ):
            pod["spec"]["schedulerName"] = PLAIN
            if pod["metadata"]["name"] == "invalid-0":
                pod["metadata"]["annotations"][vocabulary.NUMA_POLICY_ANNOTATION] = "sideways"
            node_pool.create(pod)
        want = {"g": "Unschedulable", "invalid": "InvalidRequest"}
        assert until(lambda: reasons(node_pool), lambda found: found == want) == want
        late = node_pool.pod("g-4", gang=("g", 3))
        late["spec"]["schedulerName"] = PLAIN
        node_pool.create(late)
        assert until(lambda: reasons(node_pool), lambda found: found == want) == want
        assert requests(node_pool) == {}
    finally:
        alone.stop()


RICH: Json = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                }
            ]
        }
    },
    "containers": [
        {
            "name": "c",
            "image": "i",
            "command": ["run"],
            "env": [{"name": "TOKEN", "value": "secret"}],
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {
                "requests": {"cpu": "1"},
                "limits": {"nvidia.com/gpu": "1"},
                "claims": [{"name": "devices"}],
            },
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "initContainers": [
        {"name": "first", "image": "i"},
        {"name": "beside", "image": "i", "restartPolicy": "Always"},
    ],
    "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "devices"}],
    "schedulingGates": [{"name": vocabulary.GANG_GATE}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "more", "configMap": {"name": "settings"}},
    ],
}


def test_the_api_server_takes_templates_of_members_of_all_sorts(node_pool: NodePool) -> None:
    tried = f"/api/v1/namespaces/{node_pool.namespace}/%s?dryRun=All"
    stored = node_pool.api.call("POST", tried % "pods", node_pool.pod("p", gang=("g", 2), **RICH))
    pod = Pod.read(stored)
    coming = like(pod, spec_of(pod, {"cpu": 1500, "nvidia.com/gpu": 2}), 1)
    sets = [
        (objects.template(stored, members), 1)
        for members in (EqualMembers((pod,), pod), EqualMembers(coming, pod, stated=True))
    ]
    assert pod.gang is not None
    draft = objects.draft(pod.gang.key, CLASS, sets)
    taken = [
        node_pool.api.call("POST", tried % "podtemplates", body)
        for body in objects.pod_templates(draft, 1, scheduler=REQUESTS)
    ]
    specs = [one["template"]["spec"] for one in taken]
    resources = [spec["containers"][0]["resources"] for spec in specs]
    assert {
        "requests": {"cpu": "1500m", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    } in (resources)
    assert [spec["affinity"] for spec in specs] == [RICH["affinity"]] * 2
    assert "secret" not in str(taken)
