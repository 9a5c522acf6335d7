"""More ways around admission on a real API server: other versions, objects that are ending, parts of pods."""

import json
import subprocess
from collections.abc import Callable, Iterator
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
from tests.builders import a_container, a_pod, a_template, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

JOB_SETS = Path(__file__).parent / "crds" / "jobsets.jobset.x-k8s.io.yaml"
HOLD = "example.test/hold"
MERGE = "application/merge-patch+json"


class Tenant:
    """The tenant of one namespace, and calls as its admin."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace, self.name = plane, namespace, f"around-{namespace}"

    def forbid(self, expression: str, *kinds: str) -> str:
        """A policy that what is matched must satisfy; what its refusal begins with."""
        policy = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "TenantPolicy",
            "metadata": {"name": self.name},
            "spec": {
                "tenant": {"name": self.name, "tier": "bronze"},
                "namespaceSelector": {
                    "matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: self.namespace}
                },
                "matchConstraints": {"kinds": list(kinds or ("Pod",))},
                "validations": [{"name": "must", "expression": expression, "message": "no"}],
            },
        }
        got = self.plane.kubectl("apply", "-f", "-", input=json.dumps(policy))
        assert got.returncode == 0, got.stderr
        return f"{self.name}/must: no"

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        content_type: str = "application/json",
    ) -> str:
        """What a call is refused with; nothing where it is done. Paths are `version//rest`."""
        version, _, rest = path.partition("//")
        root = "/apis" if "/" in version else "/api"
        where = f"{root}/{version}/namespaces/{self.namespace}/{rest}"
        try:
            self.plane.api().call(method, where, body, content_type=content_type)
        except CallFailed as exc:
            return str(exc)
        return ""


@pytest.fixture
def tenant(stack: Stack, control_plane: ControlPlane, namespace: str) -> Iterator[Tenant]:
    one = Tenant(control_plane, namespace)
    yield one
    control_plane.kubectl("delete", "tenantpolicy", one.name, "--ignore-not-found")


# --- other versions ---


# Once for all tests here: a definition that is terminating cannot be applied anew.
@pytest.fixture(scope="module")
def job_sets(control_plane: ControlPlane, kubectl: Kubectl, stack: Stack) -> Iterator[None]:
    definition = yaml.safe_load(JOB_SETS.read_text())
    control_plane.api().apply(definition)

    def served(kind: str) -> bool:
        return kubectl("get", kind).returncode == 0

    for version in ("v1alpha1", "v1alpha2"):
        kind = f"jobsets.{version}.jobset.x-k8s.io"
        eventually(partial(served, kind), kind)
    yield
    control_plane.api().call("DELETE", path_of(definition))


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_a_workload_is_reviewed_in_every_version(
    job_sets: None, kubectl: Kubectl, namespace: str, version: str
) -> None:
    template = a_template(a_pod(labels=in_gang("g", 4), restartPolicy="Never"))
    job = {"name": "workers", "template": {"spec": {"parallelism": 2, "template": template}}}
    obj = {
        "apiVersion": f"jobset.x-k8s.io/{version}",
        "kind": "JobSet",
        "metadata": {"name": "w", "namespace": namespace},
        "spec": {"replicatedJobs": [job]},
    }
    got = kubectl("apply", "-f", "-", input=json.dumps(obj))
    assert (got.returncode != 0, "kubenexus/gang-size" in got.stderr) == (True, True), got.stderr


def test_a_built_in_kind_is_reviewed_in_every_version(tenant: Tenant) -> None:
    said = tenant.forbid("object.spec.maxReplicas < 5", "autoscaling/HorizontalPodAutoscaler")

    def tried(version: str) -> str:
        obj = {
            "apiVersion": f"autoscaling/{version}",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": tenant.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "minReplicas": 1,
                "maxReplicas": 9,
            },
        }
        path = f"autoscaling/{version}//horizontalpodautoscalers?dryRun=All"
        return tenant.call("POST", path, obj)

    eventually(lambda: said in tried("v2"), "the policy in force")
    eventually(lambda: said in tried("v1"), "the older version judged by every worker")


# --- objects that are being deleted ---


def test_an_object_that_is_ending_is_let_go_and_guarded(tenant: Tenant, kubectl: Kubectl) -> None:
    pod = a_pod("p", namespace=tenant.namespace, schedulerName="nobody", labels=in_gang("g", 1))
    pod["metadata"]["finalizers"] = [HOLD, "example.test/other"]
    assert tenant.call("POST", "v1//pods", pod) == ""
    said = tenant.forbid("'owner' in object.metadata.labels")
    bare = a_pod("q", namespace=tenant.namespace)
    eventually(lambda: said in tenant.call("POST", "v1//pods?dryRun=All", bare), "the policy")
    assert tenant.call("DELETE", "v1//pods/p") == ""

    def changed(change: Json) -> str:
        return tenant.call("PATCH", "v1//pods/p", change, content_type=MERGE)

    stamped = changed({"metadata": {"labels": {vocabulary.GANG_NAME_LABEL: "h"}}})
    assert "kubenexus/stamped: changed from 'g' to 'h'" in stamped
    both = {"finalizers": ["example.test/other"], "labels": {"any": "thing"}}
    assert said in changed({"metadata": both}), "a finalizer is no pretext for other changes"
    assert changed({"metadata": {"finalizers": ["example.test/other"]}}) == ""
    assert changed({"metadata": {"finalizers": None}}) == ""
    assert kubectl("get", "pod", "p", "-n", tenant.namespace).returncode != 0


# --- containers of every sort ---


def a_bad_container(name: str, **parts: Any) -> Json:
    return {**a_container(name, cpu="100m"), "image": "bad.example/app:1", **parts}


NO_BAD_IMAGES = "containers(object).all(c, !c.image.startsWith('bad.example/'))"


def test_no_sort_of_container_bypasses_a_policy(tenant: Tenant, kubectl: Kubectl) -> None:
    said = tenant.forbid(NO_BAD_IMAGES)
    where: Json = {"namespace": tenant.namespace, "schedulerName": "nobody"}

    def tried(pod: Json) -> str:
        return tenant.call("POST", "v1//pods?dryRun=All", pod)

    init = a_pod("p", **where, initContainers=[a_bad_container("i")])
    sidecar = a_pod("p", **where, initContainers=[a_bad_container("s", restartPolicy="Always")])
    eventually(lambda: said in tried(init), "the policy")
    eventually(lambda: said in tried(sidecar), "a sidecar refused by every worker")
    assert tenant.call("POST", "v1//pods", a_pod("p", **where)) == ""
    debug = a_bad_container("debug")
    del debug["resources"]
    added = {"spec": {"ephemeralContainers": [debug]}}
    strategic = "application/strategic-merge-patch+json"
    path = "v1//pods/p/ephemeralcontainers"
    assert said in tenant.call("PATCH", path, added, content_type=strategic)


def test_a_resize_is_reviewed_by_the_policies_for_pods(tenant: Tenant) -> None:
    said = tenant.forbid("requests(object, 'cpu') <= 2000")
    where: Json = {"namespace": tenant.namespace, "schedulerName": "nobody"}
    large = a_pod("large", **where, containers=[a_container(cpu="3")])
    eventually(lambda: said in tenant.call("POST", "v1//pods?dryRun=All", large), "the policy")
    assert tenant.call("POST", "v1//pods", a_pod("p", **where)) == ""

    def resized(cpu: str) -> str:
        change = {
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}
        }
        strategic = "application/strategic-merge-patch+json"
        return tenant.call("PATCH", "v1//pods/p/resize", change, content_type=strategic)

    assert said in resized("3")
    assert resized("2") == ""
