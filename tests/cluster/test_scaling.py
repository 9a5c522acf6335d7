"""Workloads that change how many pods they make, on a real API server: by hand and by rollout."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.api import path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_job, a_pod, a_template, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

MIN = vocabulary.GANG_MIN_AVAILABLE_LABEL
PYTORCH = Path(__file__).parent / "crds" / "pytorchjobs.kubeflow.org.yaml"


def a_workload(api_version: str, kind: str, namespace: str, **spec: Any) -> Json:
    template = a_template(a_pod(labels={"app": "w", **in_gang("g", 4)}))
    plain = kind == "ReplicationController"
    selector: Json = {"app": "w"} if plain else {"matchLabels": {"app": "w"}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "w", "namespace": namespace},
        "spec": {"replicas": 4, "selector": selector, "template": template, **spec},
    }


def too_few(size: int, made: int) -> str:
    return (
        f"kubenexus/gang-size: {MIN} is {size} but the workload makes {made} pods of group 'g' at "
        f"a time (spec.replicas): lower min-available to {made} or less, or run {size} pods at a time"
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "spec"),
    [
        pytest.param("apps/v1", "Deployment", {}, id="Deployment"),
        pytest.param("apps/v1", "ReplicaSet", {}, id="ReplicaSet"),
        pytest.param(
            "apps/v1",
            "StatefulSet",
            {"serviceName": "s", "podManagementPolicy": "Parallel"},
            id="StatefulSet",
        ),
        pytest.param("v1", "ReplicationController", {}, id="ReplicationController"),
    ],
)
def test_a_gang_is_not_scaled_below_its_size(
    stack: Stack, kubectl: Kubectl, namespace: str, api_version: str, kind: str, spec: Json
) -> None:
    obj = a_workload(api_version, kind, namespace, **spec)
    assert kubectl("create", "-f", "-", input=json.dumps(obj)).returncode == 0

    def scaled(count: int) -> str:
        got = kubectl("scale", kind.lower(), "w", "-n", namespace, f"--replicas={count}")
        return got.stderr if got.returncode else ""

    assert too_few(4, 2) in scaled(2)
    assert scaled(0) == "", "that is how people stop things"
    assert too_few(4, 3) in scaled(3), "nothing is no way around the rule"
    assert [scaled(5), scaled(4)] == ["", ""]


def test_a_workload_that_is_stopped_may_be_applied(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    obj = a_workload("apps/v1", "Deployment", namespace, replicas=0)
    assert kubectl("apply", "-f", "-", input=json.dumps(obj)).returncode == 0


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(4, id="the new ReplicaSet begins smaller than the gang"),
        pytest.param(None, id="pods without a size get that of the Deployment"),
    ],
)
def test_a_rollout_of_a_gang_succeeds(
    stack: Stack, kubectl: Kubectl, namespace: str, size: int | None
) -> None:
    obj = a_workload("apps/v1", "Deployment", namespace)
    obj["spec"]["template"]["metadata"]["labels"] = {"app": "w", **in_gang("g", size)}
    assert kubectl("create", "-f", "-", input=json.dumps(obj)).returncode == 0
    changed = {"spec": {"template": {"metadata": {"annotations": {"round": "2"}}}}}
    got = kubectl("patch", "deployment", "w", "-n", namespace, "-p", json.dumps(changed))
    assert got.returncode == 0, got.stderr

    def new_pods() -> list[Json]:
        listed = json.loads(kubectl("get", "pods", "-n", namespace, "-o", "json").stdout)["items"]
        return [pod for pod in listed if pod["metadata"].get("annotations", {}).get("round") == "2"]

    pods = eventually(new_pods, "pods of the second round")
    assert {pod["metadata"]["labels"][MIN] for pod in pods} == {"4"}


def test_a_part_of_a_workload_is_smaller_than_the_gang(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    owner = a_workload("apps/v1", "Deployment", namespace)
    made = control_plane.api().call(
        "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", owner
    )
    part = a_job("part", pod=a_pod(labels=in_gang("g", 4), restartPolicy="Never"), parallelism=2)
    part["metadata"] = {
        "name": "part",
        "namespace": namespace,
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": "w",
                "uid": made["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    got = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(part))
    assert got.returncode == 0, got.stderr


@pytest.fixture
def pytorch(control_plane: ControlPlane, stack: Stack, kubectl: Kubectl) -> Iterator[None]:
    definition = yaml.safe_load(PYTORCH.read_text())
    control_plane.api().apply(definition)
    eventually(lambda: kubectl("get", "pytorchjobs").returncode == 0, "the kind")
    yield
    control_plane.api().call("DELETE", path_of(definition))


def test_a_custom_kind_is_not_scaled_below_its_gang(
    pytorch: None, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    template = a_template(a_pod(labels=in_gang("g", 4)))
    obj = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "w", "namespace": namespace},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": 3, "template": template},
            }
        },
    }
    got = kubectl("create", "-f", "-", input=json.dumps(obj))
    assert got.returncode == 0, got.stderr
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/w/scale"

    def scaled(count: int) -> str:
        body = {"spec": {"replicas": count}}
        try:
            control_plane.api().call(
                "PATCH", path, body, content_type="application/merge-patch+json"
            )
        except CallFailed as exc:
            return str(exc)
        return ""

    assert too_few(4, 2) in scaled(1)
    assert scaled(4) == ""


def test_a_gang_may_span_workloads_that_say_their_role(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    """A bare driver and a Deployment of executors are one gang."""

    def applied(role: dict[str, str]) -> tuple[bool, str]:
        obj = a_workload("apps/v1", "Deployment", namespace, replicas=3)
        obj["spec"]["template"]["metadata"]["labels"] |= role
        got = kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(obj))
        return got.returncode == 0, got.stderr

    admitted, said = applied({})
    fix = f"where others make the rest, label the template with its {vocabulary.GANG_ROLE_LABEL}"
    assert (admitted, fix in said) == (False, True), said
    warning = (
        "Warning: spec.template makes 3 of the 4 pods of group 'g': "
        "the other member must come from elsewhere\n"
    )
    assert applied({vocabulary.GANG_ROLE_LABEL: "worker"}) == (True, warning)
    assert applied({vocabulary.SPARK_ROLE_LABEL: "executor"}) == (True, warning)


def test_pods_that_start_one_after_another_are_warned_about(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    obj = a_workload("apps/v1", "StatefulSet", namespace, serviceName="s")
    got = kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(obj))
    assert (got.returncode, got.stderr) == (
        0,
        "Warning: the pods of group 'g' start together or not at all, but their workload starts one "
        "after another: set spec.podManagementPolicy: Parallel\n",
    )
