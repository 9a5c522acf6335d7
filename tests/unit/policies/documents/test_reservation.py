"""Valid and invalid fields of a ResourceReservation, and the messages of faults."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.checks import policy_object
from policies.documents.reservation import ResourceReservation

NOW = datetime(2026, 6, 1, tzinfo=UTC)
UNTIL = "2026-07-01T00:00:00Z"
TENANT = {"tenant": "a", "until": UNTIL}
GROUP = {"name": "g", "leader": "uid", "members": 1, "resources": {"cpu": 1}, "places": []}


@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        pytest.param({**TENANT, "nodes": ["n"]}, [], id="nodes by name"),
        pytest.param({**TENANT, "nodeSelector": {"rack": "r1"}}, [], id="nodes by label"),
        pytest.param({**TENANT, "count": 2, "resources": {"cpu": 4}}, [], id="an amount"),
        pytest.param(
            {
                **TENANT,
                "resources": {"nvidia.com/gpu": 8},
                "nodes": ["n"],
                "from": "2026-06-02T00:00:00Z",
            },
            [],
            id="an amount on a node, from a time",
        ),
        pytest.param(
            TENANT,
            ["spec: found nothing to reserve; want nodes, nodeSelector or resources"],
            id="nothing",
        ),
        pytest.param(
            {"nodes": ["n"], "until": UNTIL},
            ["spec: no tenant is named; name the tenant whose pods may use the capacity"],
            id="no tenant",
        ),
        pytest.param(
            {**TENANT, "count": 2, "nodes": ["n"]},
            ["spec: count without resources; name the resources to reserve"],
            id="so many of nothing",
        ),
        pytest.param(
            {**TENANT, "resources": {"cores": 4}},
            ["spec: found 'cores', want a resource such as cpu, memory or nvidia.com/gpu"],
            id="an unknown resource",
        ),
        pytest.param(
            {**TENANT, "resources": {"cpu": "0"}},
            ["spec: cpu: found '0', want more than zero"],
            id="zero",
        ),
        pytest.param(
            {**TENANT, "resources": {"cpu": "9E"}},
            [
                "spec: cpu: found '9E', want at most 2^53 bytes or devices, or 2^53 thousandths of a"
                " CPU"
            ],
            id="more than a node can have",
        ),
        pytest.param(
            {**TENANT, "nodes": ["n"], "until": "9999-12-31T23:59:59-01:00"},
            ["spec.until: found a time outside the years 1 to 9999 in UTC"],
            id="until beyond the calendar",
        ),
        pytest.param(
            {**TENANT, "nodes": ["n"], "from": UNTIL},
            [f"spec: until {UNTIL} is not after from {UNTIL}; give a later one"],
            id="over before it begins",
        ),
        pytest.param(
            {**TENANT, "nodes": ["n"], "until": "2026-05-01T00:00:00Z"},
            [
                "spec.until: found 2026-05-01T00:00:00Z, which has passed;"
                " want a time after 2026-06-01T00:00:00Z"
            ],
            id="over already",
        ),
        pytest.param(
            {"podGroup": GROUP, "until": UNTIL},
            [
                "spec.podGroup: written by the scheduler alone;"
                " reserve for a tenant: nodes, or count and resources"
            ],
            id="in the scheduler's name",
        ),
        pytest.param(
            {"podGroup": GROUP, "until": UNTIL, "nodes": ["n"]},
            [
                "spec: podGroup stands beside nodes, nodeSelector, count, resources or from;"
                " it takes tenant and until alone"
            ],
            id="both kinds at once",
        ),
        pytest.param(
            {**TENANT, "node": "n"},
            ["spec.node: unknown field; the nearest known one is 'nodes'"],
            id="an unknown field",
        ),
    ],
)
def test_faults(spec: dict[str, Any], messages: list[str]) -> None:
    obj = {"kind": "ResourceReservation", "metadata": {"name": "r"}, "spec": spec}
    found = policy_object.reservation_faults(obj, now=NOW)
    assert [f"{one.path}: {one.message}" for one in found] == messages


def test_the_scheduler_may_write_its_own() -> None:
    found = ResourceReservation.model_validate({"spec": {"podGroup": GROUP, "until": UNTIL}})
    assert found.spec.pod_group is not None


def test_of_many_faults_the_first_ones_are_reported() -> None:
    spec = {**TENANT, "nodes": [7] * 10_000, **{f"field{n}": 1 for n in range(5_000)}}
    obj = {"kind": "ResourceReservation", "metadata": {"name": "r"}, "spec": spec}
    found = policy_object.reservation_faults(obj, now=NOW)
    assert 100 <= len(found) <= 200


def test_a_fault_shows_a_value_of_any_depth() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    obj = {
        "kind": "ResourceReservation",
        "metadata": {"name": "r"},
        "spec": {**TENANT, "count": deep},
    }
    (found,) = policy_object.reservation_faults(obj, now=NOW)
    assert found.message == "found [[[[[[[...]]]]]]], want a whole number"
