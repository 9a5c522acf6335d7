"""Counted over all nodes at once, or read off one by one: pods around a pod say the same."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.fields import pairs
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from tests.unit.scheduler.builders import pod_json
from tests.unit.scheduler.plugins.interpod import naive_oracle as naive
from tests.unit.scheduler.plugins.interpod.naive_oracle import (
    HOST,
    PREFERRED,
    REQUIRED,
    OracleCluster,
)

Json = dict[str, Any]

SOME = settings(max_examples=40, deadline=None)
KEYS = (HOST, "zone", "rack")
NAMESPACES = {"ns": {"team": "red"}, "other": {"team": "blue"}, "bare": {}}

SELECTORS = st.sampled_from(
    [
        None,
        {},
        {"matchLabels": {"app": "x"}},
        {"matchLabels": {"app": "x"}},
        {"matchLabels": {"app": "x", "tier": "t"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
    ]
)
NAMESPACE_SELECTORS = st.sampled_from(
    [
        None,
        None,
        {},
        {"matchLabels": {"team": "red"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ]
)


@st.composite
def pod_terms(draw: st.DrawFn) -> Json:
    return {
        "topologyKey": draw(st.sampled_from(KEYS)),
        "labelSelector": draw(SELECTORS),
        "namespaces": draw(st.sampled_from([[], [], ["ns"], ["other", "bare"]])),
        "namespaceSelector": draw(NAMESPACE_SELECTORS),
    }


@st.composite
def spreads(draw: st.DrawFn) -> list[Json]:
    rows = []
    for key in draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True)):
        row: Json = {
            "topologyKey": key,
            "maxSkew": draw(st.integers(1, 2)),
            "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway"])),
            "labelSelector": draw(SELECTORS),
            "matchLabelKeys": draw(st.sampled_from([[], [], ["tier"]])),
            "nodeAffinityPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
            "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
        }
        if row["whenUnsatisfiable"] == "DoNotSchedule":
            row["minDomains"] = draw(st.integers(1, 3))
        rows.append(row)
    return rows


@st.composite
def pods(draw: st.DrawFn, name: str, node: str | None) -> Json:
    affinity = {}
    for field in ("podAffinity", "podAntiAffinity"):
        affinity[field] = {
            REQUIRED: draw(st.lists(pod_terms(), max_size=2)) if draw(st.booleans()) else [],
            PREFERRED: [
                {"weight": draw(st.integers(1, 100)), "podAffinityTerm": term}
                for term in draw(st.lists(pod_terms(), max_size=1))
            ],
        }
    labels = {"app": draw(st.sampled_from([None, "x", "x", "y"])), "tier": draw(TIERS)}
    found = pod_json(
        name,
        labels={key: value for key, value in labels.items() if value},
        node=node,
        deleted=node is not None and draw(st.sampled_from([False, False, True])),
        affinity=affinity if draw(st.booleans()) else {},
        topologySpreadConstraints=draw(spreads()),
        nodeSelector=draw(st.sampled_from([{}, {}, {"rack": "r1"}])),
        tolerations=draw(st.sampled_from([[], [{"key": "only", "operator": "Exists"}]])),
    )
    found["metadata"]["namespace"] = draw(st.sampled_from(["ns", "ns", "other", "bare"]))
    return found


TIERS = st.sampled_from([None, "t", "u"])


@st.composite
def clusters(draw: st.DrawFn) -> OracleCluster:
    nodes = []
    for i in range(draw(st.integers(1, 5))):
        labels = {
            HOST: draw(st.sampled_from([f"n{i}", f"n{i}", f"n{i}", None])),
            "zone": draw(st.sampled_from(["a", "b", "c", None])),
            "rack": draw(st.sampled_from(["r1", "r2", None])),
        }
        taints = draw(
            st.sampled_from(
                [
                    [],
                    [{"key": "only", "effect": "NoSchedule"}],
                    [{"key": "rather", "effect": "PreferNoSchedule"}],
                ]
            )
        )
        words = {key: value for key, value in labels.items() if value}
        nodes.append({"metadata": {"name": f"n{i}", "labels": words}, "spec": {"taints": taints}})
    names = [f"n{i}" for i in range(len(nodes))]
    there = [
        draw(pods(f"p{i}", draw(st.sampled_from(names)))) for i in range(draw(st.integers(0, 6)))
    ]
    return OracleCluster(nodes, there, NAMESPACES)


PROBES = st.lists(pods("probe", None), min_size=1, max_size=3)


def placed(cluster: OracleCluster) -> list[tuple[Pod, str]]:
    return [(Pod.read(pod), name) for name, there in cluster.on.items() for pod in there]


def a_snapshot(cluster: OracleCluster) -> Snapshot:
    snapshot = Snapshot()
    for name, words in cluster.namespaces.items():
        snapshot.interpod.put_namespace(name, pairs(words))
    for node in cluster.nodes:
        snapshot.put_node(Node.read(node))
    return snapshot


def with_pods(cluster: OracleCluster) -> Snapshot:
    snapshot = a_snapshot(cluster)
    for pod, node in placed(cluster):
        snapshot.charge(pod, node)
    return snapshot


def reasons(snapshot: Snapshot, pod: Pod) -> dict[str, str]:
    table = snapshot.table
    found = dict.fromkeys(table.rows, "")
    for reason, rejected in snapshot.interpod.filter(pod, table.alive):
        for row in np.flatnonzero(rejected):
            assert not found[table.names[row]]
            found[table.names[row]] = reason
    return found


def scores(snapshot: Snapshot, pod: Pod, names: list[str]) -> list[dict[str, int]]:
    table = snapshot.table
    rows = np.zeros_like(table.alive)
    rows[[table.rows[name] for name in names]] = True
    found = snapshot.interpod.scores(pod, rows)
    if found is None:
        return [dict.fromkeys(names, 0)] * 2
    return [{name: int(scores_of[table.rows[name]]) for name in names} for scores_of in found]


@SOME
@given(clusters(), PROBES)
def test_filters_agree_with_the_naive_oracle(cluster: OracleCluster, probes: list[Json]) -> None:
    snapshot = with_pods(cluster)
    for probe in probes:
        pod = Pod.read(probe)
        found = reasons(snapshot, pod)
        assert found == cluster.reasons(probe)
        assert snapshot.interpod.depends_on_pods(pod) or not any(found.values())


@SOME
@given(clusters(), PROBES, st.data())
def test_scores_agree_with_the_naive_oracle(
    cluster: OracleCluster, probes: list[Json], data: st.DataObject
) -> None:
    snapshot = with_pods(cluster)
    names = data.draw(st.lists(st.sampled_from(sorted(cluster.on)), min_size=1, unique=True))
    for probe in probes:
        soft = any(row["whenUnsatisfiable"] == "ScheduleAnyway" for row in naive.constraints(probe))
        spread = cluster.spread_scores(probe, names) if soft else dict.fromkeys(names, 0)
        want = [spread, cluster.affinity_scores(probe, names)]
        assert scores(snapshot, Pod.read(probe), names) == want


@SOME
@given(clusters(), PROBES)
def test_uncharge_is_the_exact_opposite_of_charge(
    cluster: OracleCluster, probes: list[Json]
) -> None:
    snapshot = with_pods(cluster)
    pods_to_place = [Pod.read(probe) for probe in probes]
    before = [reasons(snapshot, pod) for pod in pods_to_place], snapshot.interpod.state(0)
    for turn, pod in enumerate(pods_to_place):
        snapshot.interpod.charge(pod, turn % len(cluster.nodes), NO_ASSIGNMENT)
        [reasons(snapshot, one) for one in pods_to_place]
    for turn, pod in enumerate(pods_to_place):
        snapshot.interpod.uncharge(pod, turn % len(cluster.nodes), NO_ASSIGNMENT)
    after = [reasons(snapshot, pod) for pod in pods_to_place], snapshot.interpod.state(0)
    assert after == before


@SOME
@given(clusters(), PROBES, st.data())
def test_counts_do_not_depend_on_when_a_selector_is_known(
    cluster: OracleCluster, probes: list[Json], data: st.DataObject
) -> None:
    """After any events: pods, nodes, and the labels of namespaces."""
    wanted = [Pod.read(probe) for probe in probes]
    gone = data.draw(st.sampled_from([None, *sorted(cluster.on)]))
    left = [(pod, node) for pod, node in placed(cluster) if node != gone]
    away = data.draw(st.sets(st.integers(0, max(0, len(left) - 1))))
    staying = [one for turn, one in enumerate(left) if turn not in away]
    early = with_events(cluster, wanted)
    if gone is not None:
        early.drop_node(gone)
    for pod, node in (one for turn, one in enumerate(left) if turn in away):
        early.release(pod, node)
    late = a_snapshot(cluster)
    if gone is not None:
        late.drop_node(gone)
    for pod, node in staying:
        late.charge(pod, node)
    assert [reasons(early, one) for one in wanted] == [reasons(late, one) for one in wanted]


def with_events(cluster: OracleCluster, wanted: list[Pod]) -> Snapshot:
    """Filters every wanted pod after each charge; namespaces are labelled anew at the end."""
    snapshot = a_snapshot(cluster)
    for name in ("ns", "bare"):
        snapshot.interpod.put_namespace(name, (("team", "green"),))
    for pod, node in placed(cluster):
        snapshot.charge(pod, node)
        for one in wanted:
            reasons(snapshot, one)
            snapshot.interpod.signature(one)
    for name, words in cluster.namespaces.items():
        snapshot.interpod.put_namespace(name, pairs(words))
    return snapshot
