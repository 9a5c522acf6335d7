"""What the diagnosis reports of a pod that does not fit."""

from typing import Any

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.explain.diagnosis import Explanation, NearestNode, Shortfall, explain
from scheduler.model.node import Node
from scheduler.plan.memo import Memo
from tests.unit.scheduler.builders import a_node, a_pod

TAINT = {"key": "only", "value": "gpu", "effect": "NoSchedule"}
SELECTED = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("nodes", "pod", "want"),
    [
        pytest.param(
            [a_node("a", cpu="2"), a_node("b", cpu="3"), a_node("c", cpu="8", taints=[TAINT])],
            {"cpu": "4"},
            Explanation(
                "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.",
                (("Insufficient cpu", 2), ("node(s) had untolerated taint(s)", 1)),
                NearestNode("b", ("Insufficient cpu",), (Shortfall("cpu", "4", "3"),)),
                (
                    "request at most 3 cpu instead of 4: node b has it",
                    "tolerate the taints: 1 node would do",
                ),
            ),
            id="too large for two nodes and kept from the third",
        ),
        pytest.param(
            [a_node("a", cpu="2"), a_node("b", cpu="4", memory="4Gi")],
            {"cpu": "4500m", "memory": "8Gi"},
            Explanation(
                "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.",
                (("Insufficient cpu", 2), ("Insufficient memory", 1)),
                NearestNode("a", ("Insufficient cpu",), (Shortfall("cpu", "4500m", "2"),)),
                ("request at most 2 cpu instead of 4500m: node a has it",),
            ),
            id="the nearest node is the one with the fewest reasons",
        ),
        pytest.param(
            [a_node("a"), a_node("b", labels={"disk": "ssd"}, unschedulable=True)],
            {"nodeSelector": {"disk": "ssd"}},
            Explanation(
                f"0/2 nodes are available: 1 {SELECTED}, 1 node(s) were unschedulable.",
                ((SELECTED, 1), ("node(s) were unschedulable", 1)),
                NearestNode("a", (SELECTED,), ()),
                (
                    "tolerate the taints: 1 node would do",
                    "drop the node selector and affinity: 1 node would do",
                ),
            ),
            id="rules alone are in the way",
        ),
        pytest.param(
            [],
            {},
            Explanation("no nodes available to schedule pods", (), None, ()),
            id="there are no nodes",
        ),
        pytest.param(
            [a_node("a")],
            {"resourceClaims": [{}]},
            Explanation(
                "0/1 nodes are available: requests a resource claim by neither name nor template, "
                "which this scheduler does not support.",
                (
                    (
                        "requests a resource claim by neither name nor template, which this "
                        "scheduler does not support",
                        1,
                    ),
                ),
                None,
                (),
            ),
            id="an unsupported request",
        ),
    ],
)
def test_explanations(nodes: list[Node], pod: dict[str, Any], want: Explanation) -> None:
    snapshot = Snapshot.of(nodes)
    before = snapshot.state()
    assert (explain(a_pod(**pod), snapshot, Memo()), snapshot.state()) == (want, before)
