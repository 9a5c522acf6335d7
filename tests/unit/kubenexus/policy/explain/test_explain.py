import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kubenexus.policy.explain import explain
from kubenexus.policy.explain import text as explain_text
from kubenexus.policy.explain.tracing import PartsEngine, TracedPart, Tracer
from policies import vocabulary
from policies.cel import engines
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.evaluate import evaluate
from policies.engine.request import AdmissionRequest
from tests.builders import a_container, a_job, a_pod
from tests.unit.kubenexus.policy.policy_files import a_policy, a_rule, compiled

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
COMPILER = Compiler(PartsEngine(engines.engine()))
TENANT = {vocabulary.TENANT_LABEL: "ada"}
ADA = a_policy(
    "ada",
    tenant={"name": "ada", "tier": "gold"},
    params={"registry": "registry.ada.example/"},
    matchConditions=[a_rule("not-system", "!object.metadata.namespace.startsWith('kube-')")],
    variables=[a_rule("names", "object.spec.containers.map(c, c.name)")],
    defaults=[
        {
            "when": "!has(object.spec.priorityClassName)",
            "set": {"priorityClassName": "high", "labels": {"team": {"expression": "tenant.name"}}},
        }
    ],
    validations=[
        a_rule(
            "own-registry",
            "object.spec.containers.all(c, c.image.startsWith(params.registry))"
            " && size(variables.names) > 0",
            message="use the own registry",
        ),
        a_rule("few-gpus", "gpus(object) <= 8 || object.spec.nodeName == 'a'", action="Warn"),
    ],
)


def explained(
    obj: Json, *policies: Json, labels: dict[str, str] | None = None, operation: str = "CREATE"
) -> explain.Explanation:
    namespace = {"metadata": {"name": "team-a", "labels": TENANT if labels is None else labels}}
    policy_set = compiled(*policies, compiler=COMPILER)
    return explain.explain(obj, policy_set, namespace=namespace, operation=operation, now=NOW)


def of(explanation: explain.Explanation, rule: str) -> list[explain.ShownExpression]:
    return [
        row
        for policy in explanation.policies
        for row in policy.expressions
        if row.traced.rule == rule
    ]


@pytest.mark.parametrize(
    ("policy", "pod", "operation", "why"),
    [
        pytest.param(a_policy(), a_pod(), "CREATE", "", id="it applies"),
        pytest.param(
            a_policy(tenant={"name": "bob"}), a_pod(), "CREATE",
            f"namespaceSelector: requires {vocabulary.TENANT_LABEL}=bob, namespace team-a has 'ada'",
            id="another tenant",
        ),
        pytest.param(
            a_policy(namespaceSelector={"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "test"]}]}),
            a_pod(), "CREATE",
            "namespaceSelector: requires env In (prod, test), namespace team-a has no such label",
            id="a label that is not there",
        ),
        pytest.param(
            a_policy(matchConstraints={"operations": ["UPDATE"]}), a_pod(), "CREATE",
            "operations: UPDATE; this is CREATE", id="another operation",
        ),
        pytest.param(
            a_policy(matchConstraints={"kinds": ["batch/Job"]}), a_pod(), "CREATE",
            "kinds: batch/Job; this is Pod", id="another kind",
        ),
        pytest.param(
            a_policy(matchConditions=[a_rule("yes", "true"), a_rule("no", "object.metadata.name == 'q'")]),
            a_pod("p"), "CREATE", "matchCondition no is false", id="a condition that is false",
        ),
        pytest.param(
            a_policy(matchConditions=[a_rule("odd", "object.metadata.labels['x'] == 'y'")]),
            a_pod(labels={}), "CREATE", 'matchCondition odd has no value: Key not found in map : "x"',
            id="a condition without a value",
        ),
    ],
)  # fmt: skip
def test_why_a_policy_does_not_apply(policy: Json, pod: Json, operation: str, why: str) -> None:
    (policy_explanation,) = explained(pod, policy, operation=operation).policies
    assert (policy_explanation.matched, policy_explanation.why) == (not why, why)


def test_each_expression_with_its_parts() -> None:
    explanation = explained(a_pod(containers=[a_container(cpu="1")]), ADA)
    (row,) = of(explanation, "own-registry")
    containers = [
        {"name": "main", "image": "registry.local/app:1", "resources": {"requests": {"cpu": "1"}}}
    ]
    assert (row.traced.value, row.traced.section) == (False, "validations")
    assert row.traced.parts == (
        TracedPart("object.spec.containers.all(c, c.image.startsWith(params.registry))", 1, False),
        TracedPart("object.spec.containers", 2, containers),
        TracedPart("params.registry", 2, "registry.ada.example/"),
        TracedPart("size(variables.names) > 0", 1, True),
        TracedPart("size(variables.names)", 2, 1),
        TracedPart("variables.names", 3, ["main"]),
    )  # fmt: skip


def test_a_part_without_a_value_has_the_reason_and_changes_nothing() -> None:
    (row,) = of(explained(a_pod(), ADA), "few-gpus")
    assert row.traced.value is True
    assert [(part.text, bool(part.error)) for part in row.traced.parts] == [
        ("gpus(object) <= 8", False),
        ("gpus(object)", False),
        ("object.spec.nodeName == 'a'", True),
        ("object.spec.nodeName", True),
    ]


def test_an_expression_that_changes_with_the_defaults_is_shown_twice() -> None:
    rows = of(explained(a_pod(), ADA), "defaults[0].when")
    assert [(row.on, row.traced.value) for row in rows] == [
        ("as sent", True),
        ("with defaults", False),
    ]


def test_tracing_changes_no_outcome() -> None:
    policies = compiled(ADA, compiler=COMPILER)
    admission = AdmissionRequest.of(
        a_pod(), namespace={"metadata": {"name": "team-a", "labels": TENANT}}
    )
    plain = evaluate(admission, policies, now=NOW)
    assert evaluate(admission, Tracer().over(policies), now=NOW) == plain
    assert not plain.allowed


TEXT = """\
Pod team-a/p: denied by 1 rule
  tenant         ada by policy ada, tier gold (TenantPolicy ada)
  workload type  service by kubenexus/fallback
  hardware tier  none

failed rules
  DENY   ada/own-registry: use the own registry

written
  spec.priorityClassName                                        "high"
    by ada/defaults[0]
  metadata.labels.team                                          "ada"
    by ada/defaults[0]

policies
  + ada  matched
  - bob  namespaceSelector: requires tenant.kubenexus.io/name=bob, namespace team-a has 'ada'

ada  (TenantPolicy)
  matchConditions/not-system                                    true
    !object.metadata.namespace.startsWith('kube-')
      object.metadata.namespace.startsWith('kube-')             false
        object.metadata.namespace                               "team-a"
"""


def test_the_text_starts_with_the_decision() -> None:
    explanation = explained(a_pod(), ADA, a_policy("bob", tenant={"name": "bob", "tier": "gold"}))
    text = "\n".join(line.text for line in explain_text.lines(explanation))
    assert text.startswith(TEXT)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(a_pod(labels={"long": "x" * 63}, containers=[a_container(f"c{i}") for i in range(9)]), id="a pod"),
        pytest.param(a_job("j", pod=a_pod(), parallelism=2), id="a job with its template"),
    ],
)  # fmt: skip
def test_no_line_is_wider_than_the_terminal(obj: Json) -> None:
    library = loader.load_files(loader.LIBRARY, compiler=COMPILER).policies
    namespace = {"metadata": {"name": "team-a", "labels": TENANT}}
    explanation = explain.explain(obj, library, namespace=namespace, now=NOW)
    lines = [line.text for line in explain_text.lines(explanation)]
    assert [line for line in lines if len(line) > explain_text.WIDTH] == []
    assert len(lines) > 50


def test_of_many_policies_that_do_not_apply_some_are_listed() -> None:
    others = [a_policy(f"t{n}", tenant={"name": f"t{n}"}) for n in range(23)]
    explanation = explained(a_pod(), a_policy("mine"), *others)
    lines = [line.text for line in explain_text.lines(explanation)]
    assert sum(line.startswith("  - ") for line in lines) == 20
    assert lines[-1] == "    and 3 more that do not apply; -o json lists them"


def test_json_has_everything_and_maps_in_order() -> None:
    explanation = json.loads(json.dumps(explain.as_dict(explained(a_pod(), ADA))))
    assert (explanation["allowed"], explanation["identity"]["tenant"]) == (False, "ada")
    assert explanation["pods"][0]["workloadType"] == {
        "value": "service",
        "policy": "kubenexus",
        "rule": "fallback",
    }
    assert [row["path"] for row in explanation["injections"]] == [
        "spec.priorityClassName",
        "metadata.labels.team",
    ]
    assert [row["rule"] for row in explanation["failures"]] == ["own-registry"]
    assert explain.plain({2: b"\xff", 1: datetime(2026, 1, 1, tzinfo=UTC)}) == {
        "1": "2026-01-01 00:00:00+00:00",
        "2": "\\xff",
    }  # fmt: skip
