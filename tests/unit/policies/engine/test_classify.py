from typing import Any

import pytest

from policies.engine.evaluate import evaluate
from policies.engine.request import AdmissionRequest
from policies.engine.result import Conflict, Failure, PolicyResult, Skipped, TenantIdentity
from tests.builders import a_pod
from tests.policy_builders import (
    NOW,
    a_namespace,
    a_platform_policy,
    a_rule,
    a_tenant_policy,
    evaluated,
    loaded,
)

Json = dict[str, Any]

TRUE, FALSE = "object != null", "object == null"
ERROR = "object.spec.nodeName == 'x'"  # the key is not there
GANG = {
    "pod-group.scheduling.kubenexus.io/name": "g",
    "pod-group.scheduling.kubenexus.io/min-available": "4",
}

TABLE = {"priorityClasses": [{"name": "urgent", "tier": "gold"}]}


@pytest.mark.parametrize(
    ("tier", "namespace", "queue", "priority", "want"),
    [
        pytest.param(
            "silver", "gold", "gold", "urgent", ("silver", "TenantPolicy team-a"), id="the policy"
        ),
        pytest.param(None, "silver", "gold", "urgent", ("silver", "namespace label"), id="label"),
        pytest.param(None, "SILVER", "gold", "urgent", ("silver", "namespace label"), id="case"),
        pytest.param(None, "tin", "silver", "urgent", ("silver", "queue"), id="the queue"),
        pytest.param(None, None, "tin", "urgent", ("gold", "PriorityClass urgent"), id="priority"),
        pytest.param(None, None, None, "other", ("bronze", "default"), id="no source"),
    ],
)
def test_tier_sources_in_order(
    tier: str | None,
    namespace: str | None,
    queue: str | None,
    priority: str,
    want: tuple[str, str],
) -> None:
    labels = {"tenant": "a"} | ({"tier": namespace} if namespace else {})
    found = evaluated(
        a_platform_policy("c", **TABLE),
        a_tenant_policy(tier=tier),
        obj=a_pod(priorityClassName=priority),
        namespace=a_namespace(**labels),
        queue_tier=queue,
    )
    assert found.identity == TenantIdentity("a", *want, policy="team-a")


def test_two_tenants_for_one_namespace_are_a_conflict() -> None:
    everywhere = {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}
    found = evaluated(
        a_tenant_policy(
            "t-b", tenant="b", namespaceSelector=everywhere, validations=[a_rule(FALSE)]
        ),
        a_tenant_policy("t-a", tenant="a", validations=[a_rule(FALSE)]),
    )
    assert (found.identity.tenant, found.conflicts, len(found.denials)) == (
        "a",
        (Conflict("tenant", "a", "t-a", "b", "t-b"),),
        2,
    )


def test_rules_of_the_tenant_come_before_those_of_the_platform() -> None:
    rules = {
        "workloadType": [{"when": ERROR, "value": "service"}, {"when": TRUE, "value": "batch"}]
    }
    found = evaluated(
        a_platform_policy("c", classify={"workloadType": [{"when": TRUE, "value": "training"}]}),
        a_tenant_policy("t", classify=rules, failurePolicy="Ignore"),
    )
    assert (found.pods[0].workload_type, found.skipped) == (
        PolicyResult("batch", "t", "classify.workloadType[1]"),
        (Skipped("t", "classify.workloadType[0]", 'Key not found in map : "nodeName"'),),
    )


def test_hardware_beyond_the_tier_is_ignored_in_rules_and_denied_to_users() -> None:
    tiers = [{"name": "tin", "rank": 0, "hardwareTiers": {"allowed": ["economy"]}}]
    rules = {
        "hardwareTier": [{"when": TRUE, "value": "premium"}, {"when": TRUE, "value": "economy"}]
    }
    documents = a_platform_policy("c", tiers=tiers), a_tenant_policy("t", classify=rules)
    where = a_namespace(tenant="a", tier="tin")
    pod = a_pod(labels={"hardware.kubenexus.io/tier": "premium"})
    ruled = evaluated(*documents, namespace=where)
    requested = evaluated(*documents, namespace=where, obj=pod)
    assert (
        ruled.hardware_tier,
        [row.dropped_by for row in ruled.conflicts],
        requested.failures,
    ) == (
        "economy",
        ["t/classify.hardwareTier[0]"],
        (
            Failure(
                "kubenexus",
                "hardware-tier",
                "found 'premium', want what tier tin may use: economy",
                path="metadata.labels['hardware.kubenexus.io/tier']",
                fix="correct the label, or remove it and let policy decide",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"gang": {"maxSize": 3}}, ["gang-max-size"], id="a gang too large"),
        pytest.param({"gang": {"minSize": 5}}, ["gang-min-size"], id="a gang too small"),
        pytest.param({"gang": {"minSize": 4, "maxSize": 4}}, [], id="a gang just right"),
        pytest.param(
            {"numa": {"allowed": ["none"]}}, ["numa-allowed"], id="a NUMA policy too many"
        ),
        pytest.param(
            {
                "gang": {"maxSize": 3},
                "exceptions": [
                    {"name": "e", "when": TRUE, "reason": "r", "validations": ["gang-max-size"]}
                ],
            },
            [],
            id="an exception from a limit",
        ),
    ],
)
def test_limits_of_a_tenant(spec: Json, want: list[str]) -> None:
    pod = a_pod(labels=GANG, annotations={"numa.scheduling.kubenexus.io/policy": "isolated"})
    found = evaluated(a_tenant_policy(**spec), obj=pod)
    assert [failure.rule for failure in found.failures] == want


def test_a_namespace_object_is_matched_by_its_own_labels() -> None:
    document = a_tenant_policy(
        "t", matchConstraints={"kinds": ["Namespace"]}, validations=[a_rule(FALSE)]
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", **a_namespace("new", tenant="a")}
    admission = AdmissionRequest("CREATE", "Namespace", namespace, namespace="new")
    found = evaluate(admission, loaded(document), now=NOW)
    assert (found.identity.tenant, found.denials) == ("a", (f"t/rule: failed expression: {FALSE}",))
