"""Gangs are placed as a whole: few nodes, one rack, held nodes left alone."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.plan import NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, key_of, order
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_gang, a_node, a_pod


def rack(name: str, *, rack: str, gpus: int, zone: str = "z", **more: Any) -> Node:
    labels = {vocabulary.RACK_LABEL: rack, vocabulary.ZONE_LABEL: zone}
    return a_node(name, cpu="64", memory="64Gi", gpus=gpus, labels=labels, **more)


def outcome(pods: list[Pod], snapshot: Snapshot, **options: Any) -> dict[str, str] | str:
    unit = Unit(key_of(pods[0]), tuple(sorted(pods, key=order)))
    match planner.plan(unit, snapshot, **options):
        case Placed() as plan:
            return {one.pod.key.name: one.node for one in plan.placements}
        case NoFit() as misfit:
            return misfit.text


def driver_and_workers(workers: int, **driver: Any) -> list[Pod]:
    size = workers + 1
    return [
        a_pod(
            "driver",
            gang=("g", size),
            labels={vocabulary.GANG_ROLE_LABEL: "leader"},
            **{"cpu": "4", **driver},
        ),
        *(a_pod(f"w{i}", gpus=4, gang=("g", size)) for i in range(workers)),
    ]


@pytest.mark.parametrize(
    ("nodes", "pods", "want"),
    [
        pytest.param(
            [
                rack("a1", rack="a", gpus=4),
                rack("b1", rack="b", gpus=4),
                rack("b2", rack="b", gpus=4),
                rack("c1", rack="c", gpus=4),
            ],
            a_gang(2, gpus=4),
            {"g-0": "b1", "g-1": "b2"},
            id="a rack that holds the whole gang",
        ),
        pytest.param(
            [
                rack("a1", rack="a", gpus=4, zone="1"),
                rack("b1", rack="b", gpus=4, zone="2"),
                rack("c1", rack="c", gpus=4, zone="2"),
            ],
            a_gang(2, gpus=4),
            {"g-0": "b1", "g-1": "c1"},
            id="one zone when no rack can",
        ),
        pytest.param(
            [rack("a1", rack="a", gpus=4), rack("b1", rack="b", gpus=8)],
            a_gang(2, gpus=4),
            {"g-0": "b1", "g-1": "b1"},
            id="one node before everything",
        ),
        pytest.param(
            [
                rack("a1", rack="a", gpus=4),
                rack("b1", rack="b", gpus=4),
                rack("b2", rack="b", gpus=4),
                a_node("plain", cpu="8"),
            ],
            driver_and_workers(2),
            {"driver": "b1", "w0": "b1", "w1": "b2"},
            id="unlike members keep to one rack, although the leader alone had a host of its own",
        ),
        pytest.param(
            [rack("a1", rack="a", gpus=4), rack("b1", rack="b", gpus=4), a_node("plain", cpu="80")],
            driver_and_workers(2, cpu="70"),
            {"driver": "plain", "w0": "a1", "w1": "b1"},
            id="unlike members go wherever they fit when no rack holds them all",
        ),
        pytest.param(
            [a_node("a", cpu="4"), a_node("b", cpu="3", memory="64Gi")],
            [
                a_pod(
                    "leader", cpu="1", gang=("g", 3), labels={vocabulary.GANG_ROLE_LABEL: "leader"}
                ),
                a_pod("fat", cpu="3", memory="32Gi", gang=("g", 3)),
                a_pod("long", cpu="3", memory="1Gi", gang=("g", 3)),
            ],
            {"leader": "a", "fat": "b", "long": "a"},
            id="the order is changed until all fit",
        ),
    ],
)
def test_gangs(nodes: list[Node], pods: list[Pod], want: dict[str, str]) -> None:
    snapshot = Snapshot.of(nodes)
    before = snapshot.state()
    assert (outcome(pods, snapshot), snapshot.state()) == (want, before)


HELD = "node(s) were held for a pod group that has waited longer"


@pytest.mark.parametrize(
    ("closed", "want"),
    [
        pytest.param(frozenset(), {"p": "a"}, id="nothing is held"),
        pytest.param(frozenset({"a"}), {"p": "b"}, id="a held node is left alone"),
        pytest.param(
            frozenset({"a", "b", "gone"}),
            f"0/2 nodes are available: 2 {HELD}.",
            id="every node is held",
        ),
    ],
)
def test_held_nodes(closed: frozenset[str], want: dict[str, str] | str) -> None:
    snapshot = Snapshot.of([a_node("a", gpus=1), a_node("b", gpus=2)])
    assert outcome([a_pod(gpus=1)], snapshot, closed=closed) == want


@pytest.mark.parametrize(
    ("priority", "want"),
    [
        pytest.param(5, "0/1 nodes are available: 1 Insufficient cpu.", id="no less important"),
        pytest.param(4, {"p": "a"}, id="less important"),
    ],
)
def test_pods_nominated_by_another_scheduler(priority: int, want: dict[str, str] | str) -> None:
    snapshot = Snapshot.of([a_node("a", cpu="4")])
    nominee = a_pod(
        "other",
        cpu="4",
        priority=priority,
        schedulerName="else",
        status={"phase": "Pending", "nominatedNodeName": "a"},
    )
    snapshot.nominate(nominee)
    before = snapshot.state()
    assert (outcome([a_pod(cpu="2", priority=5)], snapshot), snapshot.state()) == (want, before)


BOTH_LEVELS = {
    vocabulary.REQUIRE_CLIQUE_ANNOTATION: "true",
    vocabulary.CO_LOCATE_ANNOTATION: "strict:rack",
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["", "r1", "r2"])),
        min_size=1,
        max_size=8,
    ),
    st.integers(2, 3),
)
@example([("", "r1"), ("", "r1")], 2)  # a rack without a clique
@example([("", "r1"), ("a", ""), ("", "")], 2)  # each node lacks a level: they share no domain
@example([("a", "r1"), ("a", "r2"), ("b", "r1")], 2)  # one level is shared, the other is not
@example([("a", "r1"), ("a", "r1"), ("b", "r1")], 2)  # the first domain by code holds the gang
@example([("b", "r2"), ("a", "r1"), ("b", "r2")], 2)  # the last domain by code holds the gang
def test_a_gang_that_requires_two_levels_shares_both(
    hosts: list[tuple[str, str]], count: int
) -> None:
    """Each member takes a whole node, so a domain holds as many members as it has nodes."""
    nodes = [
        a_node(
            f"n{i}",
            gpus=4,
            labels={
                **({vocabulary.GPU_CLIQUE_LABEL: clique} if clique else {}),
                **({vocabulary.RACK_LABEL: rack} if rack else {}),
            },
        )
        for i, (clique, rack) in enumerate(hosts)
    ]
    found = outcome(a_gang(count, gpus=4, annotations=BOTH_LEVELS), Snapshot.of(nodes))
    domains = Counter(domain for domain in hosts if all(domain))
    if max(domains.values(), default=0) < count:
        assert isinstance(found, str)
    else:
        assert isinstance(found, dict)
        used = {hosts[int(node[1:])] for node in found.values()}
        assert [domains[domain] >= count for domain in used] == [True]
