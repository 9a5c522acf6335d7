"""Policies as objects of a real API server: in force within moments, refused ones reported."""

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_pod
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def a_policy(namespace: str, expression: str) -> Json:
    return {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "TenantPolicy",
        "metadata": {"name": f"policy-{namespace}"},
        "spec": {
            "tenant": {"name": f"tenant-{namespace}", "tier": "silver"},
            "namespaceSelector": {"matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: namespace}},
            "validations": [
                {"name": "has-owner", "expression": expression, "message": "say who owns the pod"}
            ],
            "defaults": [{"set": {"labels": {"cost-center": "42"}}}],
        },
    }


GOOD = "has(object.metadata.labels) && 'owner' in object.metadata.labels"


@pytest.fixture
def policy(stack: Stack, kubectl: Kubectl, namespace: str) -> Iterator[Callable[[Json], None]]:
    def apply(obj: Json) -> None:
        got = kubectl("apply", "-f", "-", input=json.dumps(obj))
        assert got.returncode == 0, got.stderr

    yield apply
    kubectl("delete", "tenantpolicy", f"policy-{namespace}", "--ignore-not-found")


def conditions(kubectl: Kubectl, namespace: str) -> Json:
    got = kubectl("get", "tenantpolicy", f"policy-{namespace}", "-o", "json")
    obj = json.loads(got.stdout)
    if obj.get("status", {}).get("observedGeneration") != obj["metadata"]["generation"]:
        return {}
    return {row["type"]: (row["status"], row["reason"]) for row in obj["status"]["conditions"]}


def tried(kubectl: Kubectl, namespace: str, **labels: str) -> subprocess.CompletedProcess[str]:
    obj = a_pod("p", namespace=namespace, labels=labels)
    return kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(obj))


def test_a_policy_object_comes_into_force_and_a_broken_one_does_not(
    policy: Callable[[Json], None], kubectl: Kubectl, namespace: str
) -> None:
    policy(a_policy(namespace, GOOD))
    in_force = {"Compiled": ("True", "Valid"), "Ready": ("True", "InForce")}
    eventually(lambda: conditions(kubectl, namespace) == in_force, "the policy in force")

    def refusal() -> str | None:
        got = tried(kubectl, namespace)
        return got.stderr if got.returncode else None

    refused = eventually(refusal, "a refusal")
    assert f"policy-{namespace}/has-owner: say who owns the pod" in refused

    def admitted() -> Json | None:
        got = tried(kubectl, namespace, owner="ada")
        return None if got.returncode else dict(json.loads(got.stdout)["metadata"]["labels"])

    allowed = eventually(admitted, "a pod admitted by workers that agree")
    assert (allowed["cost-center"], allowed[vocabulary.TENANT_LABEL]) == (
        "42",
        f"tenant-{namespace}",
    )

    broken = json.dumps(a_policy(namespace, "object.metadata.labels.owner ==="))
    got = kubectl("apply", "-f", "-", input=broken)
    assert "kubenexus/policy: Syntax error" in got.stderr
    assert "(spec.validations[0].expression): correct it and apply it again" in got.stderr
    assert tried(kubectl, namespace).returncode != 0, "the policy that was there must stay in force"


def test_policies_that_lose_what_they_depend_on_are_reported(
    policy: Callable[[Json], None], kubectl: Kubectl, namespace: str
) -> None:
    """A delete takes a tier away that a tenant has: the last good set stays in force."""
    tier = f"tier-{namespace}"
    tiers = {
        "apiVersion": vocabulary.POLICY_API_VERSION,
        "kind": "PlatformPolicy",
        "metadata": {"name": f"tiers-{namespace}"},
        "spec": {"tiers": [{"name": tier, "rank": 1000 + int(namespace.rpartition("-")[2])}]},
    }
    wanted = a_policy(namespace, GOOD)
    wanted["spec"]["tenant"]["tier"] = tier
    got = kubectl("apply", "-f", "-", input=json.dumps(wanted))
    assert f"found '{tier}', want one of" in got.stderr, "no policy defines that tier"
    policy(tiers)

    def accepted() -> bool:
        return kubectl("apply", "-f", "-", input=json.dumps(wanted)).returncode == 0

    eventually(accepted, "the tenant of a tier that is in force")
    in_force = {"Compiled": ("True", "Valid"), "Ready": ("True", "InForce")}
    eventually(lambda: conditions(kubectl, namespace) == in_force, "the policy in force")
    assert kubectl("delete", "platformpolicy", f"tiers-{namespace}").returncode == 0
    faulty = {"Compiled": ("False", "Invalid"), "Ready": ("False", "Invalid")}
    eventually(lambda: conditions(kubectl, namespace) == faulty, "the faulty policy reported")
    refused = tried(kubectl, namespace)
    assert f"policy-{namespace}/has-owner" in refused.stderr, "the last good set must stay"

    def reported() -> bool:
        listed = kubectl("get", "events", "-n", "default", "-o", "json").stdout
        return any(
            row["reason"] == "PoliciesRefused"
            and row["involvedObject"]["name"] == f"policy-{namespace}"
            for row in json.loads(listed)["items"]
        )

    eventually(reported, "an Event about the faulty policy")


def test_a_default_priority_class_gets_its_priority(
    policy: Callable[[Json], None], kubectl: Kubectl, namespace: str
) -> None:
    wanted = a_policy(namespace, "true")
    wanted["spec"]["defaults"] = [{"set": {"priorityClassName": "system-node-critical"}}]
    policy(wanted)

    def priority() -> int | None:
        got = tried(kubectl, namespace)
        if got.returncode:  # one worker has the policy already, another has not
            return None
        found = json.loads(got.stdout)["spec"].get("priority")
        return found if isinstance(found, int) else None

    assert eventually(priority, "a priority") == 2_000_001_000


def test_an_unknown_field_is_refused_by_the_api_server(
    stack: Stack, kubectl: Kubectl, namespace: str
) -> None:
    obj = a_policy(namespace, GOOD)
    obj["spec"]["validatons"] = []
    got = kubectl("apply", "-f", "-", input=json.dumps(obj))
    assert got.returncode != 0
    assert 'unknown field "spec.validatons"' in got.stderr
