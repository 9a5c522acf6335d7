"""What admission stays out of, and what it knows of namespaces that were made a moment ago."""

import json
import subprocess
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import WEBHOOK, Stack
from policies import vocabulary
from tests.builders import a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

BROKEN = in_gang(size="many")


def reviews(stack: Stack) -> float:
    with urllib.request.urlopen(f"{stack.webhook_metrics_url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("kubenexus_webhook_reviews_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in counted)


def test_no_answer_is_a_refusal_within_three_seconds(stack: Stack, kubectl: Kubectl) -> None:
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        got = kubectl("get", kind, vocabulary.WEBHOOK_NAME, "-o", "json")
        found = {
            (one["failurePolicy"], one["timeoutSeconds"], one["matchPolicy"], one["sideEffects"])
            for one in json.loads(got.stdout)["webhooks"]
        }
        assert found == {("Fail", 3, "Equivalent", "NoneOnDryRun")}


@pytest.mark.parametrize(
    "namespace", ["kube-system", "kube-node-lease", vocabulary.SYSTEM_NAMESPACE]
)
def test_namespaces_that_the_cluster_lives_by_are_left_alone(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    eventually(lambda: control_plane.has_default_account(namespace), "a service account")
    before = reviews(stack)
    pod = a_pod("p", namespace=namespace, labels=BROKEN)
    got = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert got.returncode == 0, got.stderr
    assert reviews(stack) == before, "it is not even sent"


def test_no_label_opens_that_way_to_others(stack: Stack, kubectl: Kubectl, namespace: str) -> None:
    """The label by which namespaces are left out is the API server's: no other client writes it."""
    key = vocabulary.NAMESPACE_NAME_LABEL
    kubectl("label", "--overwrite", "namespace", namespace, f"{key}=kube-system")
    pod = a_pod("p", namespace=namespace, labels=BROKEN)
    got = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert (got.returncode, "kubenexus/gang-size" in got.stderr) == (1, True)


def test_a_mirror_pod_of_a_node_is_left_alone(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    pod = a_pod(
        "mirror",
        namespace=namespace,
        labels=BROKEN,
        annotations={vocabulary.MIRROR_ANNOTATION: "x"},
        nodeName="node-0",
    )
    as_node = ("--as=system:node:node-0", "--as-group=system:nodes")
    before = reviews(stack)
    got = kubectl("create", *as_node, "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert (got.returncode, reviews(stack)) == (0, before), got.stderr
    refused = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert refused.returncode != 0, "a person who says so is judged like all users"


def test_a_namespace_of_a_moment_ago_is_known(stack: Stack, control_plane: ControlPlane) -> None:
    """The watch may not have brought it yet: then it is read, and never taken for a stranger."""
    api = control_plane.api()
    names = [f"just-made-{number}" for number in range(5)]
    try:
        for name in names:
            labels = {vocabulary.TENANT_LABEL: name, vocabulary.TIER_LABEL: "silver"}
            about = {"name": name, "labels": labels}
            api.call("POST", "/api/v1/namespaces", {"metadata": about})
            pod = a_pod("p", namespace=name, serviceAccountName="none")
            pod["metadata"]["labels"] = {vocabulary.TENANT_LABEL: "somebody-else"}
            with pytest.raises(CallFailed) as caught:
                api.call("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", pod)
            said = str(caught.value)
            # The account is made later by a controller, and missing it is no matter of admission.
            assert f"belongs to '{name}'" in said or 'serviceaccount "none" not found' in said
    finally:
        for name in names:
            api.call("DELETE", f"/api/v1/namespaces/{name}")


def test_a_refusal_is_logged_as_json_without_what_is_secret(
    stack: Stack, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    pod = a_pod("told", namespace=namespace, labels=BROKEN)
    secret = "hunter2-of-the-log-test"
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": secret}]
    assert kubectl("create", "-f", "-", input=json.dumps(pod)).returncode != 0
    log = stack.child(WEBHOOK).log

    def line() -> Json | None:
        for text in log.read_text().splitlines():
            row: Json = json.loads(text)
            if row.get("object") == f"{namespace}/told":
                return row
        return None

    row = eventually(line, "a line about the refusal")
    assert (row["message"], row["kind"], row["rules"]) == (
        "denied",
        "Pod",
        ["kubenexus/gang-size"],
    )
    assert row["uid"]
    assert secret not in log.read_text()
