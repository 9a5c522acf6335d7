"""The thin path through a real kube-apiserver with real kubectl: refused, stamped, bound, restarted."""

import json
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_job, a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def in_namespace(obj: Json, namespace: str) -> str:
    return json.dumps(obj | {"metadata": obj["metadata"] | {"namespace": namespace}})


def pod(kubectl: Kubectl, namespace: str, name: str) -> Json:
    found: Json = json.loads(kubectl("get", "pod", name, "-n", namespace, "-o", "json").stdout)
    return found


def node_of(kubectl: Kubectl, namespace: str, name: str) -> str:
    return str(pod(kubectl, namespace, name)["spec"].get("nodeName") or "")


def test_a_job_that_never_makes_its_gang_is_refused_at_apply(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    job = a_job("train", pod=a_pod(labels=in_gang("g", 4), restartPolicy="Never"), parallelism=2)
    got = kubectl("apply", "-f", "-", input=in_namespace(job, namespace))
    key = vocabulary.GANG_MIN_AVAILABLE_LABEL
    assert got.returncode != 0
    assert (
        f"kubenexus/gang-size: {key} is 4 but the workload makes 2 pods of group 'g' at a time "
        f"(spec.template.metadata.labels['{key}']): lower min-available to 2 or less, or run 4 pods at a time"
    ) in got.stderr
    assert kubectl("get", "job", "train", "-n", namespace).returncode != 0


def test_a_good_pod_is_stamped_and_bound(stack: Stack, kubectl: Kubectl, namespace: str) -> None:
    labels = f"{vocabulary.TENANT_LABEL}=ada", f"{vocabulary.TIER_LABEL}=silver"
    assert kubectl("label", "namespace", namespace, *labels).returncode == 0
    wanted = a_pod("good", schedulerName=vocabulary.SCHEDULER_NAME)

    def applied() -> Json | None:
        got = kubectl("apply", "-f", "-", input=in_namespace(wanted, namespace))
        assert got.returncode == 0, got.stderr
        found = pod(kubectl, namespace, "good")
        if found["metadata"]["labels"][vocabulary.TENANT_LABEL] == "ada":
            return found
        # The label travels to the webhook by watch; a pod that came before it is made anew.
        kubectl("delete", "pod", "good", "-n", namespace, "--now")
        return None

    found = eventually(applied, "the namespace's tenant on the pod")
    stamps = {k: v for k, v in found["metadata"]["labels"].items() if "kubenexus.io/" in k}
    assert stamps == {
        vocabulary.TENANT_LABEL: "ada",
        vocabulary.TIER_LABEL: "silver",
        vocabulary.WORKLOAD_TYPE_LABEL: "service",
    }
    profile = json.loads(found["metadata"]["annotations"][vocabulary.PROFILE_ANNOTATION])
    assert (profile["tenant"], profile["tier"], profile["type"]) == ("ada", "silver", "service")
    eventually(lambda: node_of(kubectl, namespace, "good"), "a node for the pod")


def test_a_gang_of_a_job_takes_its_size_from_the_job(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    template = a_pod(labels=in_gang("g", None), restartPolicy="Never")
    job = a_job("train", pod=template, parallelism=3, completions=3)
    got = kubectl("apply", "-f", "-", input=in_namespace(job, namespace))
    assert got.returncode == 0, got.stderr

    def sizes() -> set[str] | None:
        listed = kubectl("get", "pods", "-n", namespace, "-l", "job-name=train", "-o", "json")
        pods = json.loads(listed.stdout)["items"]
        if len(pods) < 3 or not all(p["spec"].get("nodeName") for p in pods):
            return None
        return {p["metadata"]["labels"][vocabulary.GANG_MIN_AVAILABLE_LABEL] for p in pods}

    assert eventually(sizes, "three bound pods of the Job") == {"3"}


def test_what_admission_wrote_cannot_be_changed(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    assert kubectl("apply", "-f", "-", input=in_namespace(a_pod("p"), namespace)).returncode == 0
    got = kubectl(
        "label", "pod", "p", "-n", namespace, "--overwrite", f"{vocabulary.TIER_LABEL}=gold"
    )
    assert got.returncode != 0
    assert "kubenexus/stamped: changed from 'bronze' to 'gold'" in got.stderr


def test_a_webhook_killed_and_restarted_serves_again(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    stack.child("webhook").kill()
    refused = kubectl("apply", "-f", "-", input=in_namespace(a_pod("late"), namespace))
    assert refused.returncode != 0, "without a webhook to judge it, the pod must not get in"
    stack.restart("webhook", crash=True)
    got = kubectl("apply", "-f", "-", input=in_namespace(a_pod("late"), namespace))
    assert got.returncode == 0, got.stderr
    assert vocabulary.TIER_LABEL in pod(kubectl, namespace, "late")["metadata"]["labels"]


def test_nothing_is_lost_when_the_api_server_restarts(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    def applied(name: str) -> None:
        wanted = a_pod(name, schedulerName=vocabulary.SCHEDULER_NAME)
        got = kubectl("apply", "-f", "-", input=in_namespace(wanted, namespace))
        assert got.returncode == 0, got.stderr

    applied("before")
    control_plane.restart_apiserver()
    applied("after")
    for name in ("before", "after"):
        eventually(partial(node_of, kubectl, namespace, name), f"a node for pod {name!r}")
