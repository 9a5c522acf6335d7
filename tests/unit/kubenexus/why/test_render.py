"""The scheduler's answers as people read them."""

from typing import Any

import pytest

from kubenexus.why import render

REASON = "node(s) had untolerated taint(s)"


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(
            {
                "pod": "ns/p",
                "state": "unschedulable",
                "waited": 130.4,
                "attempts": 7,
                "message": f"0/11 nodes are available: 1 {REASON}, 10 Insufficient cpu.",
                "reasons": [
                    {"reason": "Insufficient cpu", "nodes": 10},
                    {"reason": REASON, "nodes": 1},
                ],
                "changes": ["request at most 3 cpu instead of 4: node b has it"],
                "nearest": {
                    "node": "b",
                    "reasons": ["Insufficient cpu", REASON],
                    "short": [{"resource": "cpu", "requested": "4", "free": "3"}],
                },
                "gang": {
                    "name": "g",
                    "size": 3,
                    "exist": 2,
                    "bound": 1,
                    "members": [
                        {"pod": "p", "state": "waiting"},
                        {"pod": "q", "state": "bound", "node": "a"},
                    ],
                },
            },
            [
                "pod ns/p: unschedulable for 2m10s, tried 7 times",
                f"  0/11 nodes are available: 1 {REASON}, 10 Insufficient cpu.",
                "Reasons",
                "  10 nodes  Insufficient cpu",
                f"  1 node    {REASON}",
                "Each of these alone would help",
                "  request at most 3 cpu instead of 4: node b has it",
                "Nearest node",
                f"  b: requests 4 cpu, free 3; {REASON}",
                "Pod group g: needs 3 together, 2 exist, 1 have a node",
                "  p: waiting",
                "  q: on a",
            ],
            id="a pod that waits, with everything there is to say",
        ),
        pytest.param(
            {
                "pod": "ns/p",
                "state": "unschedulable",
                "start": {
                    "expected": "2026-01-01T12:00:00Z",
                    "waits_for": ["ns/x", "ns/y"],
                    "ahead": ["ns/g"],
                },
            },
            [
                "pod ns/p: unschedulable",
                "Start",
                "  expected by 2026-01-01T12:00:00Z",
                "  waits for ns/x, ns/y to end",
                "  start reserved ahead of it: ns/g",
            ],
            id="a pod that knows when it starts",
        ),
        pytest.param(
            {"pod": "ns/p", "node": "a", "state": "bound"},
            ["pod ns/p is on node a"],
            id="a pod that has its node",
        ),
        pytest.param({"pod": "ns/p"}, ["pod ns/p: unknown"], id="an answer without any part"),
    ],
)
def test_lines(answer: dict[str, Any], want: list[str]) -> None:
    assert list(render.lines(answer)) == want
