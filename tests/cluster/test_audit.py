"""Who hears of a decision on a real API server, and what an audit finds afterwards."""

import itertools
import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.stack import Stack
from kubenexus.rbac import TENANT, TENANT_NAMESPACE
from policies import vocabulary
from tests.builders import a_job, a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]
MODE = "mode"
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")

_numbers = itertools.count(1)


def unless(mode: str) -> str:
    return f"!has(object.metadata.labels) || !('{MODE}' in object.metadata.labels) || object.metadata.labels.{MODE} != '{mode}'"


def a_policy(namespace: str) -> Json:
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": f"policy-{namespace}"},
        "spec": {
            "tenant": {"name": f"tenant-{namespace}", "tier": "silver"},
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: namespace}},
            "validations": [
                {"name": "hard", "expression": unless("bad"), "message": "no"},
                {"name": "soft", "expression": unless("odd"), "message": "hm", "action": "Warn"},
                {"name": "quiet", "expression": unless("shy"), "message": "ps", "action": "Audit"},
                {"name": "waived", "expression": unless("spared"), "message": "well"},
            ],
            "exceptions": [
                {
                    "name": "late",
                    "when": "true",
                    "validations": ["waived"],
                    "until": "2099-01-31T00:00:00Z",
                    "reason": "migration",
                }
            ],
            "defaults": [{"set": {"labels": {"cost-center": "42"}}}],
        },
    }


@pytest.fixture
def policy(stack: Stack, kubectl: Kubectl, namespace: str) -> Iterator[str]:
    """The name of a policy that is in force in the namespace."""
    got = kubectl("apply", "-f", "-", input=json.dumps(a_policy(namespace)))
    assert got.returncode == 0, got.stderr
    eventually(lambda: refused(stack.plane, namespace, mode="bad"), "the policy in force")
    yield f"policy-{namespace}"
    kubectl("delete", "tenantpolicy", f"policy-{namespace}")


def create(
    plane: ControlPlane, namespace: str, mode: str, *, name: str = "", dry_run: bool = False
) -> str:
    """What is said against a new pod; nothing where it is made."""
    pod = a_pod(name or f"{mode}-{next(_numbers)}", namespace=namespace, labels={MODE: mode})
    try:
        query = "?dryRun=All" if dry_run else ""
        plane.api().call("POST", f"/api/v1/namespaces/{namespace}/pods{query}", pod)
    except CallFailed as exc:
        return str(exc)
    return ""


def refused(plane: ControlPlane, namespace: str, *, mode: str) -> str:
    return create(plane, namespace, mode, dry_run=True)


def events(kubectl: Kubectl, namespace: str) -> list[Json]:
    listed = kubectl("get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json")
    rows: list[Json] = json.loads(listed.stdout)["items"]
    ours = [row for row in rows if row["reportingController"] == vocabulary.WEBHOOK_NAME]
    return sorted(ours, key=lambda row: (row["reason"], row["note"]))


def shown(row: Json) -> tuple[str, str, str, str, str]:
    about, related = row["regarding"], row.get("related", {})
    return (row["type"], row["reason"], about["kind"], about["name"], related.get("name", ""))


def found(kubectl: Kubectl, namespace: str, kind: str, name: str) -> Json:
    got: Json = json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json").stdout)
    return got


def events_on(kubectl: Kubectl, namespace: str, kind: str, reason: str) -> list[Json]:
    return [
        row
        for row in events(kubectl, namespace)
        if (row["regarding"]["kind"], row["reason"]) == (kind, reason)
    ]


def test_a_denied_pod_gives_an_event_in_its_namespace_and_a_dry_run_gives_none(
    policy: str, control_plane: ControlPlane, kubectl: Kubectl, namespace: str, stack: Stack
) -> None:
    assert "hard" in create(control_plane, namespace, "bad", name="only-tried", dry_run=True)
    assert "hard" in create(control_plane, namespace, "bad", name="really-meant")
    eventually(lambda: events(kubectl, namespace), "an Event about the refusal")
    [row] = events(kubectl, namespace)
    assert shown(row) == ("Warning", "PolicyDenied", "Namespace", namespace, policy)
    assert row["note"] == f"CREATE Pod really-meant: {policy}/hard: no"
    with urllib.request.urlopen(f"{stack.webhook_metrics_url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'kubenexus_webhook_events_total{reason="PolicyDenied"}' in text
    assert "kubenexus_webhook_events_waiting" in text


@pytest.mark.parametrize(
    ("mode", "kind", "reason", "said"),
    [
        ("odd", "Warning", "PolicyWarned", "soft: hm"),
        ("shy", "Normal", "PolicyAudited", "quiet: ps"),
        (
            "spared",
            "Normal",
            "PolicyException",
            "waived excepted by late until 2099-01-31T00:00:00+00:00: migration",
        ),
    ],
)
def test_failures_of_an_admitted_pod_give_events_on_the_pod(
    policy: str,
    control_plane: ControlPlane,
    kubectl: Kubectl,
    namespace: str,
    mode: str,
    kind: str,
    reason: str,
    said: str,
) -> None:
    assert create(control_plane, namespace, mode, name="p") == ""
    eventually(lambda: events(kubectl, namespace), f"an Event {reason}")
    [row] = events(kubectl, namespace)  # and none about the default that was injected
    assert shown(row) == (kind, reason, "Pod", "p", policy)
    assert row["note"] == f"CREATE Pod p: {policy}/{said}"
    assert row["regarding"]["uid"] == found(kubectl, namespace, "pod", "p")["metadata"]["uid"]
    assert f"{policy}/{said}" in kubectl("describe", "pod", "p", "-n", namespace).stdout


def test_denied_pods_of_a_job_give_events_on_the_job(
    policy: str, kubectl: Kubectl, namespace: str
) -> None:
    job = a_job("train", pod=a_pod(labels={MODE: "bad"}, restartPolicy="Never"), parallelism=3)
    job["metadata"] = {"name": "train", "namespace": namespace}
    got = kubectl("create", "-f", "-", input=json.dumps(job))
    assert got.returncode == 0, got.stderr
    eventually(lambda: events_on(kubectl, namespace, "Job", "PolicyDenied"), "an Event on the Job")
    uid = found(kubectl, namespace, "job", "train")["metadata"]["uid"]
    rows = {row["reason"]: row for row in events(kubectl, namespace)}
    assert {row["regarding"]["uid"] for row in rows.values()} == {uid}
    assert rows["PolicyDenied"]["note"] == f"CREATE Pod train-*: {policy}/hard: no"
    assert rows["PolicyWarned"]["note"] == f"CREATE Job train: {policy}/hard: no (spec.template)"


def test_an_update_gives_an_event_on_the_changed_object(
    policy: str, control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    assert create(control_plane, namespace, "good", name="p") == ""
    got = kubectl("label", "--overwrite", "pod", "p", "-n", namespace, f"{MODE}=bad")
    assert f"{policy}/hard: no" in got.stderr
    eventually(lambda: events(kubectl, namespace), "an Event about the update")
    [row] = events(kubectl, namespace)
    assert shown(row) == ("Warning", "PolicyDenied", "Pod", "p", policy)
    assert row["regarding"]["uid"] == found(kubectl, namespace, "pod", "p")["metadata"]["uid"]


# --- what an audit finds ---


@pytest.fixture
def without_admission(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> Iterator[Callable[[], None]]:
    """Admission is off until the test calls what it gets."""
    saved = []
    for kind in CONFIGURATIONS:
        obj = json.loads(kubectl("get", kind, vocabulary.WEBHOOK_NAME, "-o", "json").stdout)
        about = {key: obj["metadata"][key] for key in ("name", "labels")}
        saved.append({**obj, "metadata": about})
    restored = False

    def broken(mode: str) -> bool:
        pod = a_pod("try", namespace=namespace, labels={**in_gang(size="x"), MODE: mode})
        got = kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
        return got.returncode == 0

    def restore() -> None:
        nonlocal restored
        if not restored:
            for obj in saved:
                got = kubectl("create", "-f", "-", input=json.dumps(obj))
                assert got.returncode == 0, got.stderr
            restored = True
            eventually(lambda: not broken("off"), "admission on again")

    kubectl("delete", *[f"{kind}/{vocabulary.WEBHOOK_NAME}" for kind in CONFIGURATIONS])
    try:
        eventually(lambda: broken("on"), "admission off")
        yield restore
    finally:
        restore()


def audit(plane: ControlPlane, *args: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*self_exec.COMMAND, "audit", f"--kubeconfig={plane.kubeconfig(user)}", *args],
        env=self_exec.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_was_made_without_admission_is_found(
    policy: str,
    without_admission: Callable[[], None],
    control_plane: ControlPlane,
    kubectl: Kubectl,
    namespace: str,
) -> None:
    job = a_job("train", pod=a_pod(labels=in_gang(size=9), restartPolicy="Never"), parallelism=2)
    job["metadata"] = {"name": "train", "namespace": namespace}
    job["spec"]["suspend"] = True
    for obj in (a_pod("fine", namespace=namespace), job):
        got = kubectl("create", "-f", "-", input=json.dumps(obj))
        assert got.returncode == 0, got.stderr
    assert create(control_plane, namespace, "bad", name="bad") == ""
    without_admission()
    assert create(control_plane, namespace, "shy", name="shy") == ""

    got = audit(control_plane, "-n", namespace, "-o", "json")
    *rows, summary = [json.loads(line) for line in got.stdout.splitlines()]
    assert (got.returncode, got.stderr) == (1, "")
    assert [
        (row["kind"], row["name"], f"{row['policy']}/{row['rule']}", row["action"]) for row in rows
    ] == [
        ("Pod", "bad", f"{policy}/hard", "Deny"),
        ("Pod", "shy", f"{policy}/quiet", "Audit"),
        ("Job", "train", "kubenexus/gang-size", "Deny"),
    ]
    assert rows[0]["uid"] == found(kubectl, namespace, "pod", "bad")["metadata"]["uid"]
    assert {key: summary[key] for key in ("type", "objects", "failing", "notAdmitted")} == {
        "type": "summary",
        "objects": 4,
        "failing": 3,
        "notAdmitted": 2,
    }

    everywhere = audit(control_plane)
    lines = [line.split()[:4] for line in everywhere.stdout.splitlines()]
    assert everywhere.returncode == 1
    assert [namespace, "pod/bad", "Deny", f"{policy}/hard"] in lines
    assert not [line for line in lines if line[:1] == ["kube-system"]]

    for kind, names in (("pod", ("bad", "shy")), ("job", ("train",))):
        kubectl("delete", kind, *names, "-n", namespace, "--grace-period=0", "--force")
    clean = audit(control_plane, "-n", namespace)
    assert (clean.returncode, clean.stdout) == (
        0,
        f"0 violations in 0 of 1 object: {summary['kinds']} kinds, 1 namespace. "
        "Pods that bypassed admission: 1.\n",
    )


@pytest.mark.parametrize(
    ("args", "user", "want"),
    [
        pytest.param(
            ["-n", "nowhere"], "admin", "there is no namespace 'nowhere'", id="no such namespace"
        ),
        pytest.param(
            ["-n", TENANT_NAMESPACE, "--no-policy-objects"],
            TENANT,
            "an audit needs to list namespaces",
            id="a user who may not read enough",
        ),
    ],
)
def test_what_cannot_be_read_is_no_clean_audit(
    stack: Stack, control_plane: ControlPlane, args: list[str], user: str, want: str
) -> None:
    got = audit(control_plane, *args, user=user)
    assert (got.returncode, got.stdout, got.stderr.count("\n")) == (2, "", 1)
    assert want in got.stderr
