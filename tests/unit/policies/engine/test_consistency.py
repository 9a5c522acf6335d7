"""Contradictions between documents that are each without faults."""

from collections.abc import Sequence
from typing import Any

import pytest

from policies.engine import consistency, loader
from tests.policy_builders import a_platform_policy, a_tenant_policy

Json = dict[str, Any]
TREE = [
    {"name": "org"},
    {"name": "research", "parent": "org"},
    {"name": "vision", "parent": "research"},
]


def faults(documents: Sequence[Json]) -> list[str]:
    reading = loader.read_objects(documents)
    assert reading.faults == ()
    return [
        f"{fault.source} {fault.path}: {fault.message}"
        for fault in consistency.contradictions(reading.entries)
    ]


def sharing(*tenants: Json, name: str = "shares") -> Json:
    return a_platform_policy(name, sharing={"tenants": list(tenants)})


def tenant(name: str, policy: str, **spec: Any) -> Json:
    document = a_tenant_policy(policy, **spec)
    document["spec"]["tenant"]["name"] = name
    return document


@pytest.mark.parametrize(
    ("documents", "want"),
    [
        pytest.param([sharing(*TREE), tenant("vision", "v")], [], id="tenants at the leaves"),
        pytest.param(
            [sharing({"name": "vision", "parent": "nowhere"}, {"name": "org"})],
            [
                "PlatformPolicy/shares spec.sharing.tenants[0].parent:"
                " found 'nowhere', want one of org, vision"
            ],
            id="a parent that is not listed",
        ),
        pytest.param(
            [sharing(*TREE), tenant("research", "r")],
            [
                "PlatformPolicy/shares spec.sharing.tenants[2].parent:"
                " 'research' is a tenant; a parent is a group without pods"
            ],
            id="a tenant that is a parent",
        ),
        pytest.param(
            [sharing({"name": "a", "parent": "a"})],
            ["PlatformPolicy/shares spec.sharing.tenants[0].parent: 'a' is among its own parents"],
            id="a group that is its own parent",
        ),
        pytest.param(
            [
                sharing(
                    {"name": "a", "parent": "b"},
                    {"name": "b", "parent": "c"},
                    {"name": "c", "parent": "a"},
                    {"name": "leaf", "parent": "a"},
                )
            ],
            [
                f"PlatformPolicy/shares spec.sharing.tenants[{index}].parent:"
                f" {name!r} is among its own parents"
                for index, name in enumerate("abc")
            ],
            id="a loop of three groups, and a tenant below it",
        ),
        pytest.param(
            [sharing({"name": "a"}), sharing({"name": "a"}, name="zz")],
            [
                "PlatformPolicy/zz spec.sharing:"
                " setting 'sharing' is given in shares (PlatformPolicy/shares) already",
                "PlatformPolicy/zz spec.sharing.tenants[0].name:"
                " share of 'a' is given in shares (PlatformPolicy/shares) already",
            ],
            id="two policies that set sharing",
        ),
        pytest.param(
            [a_platform_policy(name, backfill={"overrun": "preempt"}) for name in ("x", "y")],
            [
                "PlatformPolicy/y spec.backfill:"
                " setting 'backfill' is given in x (PlatformPolicy/x) already"
            ],
            id="two policies that set backfill",
        ),
        pytest.param(
            [a_platform_policy(name, gang={"maxSize": 20_000}) for name in ("x", "y")],
            ["PlatformPolicy/y spec.gang: setting 'gang' is given in x (PlatformPolicy/x) already"],
            id="two policies that set the largest gang",
        ),
        pytest.param(
            [a_platform_policy("x", priorityClasses=[{"name": "high", "tier": "platinum"}])],
            [
                "PlatformPolicy/x spec.priorityClasses[0].tier:"
                " found 'platinum', want one of gold, silver, bronze"
            ],
            id="a PriorityClass of an unknown tier",
        ),
        pytest.param(
            [
                a_platform_policy(name, topologyLevels=[{"name": "rack", "labels": ["example/r"]}])
                for name in ("x", "y")
            ],
            [
                "PlatformPolicy/y spec.topologyLevels[0].name:"
                " topology level 'rack' is given in x (PlatformPolicy/x) already"
            ],
            id="a topology level in two policies",
        ),
    ],
)
def test_platform_policies(documents: Sequence[Json], want: list[str]) -> None:
    assert faults(documents) == want


def selecting(name: str, key: str, *values: str, policy: str) -> Json:
    term = {"key": key, "operator": "In", "values": list(values)}
    return tenant(name, policy, namespaceSelector={"matchExpressions": [term]})


TENANT, NAMESPACE = "tenant.kubenexus.io/name", "kubernetes.io/metadata.name"
VALUES = "spec.namespaceSelector.matchExpressions[0].values"


@pytest.mark.parametrize(
    ("documents", "want"),
    [
        pytest.param(
            [selecting("a", TENANT, "a", policy="p"), selecting("b", NAMESPACE, "n", policy="q")],
            [],
            id="each its own",
        ),
        pytest.param(
            [selecting("a", TENANT, "a", "b", policy="p")],
            [
                f"TenantPolicy/p {VALUES}: a policy of tenant 'a' selects the namespaces of tenant"
                " 'b'; want 'a'"
            ],
            id="namespaces of another tenant",
        ),
        pytest.param(
            [
                selecting("a", NAMESPACE, "n", policy="p"),
                selecting("b", NAMESPACE, "m", "n", policy="q"),
            ],
            [
                f"TenantPolicy/q {VALUES}: namespace 'n' belongs to tenant 'a' by that tenant's"
                " policy; a namespace has one tenant"
            ],
            id="a namespace of two tenants",
        ),
    ],
)
def test_namespaces_of_tenants(documents: Sequence[Json], want: list[str]) -> None:
    assert faults(documents) == want


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param({"max": {"cpu": "8"}}, {"guaranteed": {"cpu": "4"}}, [], id="two fields"),
        pytest.param({"max": {"cpu": "8"}}, {"max": {"memory": "8Gi"}}, [], id="two resources"),
        pytest.param(
            {"max": {"cpu": "8"}},
            {"max": {"cpu": "8"}},
            ["spec.quota.max.cpu: policy p of the same tenant sets it already"],
            id="one amount twice",
        ),
        pytest.param(
            {"guaranteed": {"cpu": "2"}},
            {"guaranteed": {"memory": "1Gi", "cpu": "4"}},
            ["spec.quota.guaranteed.cpu: policy p of the same tenant sets it already"],
            id="one of two amounts twice",
        ),
    ],
)
def test_quotas_of_one_tenant(first: Json, second: Json, want: list[str]) -> None:
    reading = loader.read_objects([tenant("a", "p", quota=first), tenant("a", "q", quota=second)])
    # Two objects are two sources, which is a fault of its own.
    found = consistency.contradictions(reading.entries)
    assert [f"{f.path}: {f.message}" for f in found if f.path != "spec.tenant.name"] == want


CONTRADICTIONS = [
    pytest.param(
        [
            tenant("a", "p", quota={"max": {"cpu": "8"}}),
            tenant("a", "q", quota={"max": {"cpu": 4}}),
        ],
        id="one amount twice",
    ),
    pytest.param([sharing({"name": "x", "parent": "nowhere"})], id="a parent that is not listed"),
    pytest.param([sharing({"name": "a", "parent": "a"})], id="a tenant above itself"),
    pytest.param(
        [sharing(*TREE), sharing(*TREE, name="again")], id="two documents list the same tenants"
    ),
    pytest.param(
        [
            selecting("a", NAMESPACE, "n", policy="p"),
            selecting("b", NAMESPACE, "m", "n", policy="q"),
        ],
        id="a namespace of two tenants",
    ),
    pytest.param([selecting("a", TENANT, "b", policy="p")], id="namespaces of another tenant"),
]


@pytest.mark.parametrize("documents", CONTRADICTIONS)
@pytest.mark.parametrize(
    "unrelated",
    [
        pytest.param([a_platform_policy("other")], id="an empty platform policy"),
        pytest.param([tenant("z", "other")], id="an empty tenant policy"),
        pytest.param(
            [selecting("z", NAMESPACE, "elsewhere", policy="other")], id="other namespaces"
        ),
        pytest.param(
            [
                tenant(
                    "z",
                    "other",
                    namespaceSelector={
                        "matchExpressions": [{"key": NAMESPACE, "operator": "Exists"}]
                    },
                )
            ],
            id="a selector without values",
        ),
    ],
)
def test_unrelated_policies_hide_no_contradiction(
    unrelated: Sequence[Json], documents: Sequence[Json]
) -> None:
    want = [text.split(": ")[0] for text in faults(documents)]
    assert want
    for some in ([*unrelated, *documents], [*documents[:1], *unrelated, *documents[1:]]):
        assert [text.split(": ")[0] for text in faults(some)] == want
