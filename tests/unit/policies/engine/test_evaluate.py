from datetime import timedelta
from typing import Any

import pytest

from kubenexus.policy.explain.tracing import Tracer
from policies.engine.evaluate import evaluate
from policies.engine.request import AdmissionRequest
from policies.engine.result import ExemptedFailure, Outcome
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


def conditions(*expressions: str) -> list[Json]:
    return [a_rule(text, name=f"m{number}") for number, text in enumerate(expressions)]


@pytest.mark.parametrize(
    ("expressions", "policy", "want"),
    [
        pytest.param((TRUE, TRUE), "Fail", "matched", id="all true"),
        pytest.param((TRUE, FALSE), "Fail", "passed by", id="one false"),
        pytest.param((ERROR, FALSE), "Fail", "passed by", id="false beats an error before it"),
        pytest.param((FALSE, ERROR), "Fail", "passed by", id="false beats an error after it"),
        pytest.param((TRUE, ERROR), "Fail", "failed", id="an error fails closed"),
        pytest.param(
            (TRUE, ERROR), "Ignore", "skipped", id="an error is ignored where the policy says so"
        ),
    ],
)
def test_match_conditions(expressions: tuple[str, ...], policy: str, want: str) -> None:
    found = evaluated(
        a_tenant_policy(
            matchConditions=conditions(*expressions),
            validations=[a_rule(TRUE)],
            failurePolicy=policy,
        )
    )
    outcome = (
        "matched"
        if found.outcomes
        else "failed"
        if found.failures
        else "skipped"
        if found.skipped
        else "passed by"
    )
    assert (outcome, found.allowed) == (want, want != "failed")


MISSING = 'cannot be evaluated: Key not found in map : "nodeName"'


@pytest.mark.parametrize(
    ("expression", "action", "policy", "want"),
    [
        pytest.param(TRUE, "Deny", "Fail", (True, (), ()), id="true lets in"),
        pytest.param(FALSE, "Deny", "Fail", (False, ("t/r: no",), ()), id="false refuses"),
        pytest.param(FALSE, "Warn", "Fail", (True, (), ("t/r: no",)), id="false warns"),
        pytest.param(FALSE, "Audit", "Fail", (True, (), ()), id="false is written down"),
        pytest.param(
            FALSE, ["Warn", "Audit"], "Fail", (True, (), ("t/r: no",)), id="warn and audit"
        ),
        pytest.param(
            ERROR, "Deny", "Fail", (False, (f"t/r: {MISSING}",), ()), id="an error refuses"
        ),
        pytest.param(
            ERROR, "Warn", "Fail", (True, (), (f"t/r: {MISSING}",)), id="an error warns as its rule"
        ),
        pytest.param(ERROR, "Deny", "Ignore", (True, (), ()), id="an error is ignored"),
        pytest.param(
            "dyn(object.metadata.name)",
            "Deny",
            "Fail",
            (
                False,
                (
                    "t/r: cannot be evaluated: the expression gave 'p'; a rule must give true or"
                    " false",
                ),
                (),
            ),
            id="a text is no truth",
        ),
    ],
)
def test_validations(expression: str, action: Any, policy: str, want: Any) -> None:
    document = a_tenant_policy(
        "t",
        validations=[a_rule(expression, name="r", message="no", action=action)],
        failurePolicy=policy,
    )
    found = evaluated(document)
    assert (found.allowed, found.denials, found.warnings) == want


def test_every_failed_rule_is_reported_in_order() -> None:
    found = evaluated(
        a_tenant_policy(
            "t", validations=[a_rule(FALSE, "b"), a_rule(TRUE, "a"), a_rule(ERROR, "c")]
        ),
        a_platform_policy("x", validations=[a_rule(FALSE, "d", message="never")]),
    )
    assert (found.policies, found.outcomes, found.denials) == (
        ("x", "t"),
        (
            Outcome("x", "d", False),
            Outcome("t", "b", False),
            Outcome("t", "a", True),
            Outcome("t", "c", None),
        ),
        ("x/d: never", f"t/b: failed expression: {FALSE}", f"t/c: {MISSING}"),
    )


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("'name ' + object.metadata.name", "name p", id="computed"),
        pytest.param("object.spec.nodeName", "plain", id="an error falls back"),
        pytest.param("'  '", "plain", id="blanks fall back"),
        pytest.param("'a\\nb'", "plain", id="two lines fall back"),
        pytest.param("'\\u001b[31mred'", "plain", id="control characters fall back"),
        pytest.param("['x'].map(i, 'y' + i)[0]", "yx", id="over a list"),
    ],
)
def test_messages(expression: str, want: str) -> None:
    rule = a_rule(FALSE, message="plain", messageExpression=expression)
    found = evaluated(a_tenant_policy(validations=[rule]))
    assert [failure.message for failure in found.failures] == [want]


EXPIRED = (NOW - timedelta(days=1)).isoformat()
LATER = (NOW + timedelta(days=1)).isoformat()


@pytest.mark.parametrize(
    ("exception", "want"),
    [
        pytest.param({"when": TRUE, "until": LATER}, True, id="in time"),
        pytest.param({"when": TRUE}, True, id="without an end"),
        pytest.param({"when": TRUE, "until": NOW.isoformat()}, False, id="at its end"),
        pytest.param({"when": TRUE, "until": EXPIRED}, False, id="after its end"),
        pytest.param({"when": FALSE}, False, id="for others"),
        pytest.param({"when": ERROR}, False, id="an error excepts nothing"),
        pytest.param({"when": TRUE, "validations": ["rule"]}, True, id="for this rule"),
        pytest.param({"when": TRUE, "validations": ["other"]}, False, id="for another rule"),
    ],
)
def test_exceptions(exception: Json, want: bool) -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            validations=[a_rule(FALSE), a_rule(TRUE, "other")],
            exceptions=[{"name": "e", "reason": "migration", **exception}],
        )
    )
    excepted = (ExemptedFailure("t", "rule", "e", "migration"),) if want else ()
    assert (found.allowed, found.excepted) == (want, excepted)


def test_a_tenant_cannot_except_itself_from_the_rules_of_the_cluster() -> None:
    found = evaluated(
        a_platform_policy("c", validations=[a_rule(FALSE)]),
        a_tenant_policy("t", exceptions=[{"name": "e", "when": TRUE, "reason": "please"}]),
    )
    assert found.denials == (f"c/rule: failed expression: {FALSE}",)


def test_variables_are_evaluated_only_when_read_and_their_errors_are_reported() -> None:
    watch = Tracer()
    policies = loaded(
        a_tenant_policy(
            variables=[
                {"name": "name", "expression": "object.metadata.name"},
                {"name": "broken", "expression": "object.spec.nodeName"},
                {"name": "loud", "expression": "variables.name + '!'"},
                {"name": "unread", "expression": "1 / 0"},
            ],
            validations=[
                a_rule("variables.loud == 'p!'", "a"),
                a_rule("variables.name == 'p'", "b"),
                a_rule("variables.broken == 'x'", "c"),
                a_rule("variables.broken == 'y'", "d"),
                a_rule("true || variables.broken == 'z'", "e"),
            ],
        )
    )
    admission = AdmissionRequest.of(a_pod(), namespace=a_namespace(tenant="a"))
    found = evaluate(admission, watch.over(policies), now=NOW)
    evaluated = [row.rule for row in watch.expressions if row.section == "variables"]
    assert (evaluated, [row.passed for row in found.outcomes], found.denials[0]) == (
        ["variables.name", "variables.loud", "variables.broken"],
        [True, True, None, None, True],
        'team-a/c: cannot be evaluated: variables.broken: Key not found in map : "nodeName"',
    )


@pytest.mark.parametrize("mine", ["'cluster'", "object.spec.nodeName"], ids=["value", "error"])
def test_variables_of_two_policies_do_not_meet(mine: str) -> None:
    found = evaluated(
        a_platform_policy(
            "c",
            variables=[{"name": "x", "expression": mine}],
            validations=[a_rule("variables.x == 'cluster'")],
        ),
        a_tenant_policy(
            "t",
            variables=[{"name": "x", "expression": "'tenant'"}],
            validations=[a_rule("variables.x == 'tenant'")],
        ),
    )
    assert found.outcomes[1] == Outcome("t", "rule", True)


GPU = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
GANG = {
    "pod-group.scheduling.kubenexus.io/name": "g",
    "pod-group.scheduling.kubenexus.io/min-available": "4",
}


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(
            "tenant.name == 'a' && tenant.tier == 'gold' && tenant.rank == 2", id="tenant"
        ),
        pytest.param(
            "workload.type == 'batch' && workload.hardwareTier == 'premium'", id="workload"
        ),
        pytest.param("workload.kind == 'Job' && workload.group == 'batch'", id="owner"),
        pytest.param("gang.name == 'g' && gang.minAvailable == 4", id="gang"),
        pytest.param("numa.policy == 'restricted' && numa.strict", id="numa, after defaults"),
        pytest.param("gpus(object) == 2", id="gpus"),
        pytest.param("params.maxGpus == 2", id="params of the tenant"),
        pytest.param("request.operation == 'CREATE' && request.userInfo.username == 'u'", id="req"),
        pytest.param("namespaceObject.metadata.name == 'team-a'", id="namespace"),
        pytest.param("oldObject == null", id="no old object"),
        pytest.param("object.metadata.labels.added == 'yes'", id="the object after defaults"),
    ],
)
def test_facts_that_rules_can_read(expression: str) -> None:
    pod = a_pod(labels=GANG, containers=[GPU])
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": True},
        {"apiVersion": "v1", "kind": "Other", "name": "x"},
    ]
    found = evaluated(
        a_platform_policy("c", validations=[a_rule(expression)]),
        a_tenant_policy(
            tier="gold",
            params={"maxGpus": 2},
            numa={"default": "restricted"},
            classify={
                "workloadType": [{"when": "workload.kind == 'Job'", "value": "batch"}],
                "hardwareTier": [{"when": "workload.type == 'batch'", "value": "premium"}],
            },
            defaults=[{"set": {"labels": {"added": "yes"}}}],
        ),
        obj=pod,
        user={"username": "u"},
    )
    assert found.denials == ()


def test_policies_see_only_their_kinds_and_operations() -> None:
    policy = a_tenant_policy(
        "t",
        matchConstraints={"kinds": ["Pod"], "operations": ["UPDATE"]},
        validations=[a_rule(FALSE)],
    )
    other = a_platform_policy(
        "s", matchConstraints={"kinds": ["batch/Pod", "Job"]}, validations=[a_rule(FALSE)]
    )
    found = [evaluated(policy, other, operation=name).policies for name in ("CREATE", "UPDATE")]
    assert found == [(), ("t",)]


def a_job(**template: Any) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team-a"},
        "spec": {"template": {"spec": {"containers": [GPU], "restartPolicy": "Never"}, **template}},
    }


def test_policies_for_pods_advise_on_templates() -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            defaults=[{"set": {"labels": {"team": "a"}}}],
            validations=[
                a_rule("object.metadata.labels.team == 'a'", "label"),
                a_rule("gpus(object) < 2", "gpus", message="too many"),
                a_rule("workload.kind != 'Job'", "kind", action="Audit"),
            ],
        ),
        obj=a_job(metadata={"labels": GANG}),
    )
    assert (found.allowed, found.injections, found.warnings, found.pods[0].path) == (
        True,
        (),
        ("t/gpus: too many (spec.template)",),
        "spec.template",
    )


def test_policies_for_a_workload_validate_it_and_write_to_its_templates() -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            matchConstraints={"kinds": ["batch/Job"]},
            defaults=[{"set": {"labels": {"team": "a"}, "priorityClassName": "low"}}],
            validations=[a_rule("object.spec.parallelism > 0", message="no parallelism")],
        ),
        obj=a_job(),
    )
    template = (found.object or {})["spec"]["template"]
    assert (found.denials, template["metadata"], template["spec"]["priorityClassName"]) == (
        ('t/rule: cannot be evaluated: Key not found in map : "parallelism"',),
        {"labels": {"team": "a"}},
        "low",
    )


def test_a_policy_for_both_pods_and_the_workload_validates_the_workload_once() -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            matchConstraints={"kinds": ["Pod", "batch/Job"]},
            validations=[a_rule(FALSE)],
            gang={"maxSize": 9},
        ),
        obj=a_job(),
    )
    assert (found.outcomes, found.allowed) == ((Outcome("t", "rule", False),), False)


def test_an_unknown_namespace_is_a_denial_and_no_mismatch() -> None:
    found = evaluate(AdmissionRequest.of(a_pod()), loaded(a_platform_policy("c")), now=NOW)
    assert (found.allowed, found.denials) == (
        False,
        (
            "kubenexus/namespace: namespace 'team-a' is not known here, so its policies are not"
            " either: try again in a few seconds",
        ),
    )


def test_audit_reports_what_no_answer_shows() -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            tier="gold",
            validations=[
                a_rule(FALSE, "quiet", message="hm", action="Audit"),
                a_rule(ERROR, "odd"),
            ],
            failurePolicy="Ignore",
        )
    )
    assert found.audit == {
        "tenant": "a",
        "tier": "gold",
        "workload-type": "service",
        "policies": "t",
        "failures": "t/quiet: hm",
        "skipped": 't/odd: Key not found in map : "nodeName"',
    }


def test_a_deletion_is_evaluated_with_the_deleted_object() -> None:
    found = evaluated(
        a_tenant_policy(
            matchConstraints={"operations": ["DELETE"]},
            defaults=[{"set": {"labels": {"a": "b"}}}],
            validations=[a_rule("object == null && oldObject.metadata.name == 'p'")],
        ),
        operation="DELETE",
    )
    assert (found.allowed, found.injections, found.object) == (True, (), None)


def an_exception(name: str, when: str = TRUE, **more: Any) -> Json:
    return {"name": name, "reason": "migration", "when": when, **more}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(an_exception("first", until=EXPIRED), id="one that has expired"),
        pytest.param(an_exception("first", validations=["other"]), id="one for another rule"),
        pytest.param(an_exception("first", FALSE), id="one for other objects"),
        pytest.param(an_exception("first", ERROR), id="one that cannot be evaluated"),
    ],
)
def test_an_exception_that_does_not_apply_leaves_those_after_it(first: Json) -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            validations=[a_rule(FALSE), a_rule(TRUE, "other")],
            exceptions=[first, an_exception("second")],
        )
    )
    want = (ExemptedFailure("t", "rule", "second", "migration"),)
    assert (found.allowed, found.excepted) == (True, want)


@pytest.mark.parametrize(
    ("first", "policy"),
    [
        pytest.param(TRUE, "Fail", id="a rule that passes"),
        pytest.param(TRUE, "Ignore", id="a rule that passes, errors ignored"),
        pytest.param(ERROR, "Ignore", id="a rule that cannot be evaluated and is skipped"),
    ],
)
def test_rules_after_one_that_denies_nothing_are_checked(first: str, policy: str) -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            validations=[a_rule(first, "first"), a_rule(FALSE, "second", message="no")],
            failurePolicy=policy,
        )
    )
    assert found.denials == ("t/second: no",)


def test_defaults_after_one_that_does_not_apply_are_set() -> None:
    found = evaluated(
        a_tenant_policy(
            "t",
            defaults=[
                {"when": FALSE, "set": {"labels": {"a": "1"}}},
                {"when": TRUE, "set": {"labels": {"b": "2"}}},
            ],
        )
    )
    assert [(one.path[-1], one.value) for one in found.injections] == [("b", "2")]
