"""What the API server sends to the webhook: what is judged, what policies name, and nothing else."""

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kubenexus.dev.api import path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests.builders import a_pod
from tests.cluster.waiting import eventually
from webhook.registration import configurations, rules
from webhook.registration.rules import RegisteredRule

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

CONFIGURATION = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
    f"{vocabulary.WEBHOOK_NAME}"
)


class Site:
    """A namespace with a tenant of its own, and the reviews that the webhook got."""

    def __init__(self, plane: ControlPlane, stack: Stack, namespace: str) -> None:
        self.plane, self.stack, self.namespace = plane, stack, namespace
        self.policies: list[Json] = []

    def require_label(self, *kinds: str, operations: tuple[str, ...] = ("CREATE",)) -> str:
        """A policy for these kinds that nothing without the label `owner` satisfies."""
        name = f"{self.namespace}-{len(self.policies)}"
        policy = {
            "apiVersion": vocabulary.POLICY_API_VERSION,
            "kind": "TenantPolicy",
            "metadata": {"name": name},
            "spec": {
                "tenant": {"name": self.namespace, "tier": "bronze"},
                "namespaceSelector": {
                    "matchLabels": {vocabulary.NAMESPACE_NAME_LABEL: self.namespace}
                },
                "matchConstraints": {"kinds": list(kinds), "operations": list(operations)},
                "validations": [
                    {
                        "name": "owned",
                        "expression": "has(object.metadata) && has(object.metadata.labels)"
                        " && 'owner' in object.metadata.labels"
                        if operations != ("DELETE",)
                        else "has(oldObject.metadata.labels) && 'owner' in oldObject.metadata.labels",
                        "message": "say whose it is",
                    }
                ],
            },
        }
        got = self.plane.kubectl("apply", "-f", "-", input=json.dumps(policy))
        assert got.returncode == 0, got.stderr
        self.policies.append(policy)
        return f"{name}/owned: say whose it is"

    def configuration(self) -> Json:
        return self.plane.api().call("GET", CONFIGURATION)

    def judged(self) -> Json:
        """The webhook whose rules follow the policies."""
        [found] = [
            one
            for one in self.configuration()["webhooks"]
            if one["name"] == configurations.POLICY_WEBHOOK
        ]
        return dict(found)

    def sent(self) -> frozenset[RegisteredRule]:
        return rules.rows_of(self.judged()["rules"])

    def reviews(self) -> float:
        """How many reviews were answered so far."""
        url = f"{self.stack.webhook_metrics_url}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        counted = [line for line in lines if line.startswith("kubenexus_webhook_reviews_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in counted)

    def tried(self, obj: Json) -> str:
        """What the server says to a dry run of the create; nothing where it would be made."""
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}}
        version = obj["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{root}/namespaces/{self.namespace}/{obj['kind'].lower()}s"
        try:
            self.plane.api().call("POST", f"{path}?dryRun=All", obj)
        except CallFailed as exc:
            return str(exc)
        return ""


@pytest.fixture
def site(control_plane: ControlPlane, stack: Stack, namespace: str) -> Iterator[Site]:
    here = Site(control_plane, stack, namespace)
    yield here
    for policy in here.policies:
        control_plane.kubectl("delete", "tenantpolicy", policy["metadata"]["name"])


def of_kind(api_version: str, kind: str, name: str = "x", **parts: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}


SERVICE = of_kind("v1", "Service", spec={"ports": [{"port": 80}]})
CONFIG_MAP = of_kind("v1", "ConfigMap")
SECRET = of_kind("v1", "Secret")
LEASE = of_kind("coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "me"})
EVENT = of_kind(
    "v1",
    "Event",
    involvedObject={},
    reason="Tried",
    type="Normal",
)
ROLE = of_kind("rbac.authorization.k8s.io/v1", "Role", rules=[])


def test_a_kind_without_policies_is_never_sent(site: Site) -> None:
    """Runs before any policy of this module: what is registered is exactly the fixed part."""
    assert site.sent() == rules.fixed()
    before = site.reviews()
    for obj in (SERVICE, CONFIG_MAP, SECRET, LEASE, EVENT, ROLE):
        event = {"involvedObject": {"namespace": site.namespace}} if obj is EVENT else {}
        assert site.tried({**obj, **event}) == ""
    assert site.reviews() == before
    assert site.tried(a_pod("counted", namespace=site.namespace)) == ""
    assert site.reviews() == before + 2, "a pod is sent twice: to be mutated and to be judged"


def test_a_policy_about_another_kind_is_sent_what_it_names(site: Site) -> None:
    before = site.judged()
    said = site.require_label("Service")
    eventually(lambda: said in site.tried(SERVICE), "a Service refused by its policy")
    owned = {**SERVICE, "metadata": {"name": "x", "labels": {"owner": "ada"}}}
    assert site.tried(owned) == ""
    assert site.sent() - rules.fixed() == {RegisteredRule("", "services", "CREATE")}
    after = site.judged()
    assert {**after, "rules": []} == {**before, "rules": []}, "nothing but the rules changes"
    counted = site.reviews()
    assert site.tried(CONFIG_MAP) == ""
    assert site.reviews() == counted


def test_a_removed_rule_is_added_again(site: Site) -> None:
    said = site.require_label("Secret")
    eventually(lambda: said in site.tried(SECRET), "a Secret refused by its policy")
    found = site.configuration()
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["caBundle"] = f"{webhook['clientConfig']['caBundle']}"
        if webhook["name"] == configurations.POLICY_WEBHOOK:
            webhook["rules"] = rules.rules(rules.fixed())
    site.plane.api().call("PUT", CONFIGURATION, found)
    eventually(
        lambda: RegisteredRule("", "secrets", "CREATE") in site.sent(), "the rule for Secrets"
    )
    eventually(lambda: said in site.tried(SECRET), "a Secret refused again")


def test_a_kind_that_is_installed_after_its_policy_is_found(site: Site) -> None:
    said = site.require_label("example.test/Widget")
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.test"},
        "spec": {
            "group": "example.test",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    site.plane.api().apply(definition)
    try:
        widget = of_kind("example.test/v1", "Widget")
        eventually(lambda: said in site.tried(widget), "a Widget refused by its policy")
    finally:
        site.plane.api().call("DELETE", path_of(definition))


def test_a_delete_is_reviewed_where_a_policy_needs_it(site: Site, kubectl: Kubectl) -> None:
    said = site.require_label("ConfigMap", operations=("DELETE",))
    eventually(
        lambda: RegisteredRule("", "configmaps", "DELETE") in site.sent(), "the rule for deletes"
    )
    assert kubectl("create", "configmap", "kept", "-n", site.namespace).returncode == 0
    again = ("delete", "configmap", "kept", "-n", site.namespace)

    def refusal() -> str | None:
        got = kubectl(*again, "--dry-run=server")
        return got.stderr if got.returncode else None

    assert said in eventually(refusal, "a refused delete")
    labelled = kubectl("label", "configmap", "kept", "owner=ada", "-n", site.namespace)
    assert labelled.returncode == 0, "an update is not what the policy is for"
    assert kubectl(*again).returncode == 0


def test_a_connect_is_reviewed_where_a_policy_needs_it(site: Site, kubectl: Kubectl) -> None:
    said = site.require_label("PodExecOptions", operations=("CONNECT",))
    assert site.tried(a_pod("p")) == ""
    pod = a_pod("p", namespace=site.namespace)
    site.plane.api().call("POST", f"/api/v1/namespaces/{site.namespace}/pods", pod)
    eventually(
        lambda: RegisteredRule("", "pods/exec", "CONNECT") in site.sent(), "the rule for exec"
    )

    def is_reported() -> bool:
        return said in kubectl("exec", "p", "-n", site.namespace, "--", "ls").stderr

    eventually(is_reported, "a refused exec")


def test_everything_but_what_the_cluster_needs_is_sent_for_a_star(site: Site) -> None:
    said = site.require_label("*")
    eventually(lambda: said in site.tried(ROLE), "a Role refused by the policy for everything")
    before = site.reviews()
    assert site.tried(LEASE) == ""
    assert site.tried({**EVENT, "involvedObject": {"namespace": site.namespace}}) == ""
    assert site.reviews() == before, "leases and Events are never sent"


# --- policies themselves ---


def test_a_policy_that_cannot_be_served_is_refused_at_apply(site: Site, kubectl: Kubectl) -> None:
    site.require_label("Service")
    good = site.policies[0]

    def applied(name: str, **spec: Any) -> str:
        obj = {**good, "metadata": {"name": name}, "spec": {**good["spec"], **spec}}
        got = kubectl("apply", "--dry-run=server", "-f", "-", input=json.dumps(obj))
        return got.stderr if got.returncode else ""

    rule = {"name": "odd", "expression": "object.metadata.name ==="}
    assert "kubenexus/policy: Syntax error" in applied("broken", validations=[rule])
    stranger = {"name": site.namespace, "tier": "bronze"}
    selector = {"matchLabels": {vocabulary.TENANT_LABEL: "somebody-else"}}
    said = applied("greedy", tenant=stranger, namespaceSelector=selector)
    assert f"a policy of tenant '{site.namespace}' selects the namespaces of tenant" in said
    assert applied(f"{site.namespace}-0", params={"a": "b"}) == ""
