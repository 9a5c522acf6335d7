"""A policy about to be written: refused for its own faults, never for those of others."""

from typing import Any

import pytest

from policies.checks import policy_object
from tests.policy_builders import a_platform_policy, a_rule, a_tenant_policy, loaded

Json = dict[str, Any]

IN_FORCE = loaded(
    a_platform_policy(
        "tiers", tiers=[{"name": "platinum", "rank": 9}, {"name": "bronze", "rank": 0}]
    ),
    a_tenant_policy("ada", tenant="ada", tier="platinum"),
)


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(a_tenant_policy("bob", tenant="bob", tier="bronze"), [], id="a good one"),
        pytest.param(
            a_tenant_policy("bob", tenant="bob", tier="platinum"),
            [],
            id="a tier that another policy gives",
        ),
        pytest.param(
            a_tenant_policy("ada", tenant="ada", tier="bronze"), [], id="the new form of an old one"
        ),
        pytest.param(
            a_tenant_policy("more", tenant="ada", tier="platinum"),
            [("spec.tenant.name", "tenant 'ada' has its policies in TenantPolicy/ada")],
            id="a second home for a tenant",
        ),
        pytest.param(
            a_tenant_policy("bob", tenant="bob", tier="iron"),
            [("spec.tenant.tier", "found 'iron', want one of platinum, bronze")],
            id="a tier that no policy defines",
        ),
        pytest.param(
            a_tenant_policy("bob", tenant="bob", validations=[a_rule("object.metadata ===")]),
            [("spec.validations[0].expression", "Syntax error")],
            id="an expression that is none",
        ),
        pytest.param(
            a_tenant_policy("bob", tenant="bob", tier="iron", validations=[a_rule("nonsense")]),
            [
                ("spec.tenant.tier", "found 'iron'"),
                ("spec.validations[0].expression", "undeclared reference to 'nonsense'"),
            ],
            id="everything at once",
        ),
    ],
)
def test_what_is_wrong_with_a_policy(obj: Json, want: list[tuple[str, str]]) -> None:
    got = policy_object.faults(obj, IN_FORCE)
    assert [fault.path for fault in got] == [path for path, _ in want]
    for fault, (_, said) in zip(got, want, strict=True):
        assert said in fault.message
