"""How the members of one gang share the NUMA nodes of their hosts, within one plan and over plans."""

from typing import Any

import pytest

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaShare
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of, order
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

SPREAD = vocabulary.GANG_NUMA_SPREAD_ANNOTATION
FOUR = a_node("a", cpu="16", memory="64Gi", zones=4)
TWO = a_node("b", cpu="8", memory="32Gi", zones=2)


def members(count: int, spread: str, *, cpu: str = "1", **more: Any) -> list[Pod]:
    return a_gang(count, cpu=cpu, annotations={SPREAD: spread}, **more)


def outcome(pods: list[Pod], snapshot: Snapshot, bound: int = 0) -> dict[str, str] | str:
    """Node and NUMA nodes by member."""
    unit = Unit(key_of(pods[0]), tuple(sorted(pods, key=order)), bound)
    match planner.plan(unit, snapshot):
        case Placed() as plan:
            return {
                one.pod.key.name: f"{one.node}{list(one.assignment.numa)}"
                for one in plan.placements
            }
        case NoFit() as misfit:
            return misfit.text


@pytest.mark.parametrize(
    ("nodes", "pods", "want"),
    [
        pytest.param(
            [FOUR],
            members(4, "packed"),
            {f"g-{i}": "a[0]" for i in range(4)},
            id="packed: all on one NUMA node",
        ),
        pytest.param(
            [FOUR],
            members(3, "packed", cpu="2", numa="single-numa"),
            {"g-0": "a[0]", "g-1": "a[0]", "g-2": "a[1]"},
            id="packed: the next NUMA node when the first is full",
        ),
        pytest.param(
            [FOUR],
            members(6, "balanced"),
            {
                "g-0": "a[0]",
                "g-1": "a[1]",
                "g-2": "a[2]",
                "g-3": "a[3]",
                "g-4": "a[0]",
                "g-5": "a[1]",
            },
            id="balanced: evenly over all",
        ),
        pytest.param(
            [FOUR],
            members(4, "isolated"),
            {f"g-{i}": f"a[{i}]" for i in range(4)},
            id="isolated: one for each",
        ),
        pytest.param(
            [FOUR, TWO],
            members(6, "isolated"),
            {
                "g-0": "a[0]",
                "g-1": "a[1]",
                "g-2": "a[2]",
                "g-3": "a[3]",
                "g-4": "b[0]",
                "g-5": "b[1]",
            },
            id="isolated: over two hosts",
        ),
        pytest.param(
            [TWO],
            members(3, "isolated"),
            "0/1 nodes are available: 1 node(s) had no NUMA node with capacity and without another "
            "member of the pod group. waiting for pod group g: 2/3 members fit",
            id="isolated: fewer NUMA nodes than members",
        ),
        pytest.param(
            [a_node("c", cpu="8")],
            members(2, "isolated"),
            "0/1 nodes are available: no nodes with NUMA topology. "
            "waiting for pod group g: 0/2 members fit",
            id="isolated: a host that tells of no NUMA node",
        ),
    ],
)
def test_within_one_plan(nodes: list[Node], pods: list[Pod], want: dict[str, str] | str) -> None:
    assert outcome(pods, Snapshot.of(nodes)) == want


def held(name: str, zone: int | None, spread: str = "packed", gang: str = "g") -> tuple[Pod, str]:
    """A member that was bound earlier."""
    where = NO_ASSIGNMENT if zone is None else Assignment((NumaShare(zone, 1000, 0),))
    notes = {SPREAD: spread}
    if zone is not None:
        notes[vocabulary.NUMA_ASSIGNED_ANNOTATION] = where.render()
    return a_pod(name, cpu="1", gang=(gang, 2), node="b", annotations=notes), "b"


@pytest.mark.parametrize(
    ("there", "spread", "want"),
    [
        pytest.param(held("g-9", 1), "packed", "b[1]", id="packed beside a member"),
        pytest.param(held("g-9", 1), "balanced", "b[0]", id="balanced away from it"),
        pytest.param(held("g-9", 0), "isolated", "b[1]", id="isolated away from it"),
        pytest.param(
            held("g-9", 0, "isolated"), "packed", "b[1]", id="a member that must be alone"
        ),
        pytest.param(
            held("h-9", 1, gang="h"), "isolated", "b[1]", id="a pod of another gang is no member"
        ),
        pytest.param(
            held("g-9", None),
            "isolated",
            "0/1 nodes are available: 1 node(s) had no NUMA node with capacity and without another "
            "member of the pod group. waiting for pod group g: 1/2 members fit",
            id="a member at an unknown place may be anywhere",
        ),
    ],
)
def test_beside_members_of_earlier_plans(
    there: tuple[Pod, str], spread: str, want: dict[str, str] | str
) -> None:
    pods = [a_pod("g-0", cpu="1", gang=("g", 2), annotations={SPREAD: spread})]
    found = outcome(pods, Snapshot.of([TWO], [there]), bound=1)
    assert (found["g-0"] if isinstance(found, dict) else found) == want


def test_what_one_gang_cannot_have_another_may() -> None:
    """Two gangs of equal pods: the first has a mate on the host, the second has none."""
    one = a_node("b", cpu="8", memory="32Gi", zones=1)
    snapshot, memo = Snapshot.of([one], [held("g-9", 0)]), planner.Memo()
    found = []
    for gang in ("g", "h"):
        pod = a_pod(f"{gang}-0", cpu="1", gang=(gang, 1), annotations={SPREAD: "isolated"})
        found.append(type(planner.plan(Unit(key_of(pod), (pod,)), snapshot, memo=memo)))
    assert found == [NoFit, Placed]
