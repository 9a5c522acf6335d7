"""Reports of decisions on an API server that keeps an audit log: annotations and Events."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.events.correlator import OBJECT_BURST
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from kubenexus.rbac import TENANT_NAMESPACE
from policies import vocabulary
from tests.builders import a_job, a_pod, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
NAME = "told"
PREFIX = "validate.workloads.kubenexus.io/"


@dataclass(frozen=True)
class Site:
    plane: ControlPlane
    stack: Stack
    log: Path

    def policy(self, *, until: datetime) -> None:
        """Pods need an owner, except those that are spared until then."""
        obj = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "PlatformPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "validations": [
                    {
                        "name": "owned",
                        "expression": "has(object.metadata.labels)"
                        " && 'owner' in object.metadata.labels",
                        "message": "say whose it is",
                    }
                ],
                "defaults": [{"set": {"labels": {"cost-center": "42"}}}],
                "exceptions": [
                    {
                        "name": "moving",
                        "when": "object.metadata.name.startsWith('spared')",
                        "until": until.isoformat(),
                        "reason": "being moved",
                    }
                ],
            },
        }
        got = self.plane.kubectl("apply", "-f", "-", input=json.dumps(obj))
        assert got.returncode == 0, got.stderr

    def create(self, obj: Json, namespace: str = TENANT_NAMESPACE) -> str:
        path = "/apis/batch/v1" if obj["kind"] == "Job" else "/api/v1"
        plural = f"{obj['kind'].lower()}s"
        try:
            self.plane.api().call("POST", f"{path}/namespaces/{namespace}/{plural}", obj)
        except CallFailed as exc:
            return str(exc)
        return ""

    def events(self, reason: str, name: str, namespace: str = TENANT_NAMESPACE) -> list[Json]:
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        return [
            row
            for row in self.plane.api().call("GET", path)["items"]
            if row["reason"] == reason and row["regarding"]["name"] == name
        ]

    def dropped(self) -> int:
        """What was worth an Event about something that had too many already."""
        figure = 'kubenexus_webhook_events_dropped_total{why="object too noisy"} '
        url = f"{self.stack.webhook_metrics_url}/metrics"
        with urllib.request.urlopen(url, timeout=5.0) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(figure):
                    return int(float(line.removeprefix(figure)))
        return 0

    def annotations(self, name: str) -> Json:
        """What the audit log has of the webhook about the create of the pod."""
        for line in self.log.read_text().splitlines():
            row = json.loads(line)
            if (row["verb"], row.get("objectRef", {}).get("name")) == ("create", name):
                found = row.get("annotations", {})
                return {k.removeprefix(PREFIX): v for k, v in found.items() if k.startswith(PREFIX)}
        return {}


@pytest.fixture(scope="module")
def site(kubernetes_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("reporting")
    log, rules = folder / "audit.log", folder / "audit-policy.json"
    pods = {"level": "Metadata", "resources": [{"group": "", "resources": ["pods"]}]}
    rules.write_text(
        json.dumps(
            {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [pods, {"level": "None"}],
            }
        )
    )
    plane = ControlPlane(
        binaries=kubernetes_binaries,
        folder=folder / "plane",
        for_tests=True,
        apiserver_flags=[f"--audit-policy-file={rules}", f"--audit-log-path={log}"],
    )
    options = ["--event-defaults"]
    with plane, Stack(plane, scheduler=False, webhook_options=options) as stack:
        here = Site(plane, stack, log)
        here.policy(until=datetime.now(UTC) + timedelta(days=1))
        eventually(lambda: f"{NAME}/owned" in here.create(a_pod("probe")), "the policy")
        yield here


def an_owned(name: str, **parts: Any) -> Json:
    return a_pod(name, labels={"owner": "ada", **parts.pop("labels", {})}, **parts)


def test_an_admitted_pod_is_in_the_audit_log_and_its_defaults_in_events(site: Site) -> None:
    eventually(lambda: site.create(an_owned("good")) == "", "a pod let in")
    got = eventually(lambda: site.annotations("good"), "a line of the audit log")
    policies = got.pop("policies")
    assert got == {
        "decision": "allowed",
        "tenant": "team-a",
        "tier": "gold",
        "workload-type": "service",
    }
    assert NAME in policies.split(",")
    [row] = eventually(lambda: site.events("DefaultsInjected", "good"), "an Event")
    assert (row["type"], row["regarding"]["kind"]) == ("Normal", "Pod")
    assert f"metadata.labels.cost-center by {NAME}/defaults[0]" in row["note"]
    assert "42" not in row["note"], "values may be secret"


def test_a_denied_pod_is_in_the_audit_log(site: Site) -> None:
    assert f"{NAME}/owned: say whose it is" in site.create(a_pod("refused"))
    got = eventually(lambda: site.annotations("refused"), "a line of the audit log")
    assert (got["decision"], got["failures"]) == ("denied", f"{NAME}/owned: say whose it is")


def test_an_exception_is_reported_and_expires(site: Site) -> None:
    assert site.create(a_pod("spared")) == ""
    got = eventually(lambda: site.annotations("spared"), "a line of the audit log")
    assert got["exception"] == f"{NAME}/owned by moving: being moved"
    [row] = eventually(lambda: site.events("PolicyException", "spared"), "an Event")
    assert "excepted by moving until" in row["note"]
    site.policy(until=datetime.now(UTC) + timedelta(seconds=2))
    numbers = iter(range(1000))

    def refused() -> bool:
        return f"{NAME}/owned" in site.create(a_pod(f"spared-{next(numbers)}"))

    eventually(refused, "a refusal once the exception has ended")
    site.policy(until=datetime.now(UTC) + timedelta(days=1))
    eventually(lambda: site.create(a_pod(f"spared-{next(numbers)}")) == "", "a new exception")


@pytest.mark.parametrize(
    ("obj", "kind", "said"),
    [
        pytest.param(
            an_owned("local", annotations={vocabulary.GANG_GROUP_ANNOTATION: "g"}),
            "Pod",
            "kubenexus/gang-locality: group 'g' has no size",
            id="a locality group",
        ),
        pytest.param(
            a_job(
                "part",
                pod=a_pod(
                    labels={
                        "owner": "ada",
                        vocabulary.GANG_ROLE_LABEL: "worker",
                        **in_gang("g", 4),
                    },
                    restartPolicy="Never",
                ),
                parallelism=2,
                suspend=True,
            ),
            "Job",
            "kubenexus/gang-elsewhere: spec.template makes 2 of the 4 pods of group 'g'",
            id="one side of a gang",
        ),
    ],
)
def test_built_in_warnings_give_events(site: Site, obj: Json, kind: str, said: str) -> None:
    obj = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "uid"}}
    eventually(lambda: site.create(obj) == "", "the object let in")
    [row] = eventually(lambda: site.events("PolicyWarned", obj["metadata"]["name"]), "an Event")
    assert (row["type"], row["regarding"]["kind"], said in row["note"]) == ("Warning", kind, True)


def test_workers_that_say_the_same_write_one_event(site: Site) -> None:
    """Refusals of one pod come to several workers; an Event about the namespace is written once."""
    for _ in range(40):
        assert "say whose it is" in site.create(a_pod("again"))

    def about() -> list[Json]:
        return [
            row
            for row in site.events("PolicyDenied", TENANT_NAMESPACE)
            if "CREATE Pod again:" in row["note"]
        ]

    eventually(about, "an Event about the refusals")
    eventually(lambda: any(row.get("series") for row in about()), "its count")
    assert len(about()) <= 2, "one, or two around the end of a period"


def test_events_about_one_object_are_bounded_and_the_rest_is_counted(site: Site) -> None:
    """Refusals of many pods are all about their namespace, which has so many Events and no more."""
    noisy, refused = "noisy", 80
    site.plane.api().apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": noisy}})
    eventually(lambda: site.plane.has_default_account(noisy), "an account for pods")
    before = site.dropped()
    for number in range(refused):
        assert "say whose it is" in site.create(a_pod(f"loud-{number}", namespace=noisy), noisy)

    def events_written() -> int:
        return len(site.events("PolicyDenied", noisy, noisy))

    eventually(
        lambda: events_written() + site.dropped() - before == refused, "each reported or counted"
    )
    # Every worker has a budget of its own for the namespace.
    assert OBJECT_BURST <= events_written() <= 2 * OBJECT_BURST + 1
