"""Gangs that share a domain, fabrics that are good enough, and the report where they are not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.explain.inspection import Inspection
from scheduler.explain.response import answer
from scheduler.gang import starvation
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables, TopologyLevel
from scheduler.model.unit import Unit, key_of, order
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.queueing.entry import QueueState, UnitView
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

CLIQUE = {vocabulary.REQUIRE_CLIQUE_ANNOTATION: "true"}


def co_locate(how: str) -> dict[str, str]:
    return {vocabulary.CO_LOCATE_ANNOTATION: how}


def at_least(fabric: str) -> dict[str, str]:
    return {vocabulary.MIN_FABRIC_TIER_ANNOTATION: fabric}


def host(
    name: str, gpus: int = 4, *, clique: str = "", rack: str = "", fabric: str = "", **more: Any
) -> Node:
    values = {
        vocabulary.GPU_CLIQUE_LABEL: clique,
        vocabulary.RACK_LABEL: rack,
        vocabulary.FABRIC_TYPE_LABEL: fabric,
    }
    labels = {key: value for key, value in values.items() if value}
    return a_node(name, cpu="64", memory="64Gi", gpus=gpus, labels=labels, **more)


def unit_of(pods: list[Pod], bound: int = 0) -> Unit:
    return Unit(key_of(pods[0]), tuple(sorted(pods, key=order)), bound)


def outcome(
    pods: list[Pod], nodes: list[Node], bound_members: list[tuple[Pod, str]] | None = None
) -> dict[str, str] | str:
    snapshot = Snapshot.of(nodes, bound_members or ())
    match planner.plan(
        unit_of(pods, len(bound_members or ())), snapshot, bound_members=bound_members or ()
    ):
        case Placed() as plan:
            return {one.pod.key.name: one.node for one in plan.placements}
        case NoFit() as misfit:
            return misfit.text


TWO_CLIQUES = [
    host("a1", 2, clique="a", rack="r"),
    host("a2", 2, clique="a", rack="r"),
    host("b1", 4, clique="b", rack="r"),
    host("b2", 1, clique="b", rack="r"),
    host("c1", 8, rack="r"),
]


@pytest.mark.parametrize(
    ("pods", "nodes", "want"),
    [
        pytest.param(
            a_gang(4, gpus=1, annotations=CLIQUE),
            TWO_CLIQUES,
            dict.fromkeys(["g-0", "g-1", "g-2", "g-3"], "b1"),
            id="a clique that holds all on one node, though a node without a clique would",
        ),
        pytest.param(
            a_gang(2, gpus=2, annotations=CLIQUE),
            [host("a1", 2, clique="a"), host("b1", 2, clique="b"), host("b2", 2, clique="b")],
            {"g-0": "b1", "g-1": "b2"},
            id="a clique that holds only one of them is passed by",
        ),
        pytest.param(
            a_gang(2, gpus=2, annotations=co_locate("strict")),
            [host("a1", 2, clique="a"), host("b1", 2, clique="b"), host("b2", 2, clique="b")],
            {"g-0": "b1", "g-1": "b2"},
            id="strict means the narrowest level",
        ),
        pytest.param(
            a_gang(2, gpus=2, annotations=co_locate("strict:rack")),
            [
                host("a1", 2, clique="x", rack="1"),
                host("b1", 2, clique="y", rack="2"),
                host("b2", 2, clique="z", rack="2"),
            ],
            {"g-0": "b1", "g-1": "b2"},
            id="strict at a level that is named",
        ),
        pytest.param(
            a_gang(2, gpus=2, annotations=co_locate("preferred:rack")),
            [
                host("a1", 4, rack=""),
                host("b1", 2, rack="2"),
                host("b2", 2, rack="2"),
            ],
            {"g-0": "b1", "g-1": "b2"},
            id="a preferred level takes precedence over fewer nodes",
        ),
        pytest.param(
            a_gang(3, gpus=2, annotations=co_locate("preferred:rack")),
            [host("a1", 2, rack="1"), host("b1", 2, rack="2"), host("b2", 2, rack="2")],
            {"g-0": "b1", "g-1": "b2", "g-2": "a1"},
            id="a preferred level that holds too few is given up",
        ),
        pytest.param(
            [
                a_pod("g-0", gpus=2, gang=("g", 2)),
                a_pod("g-1", gpus=1, gang=("g", 2), annotations=CLIQUE),
            ],
            [host("a1", 2, clique="a"), host("b1", 2, clique="b"), host("b2", 1, clique="b")],
            {"g-0": "b1", "g-1": "b2"},
            id="what one member requires holds for all",
        ),
        pytest.param(
            [
                *a_gang(2, size=3, gpus=2, annotations=CLIQUE),
                a_pod("lead", cpu="60", gang=("g", 3), annotations=co_locate("strict:rack")),
            ],
            [
                host("a1", 3, clique="a", rack="1"),
                host("b1", 2, clique="b", rack="2"),
                host("b2", 2, clique="b", rack="2"),
                host("b3", 2, clique="b", rack="3"),
            ],
            {"g-0": "b1", "g-1": "b2", "lead": "b1"},
            id="members that require different levels share a domain of each",
        ),
        pytest.param(
            a_gang(3, size=2, gpus=2, annotations=CLIQUE),
            [
                host("a1", 2, clique="a"),
                host("a2", 2, clique="a"),
                host("b1", 2, clique="b"),
                host("b2", 2, clique="b"),
                host("b3", 2, clique="b"),
            ],
            {"g-0": "b1", "g-1": "b2", "g-2": "b3"},
            id="a clique for all members takes precedence over one for the minimum",
        ),
        pytest.param(
            a_gang(3, size=2, gpus=2, annotations=CLIQUE),
            [host("a1", 2, clique="a"), host("b1", 2, clique="b"), host("b2", 2, clique="b")],
            {"g-0": "b1", "g-1": "b2"},
            id="members above the minimum wait rather than leave the clique",
        ),
        pytest.param(
            a_gang(4, gpus=1, annotations=CLIQUE),
            [host("a1", 3, clique="a"), host("b1", 2, clique="b"), host("c1", 8)],
            "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were in no clique,"
            " 1 node(s) were outside any clique that can hold the gang (largest holds 3 of 4)."
            " waiting for pod group g: 3/4 members fit",
            id="no clique holds all",
        ),
        pytest.param(
            a_gang(2, gpus=1, annotations=CLIQUE),
            [host("c1", 8)],
            "0/1 nodes are available: 1 node(s) were in no clique."
            " waiting for pod group g: 0/2 members fit",
            id="there is no clique at all",
        ),
        pytest.param(
            a_gang(2, gpus=1, annotations=co_locate("strict:row")),
            [host("c1", 8)],
            "0/1 nodes are available: scheduling.kubenexus.io/co-locate names the topology level"
            " row, which no policy names; known are zone, fabric, rack, clique."
            " waiting for pod group g: 0/2 members fit",
            id="a level that no policy names",
        ),
        pytest.param(
            a_gang(2, gpus=4, annotations=at_least("ib")),
            [
                host("a1", fabric="Ethernet"),
                host("b1", fabric="infiniband"),
                host("b2", fabric="nvswitch"),
            ],
            {"g-0": "b1", "g-1": "b2"},
            id="fabrics below the least are passed by",
        ),
        pytest.param(
            [
                a_pod("g-0", gpus=1, gang=("g", 2), annotations=at_least("roce")),
                a_pod("g-1", gang=("g", 2)),
            ],
            [host("a1", 0), host("b1", fabric="ethernet")],
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had a fabric below"
            " roce. waiting for pod group g: 0/2 members fit",
            id="the least fabric of one member holds for all",
        ),
        pytest.param(
            [a_pod("p", gpus=1, annotations=CLIQUE)],
            [host("a1", 1), host("b1", 4, clique="b")],
            {"p": "b1"},
            id="a pod alone that requires a clique gets a node in one",
        ),
        pytest.param(
            [a_pod("p", gpus=1, annotations=at_least("nvlink"))],
            [host("a1", fabric="roce"), host("b1")],
            "0/2 nodes are available: 2 node(s) had a fabric below nvlink.",
            id="a pod alone whose least fabric is nowhere",
        ),
        pytest.param(
            [a_pod("p", gpus=1, annotations={vocabulary.NETWORK_SENSITIVE_ANNOTATION: "true"})],
            [host("a1", fabric="ethernet"), host("b1", 8, fabric="infiniband")],
            {"p": "b1"},
            id="a network-sensitive pod prefers the better fabric",
        ),
        pytest.param(
            [a_pod("p", gpus=1, labels={vocabulary.WORKLOAD_TYPE_LABEL: "training"})],
            [host("a1", fabric="ethernet"), host("b1", 8, fabric="infiniband")],
            {"p": "b1"},
            id="so does training on GPUs",
        ),
        pytest.param(
            [
                a_pod(
                    "p",
                    gpus=1,
                    labels={vocabulary.WORKLOAD_TYPE_LABEL: "training"},
                    annotations={vocabulary.NETWORK_SENSITIVE_ANNOTATION: "false"},
                )
            ],
            [host("a1", fabric="ethernet"), host("b1", 8, fabric="infiniband")],
            {"p": "a1"},
            id="unless it declares that it is not sensitive",
        ),
    ],
)
def test_plans(pods: list[Pod], nodes: list[Node], want: dict[str, str] | str) -> None:
    assert outcome(pods, nodes) == want


@pytest.mark.parametrize(
    ("on", "want"),
    [
        pytest.param(["a1"], {"g-1": "a2"}, id="the clique of a member that has its node"),
        pytest.param(
            ["a1", "b1"],
            "0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were in no clique,"
            " 3 node(s) could not join a gang whose bound members share no clique."
            " waiting for pod group g: 2/3 members fit",
            id="members in two cliques: no other member joins them",
        ),
        pytest.param(
            ["a1", "a2"],
            "0/5 nodes are available: 1 node(s) were in no clique, 2 Insufficient nvidia.com/gpu,"
            " 2 node(s) were outside the clique of the gang's bound members."
            " waiting for pod group g: 2/3 members fit",
            id="the clique of the others is full",
        ),
    ],
)
def test_members_with_a_node_pin_the_gang(on: list[str], want: dict[str, str] | str) -> None:
    size = len(on) + 1
    bound_members = [
        (a_pod(f"m-{i}", gpus=2, gang=("g", size), annotations=CLIQUE), node)
        for i, node in enumerate(on)
    ]
    nodes = [
        host("a1", 2, clique="a"),
        host("a2", 2, clique="a"),
        host("b1", 4, clique="b"),
        host("b2", 4, clique="b"),
        host("c1", 8),
    ]
    pod = a_pod("g-1", gpus=2, gang=("g", size), annotations=CLIQUE)
    assert outcome([pod], nodes, bound_members) == want


def test_levels_and_their_labels_are_configuration() -> None:
    snapshot = Snapshot.of(
        [
            a_node("a1", cpu="2", labels={"row": "1"}),
            a_node("a2", cpu="1", labels={"aisle": "1"}),
            a_node("b1", cpu="4", labels={"row": "2", "aisle": "1"}),
        ]
    )
    snapshot.adopt(PlacementTables(levels=(TopologyLevel("row", ("row", "aisle")),)))
    plan = planner.plan(unit_of(a_gang(3, annotations=co_locate("strict:row"))), snapshot)
    first = planner.plan(unit_of(a_gang(5, annotations=co_locate("strict:row"))), snapshot)
    assert isinstance(plan, Placed)
    assert isinstance(first, NoFit)
    assert {one.node for one in plan.placements} == {"b1"}
    assert "outside any row that can hold the gang (largest holds 4 of 5)" in first.text
    snapshot.charge(a_pod("x", cpu="3"), "b1")
    plan = planner.plan(unit_of(a_gang(3, annotations=co_locate("strict:row"))), snapshot)
    assert isinstance(plan, Placed)
    assert {one.node for one in plan.placements} == {"a1", "a2"}


def test_why_names_what_is_missing_in_the_best_clique() -> None:
    snapshot = Snapshot.of([host("a1", 3, clique="a"), host("b1", 2, clique="b"), host("c1", 8)])
    pods = a_gang(4, gpus=1, annotations=CLIQUE)
    unit = unit_of(pods)
    misfit = planner.plan(unit, snapshot)
    assert isinstance(misfit, NoFit)
    seen = Inspection(pods[0], UnitView(unit, QueueState.UNSCHEDULABLE, 1, 0.0, 0.0, misfit))
    before = snapshot.state()
    found = answer(seen, snapshot, Memo(), now=0.0)
    assert (found["message"], found["reasons"], snapshot.state()) == (
        misfit.text,
        [
            {"reason": "Insufficient nvidia.com/gpu", "nodes": 1},
            {"reason": "node(s) were in no clique", "nodes": 1},
            {
                "reason": "node(s) were outside any clique that can hold the gang (largest holds 3"
                " of 4)",
                "nodes": 1,
            },
        ],
        before,
    )
    assert "require no topology level and no fabric: 2 nodes would do" in found["changes"]


def test_nodes_are_held_where_the_members_are() -> None:
    """A gang that starves is pinned by members with a node: others are of no use to it."""
    nodes = [host("a1", 4, clique="a"), host("a2", 2, clique="a"), host("b1", 8, clique="b")]
    mate = a_pod("m", gpus=2, gang=("g", 2), annotations=CLIQUE)
    pod = a_pod("p", gpus=3, gang=("g", 2), annotations=CLIQUE)
    snapshot = Snapshot.of(nodes, [(mate, "a2")])
    found = [
        starvation.choose(unit_of([pod], 1), snapshot, (), bound_members)
        for bound_members in ([], [(mate, "a2")])
    ]
    assert found == [{"b1"}, {"a1"}]


hosts = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["", "a", "b", "c"])), min_size=1, max_size=7
)


@settings(max_examples=150)
@given(hosts, st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_a_gang_is_in_one_clique_whenever_one_holds_it(
    spec: list[tuple[int, str]], count: int, each: int, drivers: int
) -> None:
    nodes = [host(f"n{i}", gpus, clique=clique) for i, (gpus, clique) in enumerate(spec)]
    size = count + drivers
    pods = a_gang(count, size=size, gpus=each, annotations=CLIQUE)
    pods += [a_pod(f"d-{i}", gpus=1, gang=("g", size)) for i in range(drivers)]
    snapshot = Snapshot.of(nodes)
    plan = planner.plan(unit_of(pods), snapshot)
    holds = any(
        _packs([gpus for gpus, mine in spec if mine == clique], [each] * count + [1] * drivers)
        for clique in "abc"
    )
    if isinstance(plan, Placed):
        cliques = {spec[int(one.node[1:])][1] for one in plan.placements}
        assert (holds, len(cliques), "" in cliques) == (True, 1, False)
    else:
        assert not holds


@settings(max_examples=60)
@given(hosts, st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=8))
def test_members_that_come_one_by_one_never_leave_their_clique(
    spec: list[tuple[int, str]], arrivals: list[tuple[int, bool]]
) -> None:
    nodes = [host(f"n{i}", gpus, clique=clique) for i, (gpus, clique) in enumerate(spec)]
    snapshot = Snapshot.of(nodes)
    bound_members: list[tuple[Pod, str]] = []
    for number, (gpus, leaves) in enumerate(arrivals):
        if leaves and bound_members:
            snapshot.release(*bound_members.pop(0))
        pod = a_pod(f"g-{number}", gpus=gpus, gang=("g", 1), annotations=CLIQUE)
        plan = planner.plan(
            unit_of([pod], len(bound_members)), snapshot, bound_members=bound_members
        )
        if isinstance(plan, Placed):
            snapshot.charge(pod, plan.placements[0].node)
            bound_members.append((pod, plan.placements[0].node))
        cliques = {spec[int(node[1:])][1] for _, node in bound_members}
        assert len(cliques) <= 1
        assert "" not in cliques


def _packs(bins: list[int], items: list[int]) -> bool:
    if not items:
        return True
    first, *others = items
    return any(
        _packs([*bins[:i], free - first, *bins[i + 1 :]], others)
        for i, free in enumerate(bins)
        if free >= first
    )


def test_a_gang_that_must_share_two_levels_finds_the_first_domain_of_a_full_table() -> None:
    """Every row of the table has a node with both labels: no code is left for "no domain"."""
    racks = [("a", "r1", 4), ("b", "r1", 1), ("c", "r2", 1), ("d", "r2", 1)]
    nodes = [
        host(f"n{clique}{i:02}", gpus, clique=clique, rack=rack)
        for clique, rack, gpus in racks
        for i in range(16)
    ]
    assert len(Snapshot.of(nodes).table.alive) == len(nodes)
    wants = CLIQUE | co_locate("strict:rack")
    placed = outcome(a_gang(2, gpus=4, annotations=wants), nodes)
    assert isinstance(placed, dict)
    assert {name[1] for name in placed.values()} == {"a"}
