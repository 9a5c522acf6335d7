from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from kubenexus.policy.export import export
from kubenexus.policy.export.cel import literal
from policies import vocabulary
from policies.engine import loader
from tests.unit.kubenexus.policy.policy_files import COMPILER, a_policy, a_rule, compiled

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = a_rule("labels", "has(object.metadata.labels) ? object.metadata.labels : {}")


def exported(policy: Json) -> export.Exported:
    (found,) = export.export(compiled(policy), now=NOW)
    return found


def left(policy: Json) -> dict[str, str]:
    return {row.what: row.why for row in exported(policy).left}


def validations(policy: Json) -> list[str]:
    return [
        rule["expression"]
        for document in exported(policy).documents
        for rule in document["spec"].get("validations", ())
    ]


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param("gpus(object) < 2", "calls gpus(), which only KubeNexus has", id="our function"),
        pytest.param("tenant.tier == 'gold'", "reads tenant, which only KubeNexus knows", id="our facts"),
        pytest.param("params == null", "reads params, which are those of the tenant's policy", id="params"),
        pytest.param("math.greatest(1, 2) == 2", "calls math.greatest(), which Kubernetes does not have", id="an extension"),
        pytest.param("cel.bind(x, 1, x == 1)", "calls cel.bind(), which Kubernetes does not have", id="a macro"),
        pytest.param("variables.big > 1", "variables.big calls gpus(), which only KubeNexus has", id="in a variable"),
        pytest.param("variables.bigger > 1", "variables.bigger variables.big calls gpus(), which only KubeNexus has", id="in a variable of a variable"),
        pytest.param("request.uid == ''", "reads request.uid, which Kubernetes does not have", id="a field"),
    ],
)  # fmt: skip
def test_parts_that_kubernetes_cannot_evaluate_are_listed_with_the_reason(
    expression: str, why: str
) -> None:
    variables = [a_rule("big", "gpus(object)"), a_rule("bigger", "variables.big + 1")]
    policy = a_policy(
        variables=variables, validations=[a_rule("bad", expression), a_rule("good", "true")]
    )
    assert (left(policy)["bad"], validations(policy)) == (why, ["true"])


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("[1, 'a'].size() == 2", "[dyn(1), dyn('a')].size() == 2", id="a mixed list"),
        pytest.param("size({'a': 1, 'b': 'c'}) == 2", "size({'a': dyn(1), 'b': dyn('c')}) == 2", id="a mixed map"),
        pytest.param("size({'a': 1, 'b': 2}) == 2", "size({'a': 1, 'b': 2}) == 2", id="an even one"),
        pytest.param("true // why\n&& 'a//b' != ''", "true \n&& 'a//b' != ''", id="comments go, texts stay"),
        pytest.param("quantity('1').sign() == 1", "sign(quantity('1')) == 1", id="a method that is a function there"),
        pytest.param("sets.contains([1], [1])", "sets.contains([1], [1])", id="a function of a namespace"),
        pytest.param("['a'].exists(tenant, tenant == 'a')", "['a'].exists(tenant, tenant == 'a')", id="a loop's variable of any name"),
    ],
)  # fmt: skip
def test_an_expression_as_kubernetes_takes_it(expression: str, want: str) -> None:
    assert validations(a_policy(validations=[a_rule("x", expression)])) == [want]


def test_each_set_of_actions_is_a_policy_with_a_binding() -> None:
    rules = [
        a_rule("one", "1 == 1", message="first\nline"),
        a_rule("two", "2 == 2", action="Warn"),
        a_rule("three", "3 == 3", action=["Audit", "Deny"], messageExpression="'no'"),
    ]
    documents = exported(a_policy(validations=rules, failurePolicy="Ignore")).documents
    assert [
        (row["kind"], row["metadata"]["name"], row["spec"].get("validationActions"))
        for row in documents
    ] == [
        ("ValidatingAdmissionPolicy", "kubenexus-rules", None),
        ("ValidatingAdmissionPolicyBinding", "kubenexus-rules", ["Deny"]),
        ("ValidatingAdmissionPolicy", "kubenexus-rules-warn", None),
        ("ValidatingAdmissionPolicyBinding", "kubenexus-rules-warn", ["Warn"]),
        ("ValidatingAdmissionPolicy", "kubenexus-rules-deny-audit", None),
        ("ValidatingAdmissionPolicyBinding", "kubenexus-rules-deny-audit", ["Deny", "Audit"]),
    ]
    assert documents[0]["spec"] == {
        "failurePolicy": "Ignore",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ]
        },
        "validations": [
            {"expression": "1 == 1", "message": "one: first line", "reason": "Invalid"}
        ],
    }
    assert documents[4]["spec"]["validations"][0]["messageExpression"] == "'three: ' + ('no')"


@pytest.mark.parametrize(
    ("exception", "more", "want", "why"),
    [
        pytest.param({}, {}, ["(1 == 1) || (object.metadata.name == 'x')"], None, id="one without an end is an alternative"),
        pytest.param({"validations": ["other"]}, {}, ["1 == 1"], None, id="one of another rule is not"),
        pytest.param({"until": "2025-12-31T00:00:00Z"}, {}, ["1 == 1"], None, id="one that is over is not"),
        pytest.param({"until": "2026-12-31T00:00:00Z"}, {}, [], "exception e has an end, and Kubernetes has no clock for it", id="one with an end"),
        pytest.param({"when": "gpus(object) > 1"}, {}, [], "exception e calls gpus(), which only KubeNexus has", id="one that cannot be evaluated"),
        pytest.param({}, {"failurePolicy": "Ignore"}, [], "exception e: with failurePolicy Ignore an exception without a value would let everything in", id="one that would swallow errors"),
    ],
)  # fmt: skip
def test_a_rule_is_exported_with_its_exceptions_or_not_at_all(
    exception: Json, more: Json, want: list[str], why: str | None
) -> None:
    made = {"name": "e", "when": "object.metadata.name == 'x'", "reason": "r", **exception}
    rules = [a_rule("rule", "1 == 1"), a_rule("other", "gpus(object) < 1")]
    policy = a_policy(validations=rules, exceptions=[made], **more)
    assert (validations(policy), left(policy).get("rule")) == (want, why)


@pytest.mark.parametrize(
    ("condition", "want", "why"),
    [
        pytest.param("size(variables.labels) > 0", "size((has(object.metadata.labels) ? object.metadata.labels : {})) > 0", None, id="variables are put in their place"),
        pytest.param("gpus(object) > 0", None, "matchCondition c calls gpus(), which only KubeNexus has", id="our function takes the policy with it"),
        pytest.param("namespaceObject.metadata.name != ''", None, "matchCondition c reads namespaceObject, which Kubernetes does not give to matchConditions", id="the namespace too"),
    ],
)  # fmt: skip
def test_conditions_are_exported_or_nothing_is(
    condition: str, want: str | None, why: str | None
) -> None:
    policy = a_policy(
        variables=[LABELS],
        matchConditions=[a_rule("c", condition)],
        validations=[a_rule("x", "true")],
    )
    found = exported(policy)
    made = [row["spec"].get("matchConditions") for row in found.documents[:1]]
    assert made == ([] if want is None else [[{"name": "c", "expression": want}]])
    assert left(policy).get("the whole policy") == why


def mutations(policy: Json) -> list[str]:
    return [
        row["jsonPatch"]["expression"]
        for document in exported(policy).documents
        for row in document["spec"].get("mutations", ())
    ]


PRIORITY = (
    "((!has(object.spec.priorityClassName) || object.spec.priorityClassName in [''])"
    " ? [JSONPatch{op: 'add', path: '/spec/priorityClassName', value: 'p'}]"
    " + (has(object.spec.priority) ? [JSONPatch{op: 'remove', path: '/spec/priority'}] : [])"
    " + (has(object.spec.preemptionPolicy)"
    " ? [JSONPatch{op: 'remove', path: '/spec/preemptionPolicy'}] : []) : [])"
)
SCHEDULER = (
    "((!has(object.spec.schedulerName) || object.spec.schedulerName in ['', 'default-scheduler'])"
    " ? [JSONPatch{op: 'add', path: '/spec/schedulerName', value: 's'}] : [])"
)


@pytest.mark.parametrize(
    ("defaults", "want"),
    [
        pytest.param([{"set": {"schedulerName": "s"}}], [SCHEDULER], id="a field where it is unset"),
        pytest.param([{"set": {"schedulerName": "s"}, "when": "true ? true : false"}], [f"((true ? true : false) ?\n  {SCHEDULER} : [])"], id="under a condition"),
        pytest.param([{"set": {"schedulerName": "s"}, "override": True}], ["[JSONPatch{op: 'add', path: '/spec/schedulerName', value: 's'}]"], id="in any case"),
        pytest.param([{"set": {"priorityClassName": "p"}}], [PRIORITY], id="with what was worked out before"),
        pytest.param([{"set": {"resources": {"requests": {"cpu": "1"}}}}], [], id="nothing that can be"),
    ],
)  # fmt: skip
def test_defaults_as_patches(defaults: list[Json], want: list[str]) -> None:
    assert mutations(a_policy(defaults=defaults)) == want


def test_defaults_that_read_what_defaults_write_are_evaluated_again() -> None:
    chained = [
        {"set": {"labels": {"a": "b"}}, "when": "object.metadata.name == 'x'"},
        {"set": {"labels": {"c": "d"}}, "when": "size(variables.labels) > 0"},
    ]
    made = mutations(a_policy(variables=[LABELS], defaults=chained))
    assert (len(made), len(set(made))) == (2, 1)


@pytest.mark.parametrize(
    ("defaults", "why"),
    [
        pytest.param([{"set": {"schedulerName": "a"}}, {"set": {"schedulerName": "b"}, "override": True}], {"defaults[1] spec.schedulerName": "an earlier default of this policy always writes it"}, id="a field that is taken"),
        pytest.param([{"set": {"annotations": {vocabulary.NUMA_POLICY_ANNOTATION: "none"}}, "override": True}], {f"defaults[0] metadata.annotations.{vocabulary.NUMA_POLICY_ANNOTATION}": "has several spellings, of which override replaces those in use"}, id="a key with several spellings"),
        pytest.param([{"set": {"schedulerName": "a"}, "when": "workload.type == 'batch'"}], {"defaults[0]": "`when` reads workload, which only KubeNexus knows"}, id="our facts"),
    ],
)  # fmt: skip
def test_defaults_that_stay(defaults: list[Json], why: dict[str, str]) -> None:
    assert left(a_policy(defaults=defaults)) == why


def test_a_tenant_policy_is_for_its_namespaces_and_its_tables_stay() -> None:
    policy = a_policy(
        "ada",
        tenant={"name": "ada"},
        matchConstraints={"kinds": ["Job", "Pod"]},
        validations=[a_rule("x", "true")],
        gang={"maxSize": 4, "gate": True},
        quota={"max": {"cpu": "1"}},
    )
    found = exported(policy)
    match = found.documents[0]["spec"]["matchConstraints"]
    assert match["namespaceSelector"] == {"matchLabels": {vocabulary.TENANT_LABEL: "ada"}}
    assert {"batch", ""} <= {rule["apiGroups"][0] for rule in match["resourceRules"]}
    assert {row.what for row in found.left} == {
        "advice on pod templates",
        "gang and numa limits",
        "gang and numa defaults",
        "quota",
    }


def test_yaml_is_for_kubectl_with_the_rest_in_comments() -> None:
    policy = a_policy(
        validations=[a_rule("one", "1 == 1\n&& true"), a_rule("two", "gpus(object) < 1")]
    )
    found = export.export(compiled(policy), now=NOW)
    text = export.as_yaml(found)
    assert list(yaml.safe_load_all(text)) == list(found[0].documents)
    assert text.startswith("# rules: not exported: two: calls gpus(), which only KubeNexus has\n")
    assert "expression: |-\n" in text
    assert export.summary(found).startswith(
        "of 1 policies 0 are exported whole, 1 in part, 0 not at all"
    )


def test_every_policy_of_the_library_is_exported_or_explained() -> None:
    library = loader.load_files(loader.LIBRARY, compiler=COMPILER).policies
    silent = [row.policy for row in export.export(library, now=NOW) if not row.documents + row.left]
    assert silent == []


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("it's", '"it\'s"', id="a quote"),
        pytest.param("a\nb\\", '"a\\nb\\\\"', id="a line end and a backslash"),
        pytest.param([1, 2], "[1, 2]", id="a list of one type"),
        pytest.param({"a": 1, "b": [True, None]}, "{'a': dyn(1), 'b': dyn([dyn(true), dyn(null)])}", id="of several types"),
    ],
)  # fmt: skip
def test_a_value_as_cel(value: Any, want: str) -> None:
    assert literal(value) == want
