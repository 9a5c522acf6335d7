"""A table after years of node changes is as small, and answers the same, as a new one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import NodeTable
from scheduler.model.node import Node
from scheduler.model.taints import Taint
from scheduler.model.unit import units
from scheduler.plan import filters, planner, scores
from scheduler.plan.memo import Memo
from tests.unit.scheduler.builders import a_node, a_pod

ZONE = "topology.kubernetes.io/zone"
SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "x"}},
}
TOLERATION = {"key": "mark", "operator": "Lt", "value": "20"}
PODS = [
    a_pod("plain"),
    a_pod("tolerant", tolerations=[TOLERATION]),
    a_pod("selective", nodeSelector={"v": "3"}),
    a_pod("spread", labels={"app": "x"}, topologySpreadConstraints=[SPREAD]),
    a_pod("device", containers=[{"resources": {"requests": {"example.com/r2": "1"}}}]),
]


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Values and names out of many, so that most of them are used once."""
    number = draw(st.integers(0, 60))
    taint = {"key": "mark", "value": str(number), "effect": draw(st.sampled_from(EFFECTS))}
    labels = {"v": str(number), ZONE: f"z{number % 3}", f"key-{number}": "yes"}
    return replace(
        a_node(
            f"n{draw(st.integers(0, 5))}",
            labels={key: labels[key] for key in draw(st.sets(st.sampled_from(sorted(labels))))},
            taints=draw(st.sampled_from([[], [taint]])),
            unschedulable=draw(st.booleans()),
        ),
        allocatable=(
            ("cpu", 4000),
            ("memory", 2**34),
            ("pods", 110),
            (f"example.com/r{number}", 1),
        ),
    )


EFFECTS = ["NoSchedule", "PreferNoSchedule"]
STEPS = st.lists(st.one_of(nodes(), st.sampled_from([f"n{i}" for i in range(6)])), max_size=120)


def outcome(snapshot: Snapshot, memo: Memo) -> list[dict[str, tuple[bool, int]]]:
    """For each pod and node: whether the node can take it, and the node's score."""
    table = snapshot.table
    found = []
    for pod in PODS:
        rows = filters.candidates(snapshot, pod.spec, memo)
        rows = filters.stateful(snapshot, pod, filters.fitting(snapshot, pod.spec, rows))
        points = scores.spreading(snapshot, pod, rows, memo)
        found.append(
            {
                name: (bool(rows[row]), int(points[row]) if points is not None and rows[row] else 0)
                for name, row in sorted(table.rows.items())
            }
        )
    return found


def sizes(table: NodeTable) -> tuple[int, ...]:
    """Codes and columns."""
    return (
        len(table.taint_sets),
        len(table.soft_taint_sets),
        len(table.values("v")),
        len(table.__dict__["_labels"]),
        len(tuple(table.resources())),
    )


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_table_after_many_changes_answers_as_a_new_one(steps: list[Node | str]) -> None:
    snapshot, memo = Snapshot(), Memo()
    for step in steps:
        if isinstance(step, Node):
            snapshot.put_node(step)
        elif step in snapshot:
            snapshot.drop_node(step)
        outcome(snapshot, memo)
    fresh = Snapshot()
    for node in snapshot.table.nodes.values():
        fresh.put_node(node)
    assert outcome(snapshot, memo) == outcome(fresh, Memo())
    assert all(
        size <= 2 * new + 24
        for size, new in zip(sizes(snapshot.table), sizes(fresh.table), strict=True)
    )


def test_the_marks_of_an_autoscaler_leave_no_taint_sets_behind() -> None:
    """Two taints whose value is the time, on one of 200 nodes after the other."""
    table = NodeTable()
    nodes = [a_node(f"n{i}", labels={"zone": "a"}) for i in range(200)]
    for node in nodes:
        table.put(node)
    most = 0
    for time in range(60_000):
        node = nodes[time % 200]
        hard = (Taint("ToBeDeletedByClusterAutoscaler", str(time)),)
        soft = (Taint("DeletionCandidateOfClusterAutoscaler", str(time), "PreferNoSchedule"),)
        table.put(replace(node, taints=hard, soft_taints=soft))
        table.put(node)
        most = max(most, len(table.taint_sets), len(table.soft_taint_sets))
    assert most <= 19


def test_names_of_nodes_that_are_gone_leave_no_codes_behind() -> None:
    table = NodeTable()
    table.put(a_node("first", labels={"host": "first"}))
    table.codes("host")
    for number in range(2_000):
        table.put(a_node(f"n{number}", labels={"host": f"n{number}"}))
        if number >= 10:
            table.drop(f"n{number - 10}")
    assert len(table.values("host")) <= 2 * 11 + 16
    assert list(table.labelled("host", "first")).index(True) == table.rows["first"]


def test_what_only_pods_request_gets_no_column() -> None:
    """Resources that no node has, label keys that no node has: as many as users invent."""
    snapshot = Snapshot()
    for i in range(3):
        snapshot.put_node(a_node(f"n{i}"))
    before = sizes(snapshot.table)
    for i in range(500):
        container = {"resources": {"requests": {f"example.com/r{i}": "1"}}}
        pod = a_pod(f"p{i}", nodeSelector={f"key-{i}": "x"}, containers=[container])
        filters.explain(snapshot, pod, Memo())
        planner.plan(units([pod])[0], snapshot, memo=Memo())
    assert sizes(snapshot.table) == before


@pytest.mark.parametrize("bound", [True, False])
def test_a_column_of_a_resource_is_removed_with_its_last_user(*, bound: bool) -> None:
    """Nodes offer it or pods on them request it; other names come and go in the meantime."""
    table = NodeTable()
    node = a_node("n")
    row = table.put(node)
    if bound:
        table.use(row, (("example.com/kept", 3),), +1)
    else:
        table.put(replace(node, allocatable=(*node.allocatable, ("example.com/kept", 3))))
    for number in range(200):
        amounts = ((f"example.com/r{number}", 1),)
        table.use(row, amounts, +1)
        table.use(row, amounts, -1)
    kept = table.free_at(row, "example.com/kept")
    assert (kept, len(tuple(table.resources())) <= 40) == (-3 if bound else 3, True)


def test_a_label_that_comes_back_is_seen() -> None:
    table = NodeTable()
    table.put(a_node("n", labels={"disk": "ssd"}))
    found = [table.labelled("disk", "ssd").any()]
    table.put(a_node("n"))
    found.append(table.labelled("disk", "ssd").any())
    table.put(a_node("n", labels={"disk": "ssd"}))
    assert [*found, table.labelled("disk", "ssd").any()] == [True, False, True]


def test_resources_that_no_node_has_need_no_column() -> None:
    snapshot = Snapshot.of([a_node("a"), a_node("b")])
    table, before = snapshot.table, snapshot.state()
    requests = {f"example.com/x{i}": str(i + 1) for i in range(2_000)}
    pod = a_pod("p", containers=[{"resources": {"requests": requests}}])
    snapshot.charge(pod, "a")
    assert sorted(table.resources()) == ["cpu", "memory", "pods"]
    assert dict(table.used_at(table.rows["a"])) == {**dict(pod.spec.requests), **DEFAULTS}
    snapshot.put_node(replace(a_node("a"), allocatable=(("example.com/x4", 7), ("pods", 110))))
    assert [table.free_at(table.rows[name], "example.com/x4") for name in ("a", "b")] == [2, 0]
    assert dict(table.used_at(table.rows["a"])) == {**dict(pod.spec.requests), **DEFAULTS}
    snapshot.release(pod, "a")
    snapshot.put_node(a_node("a"))
    assert snapshot.state() == before


DEFAULTS = {"default request of cpu": 100, "default request of memory": 200 * 2**20}
