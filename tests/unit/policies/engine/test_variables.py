from typing import Any

import pytest

from policies.engine import variables
from tests.builders import a_pod
from tests.policy_builders import a_platform_policy, a_rule, loaded

Json = dict[str, Any]

NAMED = "!has(object.metadata.managedFields)"
MANAGED = {"managedFields": [{"manager": "kubectl"}]}


def with_metadata(more: Json) -> Json:
    pod = a_pod()
    return {**pod, "metadata": {**pod["metadata"], **more}}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param(
            {"validations": [a_rule("object != null")]}, False, id="no expression reads them"
        ),
        pytest.param({"validations": [a_rule(NAMED)]}, True, id="a rule"),
        pytest.param(
            {"validations": [a_rule("true", messageExpression=f"{NAMED} ? 'a' : 'b'")]},
            True,
            id="a message",
        ),
        pytest.param({"matchConditions": [a_rule(NAMED)]}, True, id="a condition"),
        pytest.param({"variables": [{"name": "v", "expression": NAMED}]}, True, id="a variable"),
        pytest.param(
            {"classify": {"workloadType": [{"when": NAMED, "value": "batch"}]}},
            True,
            id="a classification",
        ),
        pytest.param(
            {"classify": {"hardwareTier": [{"when": NAMED, "value": "premium"}]}},
            True,
            id="a classification of hardware",
        ),
        pytest.param(
            {"defaults": [{"when": NAMED, "set": {"labels": {"a": "b"}}}]}, True, id="a default"
        ),
        pytest.param(
            {"defaults": [{"set": {"affinity": {"expression": f"{NAMED} ? {{}} : {{}}"}}}]},
            True,
            id="the value of a default",
        ),
        pytest.param(
            {
                "validations": [a_rule("true")],
                "exceptions": [{"name": "e", "reason": "r", "when": NAMED}],
            },
            True,
            id="an exception",
        ),
    ],
)
def test_managed_fields_are_kept_for_expressions_that_name_them(spec: Json, named: bool) -> None:
    policies = loaded(a_platform_policy("other"), a_platform_policy(**spec)).policies
    got = variables.without_managed_fields(with_metadata(MANAGED), variables.needed_by(policies))
    assert got == (with_metadata(MANAGED) if named else with_metadata({}))


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(None, id="no object"),
        pytest.param({}, id="nothing in it"),
        pytest.param({"metadata": None}, id="no metadata"),
        pytest.param(a_pod(), id="no managed fields"),
    ],
)
def test_an_object_without_them_is_shown_as_it_is(obj: Json | None) -> None:
    assert variables.without_managed_fields(obj, frozenset()) is obj
