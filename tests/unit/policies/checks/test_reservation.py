"""What is want about a reservation among the nodes and reservations that there are."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.checks import reservation as reservation_rules
from policies.checks.reservation import ReservationFacts

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
UNTIL = "2026-07-01T00:00:00Z"


def node(name: str, **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "odd": "x"}},
    }


def reservation(name: str = "r", **spec: Any) -> Json:
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
        "spec": {"tenant": "a", "until": UNTIL, **spec},
    }


NODES = [node("m", disk="fast"), node("n")]
GROUP = {"name": "g", "leader": "u", "members": 1, "resources": {"cpu": "9"}, "places": []}


@pytest.mark.parametrize(
    ("obj", "others", "want"),
    [
        pytest.param(reservation(nodes=["m"]), [], [], id="nothing is wrong"),
        pytest.param(
            reservation(nodes=["m"], tenant="b"),
            [],
            ["no namespace or policy names tenant 'b': no pod can use the reserved capacity"],
            id="no namespace has that tenant",
        ),
        pytest.param(
            reservation(nodes=["m", "x", "y"]), [], ["there is no node x, y"], id="no such nodes"
        ),
        pytest.param(
            reservation(nodeSelector={"disk": "slow"}),
            [],
            ["no selected node has the labels disk=slow"],
            id="no node has the labels",
        ),
        pytest.param(
            reservation(nodes=["n"], nodeSelector={"disk": "fast"}),
            [],
            ["no selected node has the labels disk=fast"],
            id="a node without the labels",
        ),
        pytest.param(
            reservation(count=5, resources={"cpu": "3"}),
            [],
            ["2 nodes could hold 4 of 5 if nothing ran there"],
            id="more places than fit",
        ),
        pytest.param(
            reservation(nodes=["m"], resources={"nvidia.com/gpu": "1"}),
            [],
            ["1 node could hold 0 of 1 if nothing ran there"],
            id="a resource that is not there",
        ),
        pytest.param(
            reservation(count=2, resources={"cpu": "6"}),
            [reservation("s", nodes=["m"])],
            [
                "together with 1 other it reserves 20 of cpu from 2026-06-01T00:00:00Z on,"
                " the cluster has 16"
            ],
            id="more than there is, with another",
        ),
        pytest.param(
            reservation(resources={"cpu": "8"}),
            [
                reservation("s", resources={"cpu": "5"}, **{"from": "2026-06-20T00:00:00Z"}),
                reservation("t", resources={"cpu": "5"}, **{"from": "2026-06-10T00:00:00Z"}),
            ],
            [
                "together with 2 others it reserves 18 of cpu from 2026-06-20T00:00:00Z on,"
                " the cluster has 16"
            ],
            id="more than there is, from the time that the last begins",
        ),
        pytest.param(
            reservation(resources={"cpu": "8"}, **{"from": "2026-06-20T00:00:00Z"}),
            [reservation("s", count=2, resources={"cpu": "6"}, until="2026-06-20T00:00:00Z")],
            [],
            id="one after the other",
        ),
        pytest.param(
            reservation(count=2, resources={"cpu": "8"}),
            [reservation(count=2, resources={"cpu": "8"})],
            [],
            id="an older state of itself",
        ),
        pytest.param(
            reservation(count=2, resources={"cpu": "8"}),
            [{"metadata": {}, "spec": {"podGroup": GROUP, "until": UNTIL}}, {"metadata": {}}],
            [],
            id="one for a pod group, and one that cannot be read",
        ),
        pytest.param(reservation(tenant=""), [], [], id="another check reports a faulty one"),
    ],
)
def test_warnings(obj: Json, others: list[Json], want: list[str]) -> None:
    ground = ReservationFacts.of(NODES, others, {"a"}, exclude="ns/r")
    assert reservation_rules.warnings(obj, ground, now=NOW) == want
