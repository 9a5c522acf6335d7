"""Counters by which others notice a change, and what stays when the table of nodes grows."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables
from scheduler.model.unit import units
from scheduler.plan.planner import plan
from tests.unit.scheduler.builders import a_node, a_pod

Change = Callable[[Snapshot], object]

NODE = a_node("n")
POD = a_pod("p")
NOMINEE = a_pod("other", schedulerName="else", status={"nominatedNodeName": "n"})


def _trial(snapshot: Snapshot) -> None:
    with snapshot.trial():
        snapshot.suppose(POD, "n")


def _nominate_and_withdraw(snapshot: Snapshot) -> None:
    snapshot.nominate(NOMINEE)
    snapshot.nominate(replace(NOMINEE, nominated=""))


CHANGES: dict[str, Change] = {
    "put_node": lambda snapshot: snapshot.put_node(replace(NODE, labels=(("a", "b"),))),
    "put_node, as before": lambda snapshot: snapshot.put_node(NODE),
    "drop_node": lambda snapshot: snapshot.drop_node("m"),
    "charge": lambda snapshot: snapshot.charge(POD, "n"),
    "release": lambda snapshot: snapshot.release(POD, "n"),
    "cluster_event": lambda snapshot: snapshot.cluster_event(),
    "adopt": lambda snapshot: snapshot.adopt(PlacementTables()),
    "nominate": lambda snapshot: snapshot.nominate(NOMINEE),
    "nominate, no longer": _nominate_and_withdraw,
    "trial": _trial,
}


def a_snapshot() -> Snapshot:
    return Snapshot.of([NODE, a_node("m")], [(POD, "n")])


@pytest.mark.parametrize(
    ("change", "moved", "freed"),
    [
        ("put_node", True, True),
        ("put_node, as before", False, False),
        ("drop_node", True, False),
        ("charge", True, False),
        ("release", True, True),
        ("cluster_event", True, True),
        ("adopt", True, True),
        ("nominate", False, False),
        ("nominate, no longer", False, True),
        ("trial", True, False),
    ],
)
def test_counters(change: str, moved: bool, freed: bool) -> None:
    """`moved`: something may differ; `freed`: a pod may fit that did not."""
    snapshot = a_snapshot()
    before = snapshot.moved, snapshot.freed
    CHANGES[change](snapshot)
    assert (snapshot.moved > before[0], snapshot.freed > before[1]) == (moved, freed)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=8))
def test_counters_never_return_to_an_earlier_value(changes: list[str]) -> None:
    """A component that compares with the value it saw last would miss the changes between."""
    snapshot = a_snapshot()
    seen = [(snapshot.moved, snapshot.freed, snapshot.table.statics)]
    for change in changes:
        snapshot.put_node(a_node("m"))
        if change == "release":
            snapshot.charge(POD, "n")
        CHANGES[change](snapshot)
        seen.append((snapshot.moved, snapshot.freed, snapshot.table.statics))
    for column in zip(*seen, strict=True):
        assert list(column) == sorted(column)


APART: dict[str, Any] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "x"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}
WITH_PORT = [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod("new", cpu="3"), id="resources"),
        pytest.param(a_pod("new", containers=WITH_PORT), id="a host port"),
        pytest.param(a_pod("new", affinity=APART), id="anti-affinity"),
        pytest.param(a_pod("new", labels={"app": "y"}), id="anti-affinity of a pod that is there"),
        pytest.param(a_pod("new", cpu="2", numa="single-numa", memory="1Gi"), id="NUMA nodes"),
    ],
)
def test_what_is_charged_stays_when_the_table_of_nodes_grows(pod: Pod) -> None:
    """Node a is in use in every way that concerns the pod, node b is empty."""
    hosts = [
        a_node(name, cpu="4", memory="16Gi", zones=2, labels={"kubernetes.io/hostname": name})
        for name in ("a", "b")
    ]
    away_from_y = copy.deepcopy(APART)
    term = away_from_y["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["labelSelector"] = {"matchLabels": {"app": "y"}}
    there = [
        a_pod("x", labels={"app": "x"}, affinity=away_from_y, cpu="2"),
        a_pod("port", containers=WITH_PORT, cpu="1"),
    ]
    snapshot = Snapshot.of(hosts, [(one, "a") for one in there])

    def fitting() -> list[str]:
        found = plan(units([pod])[0], snapshot)
        return [one.node for one in found.placements] if isinstance(found, Placed) else []

    before = fitting()
    for number in range(200):
        snapshot.put_node(a_node(f"new-{number}", cpu="64", unschedulable=True))
    snapshot.drop_node("b")
    assert (before, fitting()) == (["b"], [])
