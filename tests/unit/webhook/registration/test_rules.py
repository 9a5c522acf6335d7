"""Which requests the API server has to send for the policies in force, and how that is registered."""

from typing import Any

import pytest

from cluster.discovery import Served
from policies.pods import workloads
from tests.policy_builders import a_platform_policy, a_tenant_policy, loaded
from webhook.registration import rule_sync, rules
from webhook.registration.rule_sync import SURPLUS_SECONDS, SurplusRules
from webhook.registration.rules import RegisteredRule

CHANGES = frozenset({"CREATE", "UPDATE"})


def a_row(
    name: str,
    kind: str,
    *,
    group: str = "",
    of: str | None = None,
    namespaced: bool = True,
) -> Served:
    return Served(
        group=group,
        name=name,
        kind=kind,
        kind_group=group if of is None else of,
        version="v1",
        namespaced=namespaced,
    )


SERVED = [
    a_row("pods", "Pod"),
    a_row("pods/status", "Pod"),
    a_row("pods/exec", "PodExecOptions"),
    a_row("services", "Service"),
    a_row("services/status", "Service"),
    a_row("services", "Service", group="serving.example"),
    a_row("nodes", "Node", namespaced=False),
    a_row("events", "Event"),
    a_row("events", "Event", group="events.k8s.io"),
    a_row("leases", "Lease", group="coordination.k8s.io"),
    a_row("deployments", "Deployment", group="apps"),
    a_row("deployments/scale", "Scale", group="apps", of="autoscaling"),
    a_row("subjectaccessreviews", "SubjectAccessReview", group="authorization.k8s.io"),
]


def test_the_fixed_part_has_pods_their_parts_and_every_workload() -> None:
    rows = rules.fixed()
    assert {
        RegisteredRule("", "pods", "CREATE"),
        RegisteredRule("", "pods/resize", "UPDATE"),
        RegisteredRule("", "pods/ephemeralcontainers", "UPDATE"),
        RegisteredRule("apps", "deployments/scale", "UPDATE"),
        RegisteredRule("kubeflow.org", "pytorchjobs/scale", "UPDATE"),
    } <= rows
    whole = {(row.group, row.resource) for row in rows if "/" not in row.resource}
    pod_groups = {("scheduling.k8s.io", "podgroups"), ("scheduling.x-k8s.io", "podgroups")}
    workload_kinds = {(group, workloads.plural(kind)) for group, kind in workloads.KINDS}
    assert whole == workload_kinds | pod_groups
    assert {row.operation for row in rows} == CHANGES


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        pytest.param({"Pod": CHANGES}, set(), id="what is sent anyway"),
        pytest.param(
            {"Pod": frozenset({"DELETE"})},
            {RegisteredRule("", "pods", "DELETE")},
            id="another operation on it",
        ),
        pytest.param(
            {"Service": frozenset({"CREATE"})},
            {
                RegisteredRule("", "services", "CREATE"),
                RegisteredRule("serving.example", "services", "CREATE"),
            },
            id="a kind of any group",
        ),
        pytest.param(
            {"serving.example/Service": frozenset({"CREATE"})},
            {RegisteredRule("serving.example", "services", "CREATE")},
            id="a kind of one group",
        ),
        pytest.param(
            {"Node": frozenset({"UPDATE"})},
            {RegisteredRule("", "nodes", "UPDATE", "Cluster")},
            id="a kind without a namespace",
        ),
        pytest.param(
            {"PodExecOptions": frozenset({"CONNECT"})},
            {RegisteredRule("", "pods/exec", "CONNECT")},
            id="a connection to a part of a pod",
        ),
        pytest.param({"Service": frozenset({"CONNECT"})}, set(), id="no CONNECT to a whole object"),
        pytest.param(
            {"Scale": frozenset({"UPDATE"})}, set(), id="a part that is sent anyway, by its kind"
        ),
        pytest.param(
            {"autoscaling/Scale": frozenset({"CREATE"})},
            {RegisteredRule("apps", "deployments/scale", "CREATE")},
            id="a part whose kind is of another group",
        ),
        pytest.param({"Widget": CHANGES}, set(), id="a kind that is not installed"),
        pytest.param(
            {"Event": CHANGES, "Lease": CHANGES, "SubjectAccessReview": CHANGES},
            set(),
            id="what the cluster cannot wait for",
        ),
        pytest.param(
            {"*": frozenset({"CREATE", "CONNECT"})},
            {RegisteredRule("*", "*", "CREATE"), RegisteredRule("*", "*/*", "CONNECT")},
            id="everything",
        ),
    ],
)
def test_what_policies_name_is_added(
    kinds: dict[str, frozenset[str]], want: set[RegisteredRule]
) -> None:
    assert rules.required(kinds, SERVED) - rules.fixed() == want


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        ({"Pod": CHANGES}, False),
        ({"batch/Job": CHANGES}, False),
        ({"*": CHANGES}, False),
        ({"Job": CHANGES}, True),
        ({"Service": CHANGES}, True),
    ],
)
def test_discovery_is_used_only_for_kinds_outside_the_table(
    kinds: dict[str, frozenset[str]], want: bool
) -> None:
    assert rules.needs_discovery(kinds) is want


def test_rules_say_what_the_rows_say() -> None:
    rows = rules.required({"Node": CHANGES, "Service": frozenset({"DELETE", "CREATE"})}, SERVED)
    written = rules.rules(rows)
    assert rules.rows_of(written) == rows
    assert {tuple(rule["operations"]) for rule in written if rule["resources"] == ["services"]} == {
        ("CREATE", "DELETE")
    }
    assert written == rules.rules(sorted(rows, reverse=True)), "their order does not matter"


def test_the_kinds_of_a_set_are_those_of_all_its_policies() -> None:
    def constrained(*kinds: str, operations: list[str]) -> dict[str, Any]:
        return {"matchConstraints": {"kinds": list(kinds), "operations": operations}}

    found = loaded(
        a_platform_policy(**constrained("Pod", "Service", operations=["CREATE"])),
        a_tenant_policy(**constrained("Service", "apps/Deployment", operations=["DELETE"])),
    )
    assert found.kinds == {
        "Pod": {"CREATE"},
        "Service": {"CREATE", "DELETE"},
        "apps/Deployment": {"DELETE"},
    }
    named = [("", "Service"), ("apps", "Deployment"), ("x", "Deployment"), ("", "ConfigMap")]
    assert [found.names(*one) for one in named] == [True, True, False, False]
    everything = loaded(a_platform_policy(**constrained("*", operations=["CREATE"])))
    assert not everything.names("", "Scale"), "a star names nothing"


# --- what is written ---

A, B, C = (RegisteredRule("", name, "CREATE") for name in "abc")


def test_rows_come_at_once_and_go_late() -> None:
    surplus, late = SurplusRules(), SURPLUS_SECONDS
    said = [
        surplus.rows(frozenset(wanted), frozenset(present), now=now)
        for wanted, present, now in [
            ({A, B}, {A}, 0.0),  # B is new
            ({A}, {A, B}, 1.0),  # B is needed no longer, or not yet by this replica
            ({A, C}, {A, B}, 2.0),  # C is new meanwhile
            ({A, B}, {A, B, C}, 3.0),  # B is needed after all; C is not
            ({A, B}, {A, B}, 4.0),  # another writer removed C
            ({A}, {A, B}, 5.0),
            ({A}, {A, B}, 5.0 + late),
        ]
    ]
    assert said == [{A, B}, {A, B}, {A, B, C}, {A, B, C}, {A, B}, {A, B}, {A}]


def test_nothing_but_the_rules_is_written() -> None:
    found = {"metadata": {"resourceVersion": "7"}, "webhooks": [{}, {"rules": []}]}
    assert rule_sync.changes(found, 1, frozenset({A})) == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/webhooks/1/name", "value": "validate.workloads.kubenexus.io"},
        {
            "op": "replace",
            "path": "/webhooks/1/rules",
            "value": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["a"],
                    "operations": ["CREATE"],
                    "scope": "Namespaced",
                }
            ],
        },
    ]
