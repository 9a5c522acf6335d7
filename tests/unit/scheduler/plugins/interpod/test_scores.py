"""Scores of inter-pod affinity and topology spread."""

from typing import Any

import numpy as np
import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.pod import OwnerRef, Pod
from scheduler.plugins.interpod.default_spread import WorkloadSelector
from scheduler.plugins.interpod.plugin import InterPod
from tests.unit.scheduler.builders import a_node
from tests.unit.scheduler.plugins.interpod.builders import (
    HOST,
    ZONE,
    X,
    a_labelled_pod,
    a_snapshot,
    affinity,
    preferred,
    spread,
    term,
)


def scores_of(snapshot: Snapshot, pod: Pod, *names: str) -> list[dict[str, int]] | None:
    table = snapshot.table
    rows = table.alive.copy()
    if names:
        rows = np.isin(np.arange(len(rows)), [table.rows[name] for name in names])
    found = snapshot.interpod.scores(pod, rows)
    if found is None:
        return None
    return [{name: int(one[row]) for name, row in table.rows.items() if rows[row]} for one in found]


def test_the_hostname_key_scores_each_host_by_its_own_pods() -> None:
    snapshot = Snapshot.of([a_node(name, labels={HOST: "same"}) for name in ("a", "b")])
    snapshot.charge(a_labelled_pod("e"), "a")
    pod = a_labelled_pod(topologySpreadConstraints=[spread(HOST, soft=True)])
    assert scores_of(snapshot, pod) == [{"a": 0, "b": 100}, {"a": 0, "b": 0}]


NONE = dict.fromkeys(("a1", "a2", "b1", "b2", "bare"), 0)

SCORES = [
    pytest.param([(a_labelled_pod("e"), "a1")], a_labelled_pod(), None, id="no preference"),
    pytest.param(
        [(a_labelled_pod("e"), "a1")],
        a_labelled_pod(affinity=preferred("podAffinity", 10, term(ZONE))),
        [NONE, NONE | {"a1": 100, "a2": 100}],
        id="preferred affinity",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1"), (a_labelled_pod("f"), "a1"), (a_labelled_pod("g"), "b1")],
        a_labelled_pod(affinity=preferred("podAntiAffinity", 10, term(ZONE))),
        [NONE, {"a1": 0, "a2": 0, "b1": 50, "b2": 50, "bare": 100}],
        id="preferred anti-affinity",
    ),
    pytest.param(
        [(a_labelled_pod("e", "y", affinity=preferred("podAffinity", 10, term(ZONE))), "b1")],
        a_labelled_pod(),
        [NONE, NONE | {"b1": 100, "b2": 100}],
        id="preferred affinity of existing pods",
    ),
    pytest.param(
        [
            (a_labelled_pod("e", "y", affinity=affinity(term(ZONE))), "b1"),
            (a_labelled_pod("f", "y", affinity=preferred("podAntiAffinity", 1, term(HOST))), "b1"),
        ],
        a_labelled_pod(),
        [NONE, NONE | {"b2": 100}],
        id="a required term of others weighs one",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1"), (a_labelled_pod("f", deleted=True), "b1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, soft=True)]),
        [{"a1": 0, "a2": 0, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="over zones, terminating pods not counted, nodes without a zone last",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1"), (a_labelled_pod("f"), "a2"), (a_labelled_pod("g"), "a2")],
        a_labelled_pod(topologySpreadConstraints=[spread(HOST, soft=True, maxSkew=2)]),
        [{"a1": 60, "a2": 20, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="over hosts, the skew softens it",
    ),
    pytest.param(
        [],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, soft=True)]),
        [{"a1": 100, "a2": 100, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="no pods yet",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)]),
        None,
        id="a hard constraint does not score",
    ),
]


@pytest.mark.parametrize(("there", "pod", "want"), SCORES)
def test_scores(there: list[tuple[Pod, str]], pod: Pod, want: list[dict[str, int]] | None) -> None:
    assert scores_of(a_snapshot(*there), pod) == want


# --- default spread ---


def a_pod_of(name: str, kind: str = "ReplicaSet") -> Pod:
    raw = a_labelled_pod(name)
    return Pod(raw.key, raw.uid, raw.spec, labels=raw.labels, owner=OwnerRef(kind, "web", "u"))


def a_workload(kind: str, name: str = "web", **spec: Any) -> WorkloadSelector:
    return WorkloadSelector.read(
        kind, {"metadata": {"namespace": "ns", "name": name}, "spec": spec}
    )


def with_workload(snapshot: Snapshot, kind: str) -> InterPod:
    plain = kind in ("Service", "ReplicationController")
    snapshot.interpod.defaults.put(a_workload(kind, selector={"app": "x"} if plain else X))
    return snapshot.interpod


@pytest.mark.parametrize("kind", ["Service", "ReplicationController", "ReplicaSet", "StatefulSet"])
def test_pods_of_a_workload_are_spread_over_hosts_and_zones(kind: str) -> None:
    snapshot = a_snapshot((a_labelled_pod("e"), "a1"))
    with_workload(snapshot, kind)
    found = scores_of(snapshot, a_pod_of("p", "Job" if kind == "Service" else kind))
    # Hosts: ln 7 a pod and 2 for the skew; zones: ln 5 and 4, "no zone" being one of three.
    assert found == [{"a1": 0, "a2": 20, "b1": 40, "b2": 40, "bare": 100}, NONE]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_labelled_pod("p", "y"), id="not selected by the service"),
        pytest.param(a_labelled_pod("p", ns="other"), id="in another namespace"),
        pytest.param(
            a_labelled_pod("p", topologySpreadConstraints=[spread(ZONE)]),
            id="with constraints of its own",
        ),
    ],
)
def test_pods_without_a_workload_are_not_spread(pod: Pod) -> None:
    snapshot = a_snapshot((a_labelled_pod("e"), "a1"))
    with_workload(snapshot, "Service")
    assert scores_of(snapshot, pod) is None


def test_a_dropped_service_spreads_no_pods() -> None:
    snapshot = a_snapshot((a_labelled_pod("e"), "a1"))
    interpod = with_workload(snapshot, "Service")
    before = scores_of(snapshot, a_labelled_pod("p"))
    interpod.defaults.put(a_workload("Service", "headless"))
    interpod.defaults.drop(a_workload("Service"))
    assert (before is None, scores_of(snapshot, a_labelled_pod("p"))) == (False, None)
