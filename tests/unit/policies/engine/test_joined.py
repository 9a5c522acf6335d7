"""Rules evaluated as one give the same verdict as one by one."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies.engine.compiled import NOT_JOINED
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from tests.builders import a_pod
from tests.policy_builders import (
    NOW,
    a_namespace,
    a_platform_policy,
    a_rule,
    a_tenant_policy,
    loaded,
)

RULES = st.sampled_from(
    [
        "object != null",
        "object == null",
        "object.spec.nodeName == 'x'",  # an error: the key is not there
        "variables.good",
        "variables.bad",
        "true // a comment at the end",
        "dyn(1)",  # no truth at all
    ]
)
VARIABLES = [
    {"name": "good", "expression": "has(object.metadata)"},
    {"name": "bad", "expression": "object.spec.nodeName == 'y'"},
]


def apart(policies: PolicySet) -> PolicySet:
    """The same policies, every expression evaluated by itself."""
    return PolicySet.of(
        [
            replace(one, all_pass=NOT_JOINED, first_type=NOT_JOINED, first_tier=NOT_JOINED)
            for one in policies.policies
        ]
    )


@given(
    st.lists(RULES, min_size=1, max_size=5),
    st.lists(RULES, max_size=5),
    st.lists(RULES, max_size=4),
    st.sampled_from(["Fail", "Ignore"]),
)
def test_as_one_and_one_by_one(
    rules: list[str], types: list[str], tiers: list[str], on_error: str
) -> None:
    spec: dict[str, Any] = {
        "variables": VARIABLES,
        "failurePolicy": on_error,
        "validations": [a_rule(text, name=f"r{i}") for i, text in enumerate(rules)],
        "classify": {
            "workloadType": [
                {"when": text, "value": ("batch", "training", "service")[i % 3]}
                for i, text in enumerate(types)
            ],
            "hardwareTier": [
                {"when": text, "value": ("premium", "economy", "standard")[i % 3]}
                for i, text in enumerate(tiers)
            ],
        },
    }
    policies = loaded(a_platform_policy(**spec), a_tenant_policy(**spec))
    admission = AdmissionRequest.of(a_pod(), namespace=a_namespace(tenant="a"))
    assert evaluate(admission, policies, now=NOW) == evaluate(admission, apart(policies), now=NOW)
