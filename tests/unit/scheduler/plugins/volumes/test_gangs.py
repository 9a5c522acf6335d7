"""Gangs whose members share volumes are placed like those without volumes."""

import pytest

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import units
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_node, a_pod
from tests.unit.scheduler.plugins.volumes.builders import (
    CLASSES,
    MADE,
    a_claim,
    a_csi_node,
    a_csi_volume,
    mounting,
    put,
)


def a_host(name: str, cpu: str) -> Node:
    return a_node(name, cpu=cpu, labels={vocabulary.HOSTNAME_LABEL: name})


def gang_members(claim: str, count: int) -> list[Pod]:
    return [a_pod(f"m{n}", gang=("g", count), volumes=mounting(claim)) for n in range(count)]


@pytest.mark.parametrize("claim", ["bound", "late"])
def test_members_that_share_a_volume_take_the_one_node_that_holds_all(claim: str) -> None:
    """One by one they would begin on the tightest node, and not fit there."""
    snapshot = Snapshot.of([a_host("a", "1"), a_host("b", "3"), a_host("c", "4")])
    put(snapshot, *CLASSES, a_claim("bound", volume="pv"), a_csi_volume("pv"))
    put(snapshot, a_claim("late", class_name=MADE), a_csi_node("c", csi=1))
    found = planner.plan(units(gang_members(claim, 4))[0], snapshot)
    assert isinstance(found, Placed)
    assert [one.node for one in found.placements] == ["c"] * 4
