"""Where a pod would rather be, for the sake of the pods around it."""

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
    a_peer,
    near,
    picture,
    rather,
    spread,
    term,
)


def marks(snapshot: Snapshot, pod: Pod, *names: str) -> list[dict[str, int]] | None:
    table = snapshot.table
    rows = table.alive.copy()
    if names:
        rows = np.isin(np.arange(len(rows)), [table.rows[name] for name in names])
    found = snapshot.interpod.scores(pod, rows)
    if found is None:
        return None
    return [{name: int(one[row]) for name, row in table.rows.items() if rows[row]} for one in found]


def test_hosts_are_judged_each_by_itself_whatever_they_call_themselves() -> None:
    snapshot = Snapshot.of([a_node(name, labels={HOST: "same"}) for name in ("a", "b")])
    snapshot.charge(a_peer("e"), "a")
    pod = a_peer(topologySpreadConstraints=[spread(HOST, soft=True)])
    assert marks(snapshot, pod) == [{"a": 0, "b": 100}, {"a": 0, "b": 0}]


NONE = dict.fromkeys(("a1", "a2", "b1", "b2", "bare"), 0)

SCORES = [
    pytest.param([(a_peer("e"), "a1")], a_peer(), None, id="nobody has a preference"),
    pytest.param(
        [(a_peer("e"), "a1")],
        a_peer(affinity=rather("podAffinity", 10, term(ZONE))),
        [NONE, NONE | {"a1": 100, "a2": 100}],
        id="where it would rather be",
    ),
    pytest.param(
        [(a_peer("e"), "a1"), (a_peer("f"), "a1"), (a_peer("g"), "b1")],
        a_peer(affinity=rather("podAntiAffinity", 10, term(ZONE))),
        [NONE, {"a1": 0, "a2": 0, "b1": 50, "b2": 50, "bare": 100}],
        id="where it would rather not be",
    ),
    pytest.param(
        [(a_peer("e", "y", affinity=rather("podAffinity", 10, term(ZONE))), "b1")],
        a_peer(),
        [NONE, NONE | {"b1": 100, "b2": 100}],
        id="where others would rather have it",
    ),
    pytest.param(
        [
            (a_peer("e", "y", affinity=near(term(ZONE))), "b1"),
            (a_peer("f", "y", affinity=rather("podAntiAffinity", 1, term(HOST))), "b1"),
        ],
        a_peer(),
        [NONE, NONE | {"b2": 100}],
        id="a required term of others weighs one",
    ),
    pytest.param(
        [(a_peer("e"), "a1"), (a_peer("f", deleted=True), "b1")],
        a_peer(topologySpreadConstraints=[spread(ZONE, soft=True)]),
        [{"a1": 0, "a2": 0, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="over zones, terminating pods not counted, nodes without a zone last",
    ),
    pytest.param(
        [(a_peer("e"), "a1"), (a_peer("f"), "a2"), (a_peer("g"), "a2")],
        a_peer(topologySpreadConstraints=[spread(HOST, soft=True, maxSkew=2)]),
        [{"a1": 60, "a2": 20, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="over hosts, the skew softens it",
    ),
    pytest.param(
        [],
        a_peer(topologySpreadConstraints=[spread(ZONE, soft=True)]),
        [{"a1": 100, "a2": 100, "b1": 100, "b2": 100, "bare": 0}, NONE],
        id="nobody there yet",
    ),
    pytest.param(
        [(a_peer("e"), "a1")],
        a_peer(topologySpreadConstraints=[spread(ZONE)]),
        None,
        id="a hard constraint does not score",
    ),
]


@pytest.mark.parametrize(("there", "pod", "want"), SCORES)
def test_scores(there: list[tuple[Pod, str]], pod: Pod, want: list[dict[str, int]] | None) -> None:
    assert marks(picture(*there), pod) == want


# --- the spreading that nobody wrote down ---


def owned(name: str, kind: str = "ReplicaSet") -> Pod:
    raw = a_peer(name)
    return Pod(raw.key, raw.uid, raw.spec, labels=raw.labels, owner=OwnerRef(kind, "web", "u"))


def serving(kind: str, name: str = "web", **spec: Any) -> WorkloadSelector:
    return WorkloadSelector.read(
        kind, {"metadata": {"namespace": "ns", "name": name}, "spec": spec}
    )


def told(snapshot: Snapshot, kind: str) -> InterPod:
    plain = kind in ("Service", "ReplicationController")
    snapshot.interpod.defaults.put(serving(kind, selector={"app": "x"} if plain else X))
    return snapshot.interpod


@pytest.mark.parametrize("kind", ["Service", "ReplicationController", "ReplicaSet", "StatefulSet"])
def test_pods_that_serve_together_are_spread_over_hosts_and_zones(kind: str) -> None:
    snapshot = picture((a_peer("e"), "a1"))
    told(snapshot, kind)
    found = marks(snapshot, owned("p", "Job" if kind == "Service" else kind))
    # Hosts: ln 7 a pod and 2 for the skew; zones: ln 5 and 4, "no zone" being one of three.
    assert found == [{"a1": 0, "a2": 20, "b1": 40, "b2": 40, "bare": 100}, NONE]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_peer("p", "y"), id="not selected by the service"),
        pytest.param(a_peer("p", ns="other"), id="in another namespace"),
        pytest.param(
            a_peer("p", topologySpreadConstraints=[spread(ZONE)]), id="with constraints of its own"
        ),
    ],
)
def test_other_pods_are_not_spread_by_default(pod: Pod) -> None:
    snapshot = picture((a_peer("e"), "a1"))
    told(snapshot, "Service")
    assert marks(snapshot, pod) is None


def test_what_is_told_of_services_can_be_taken_back() -> None:
    snapshot = picture((a_peer("e"), "a1"))
    peers = told(snapshot, "Service")
    before = marks(snapshot, a_peer("p"))
    peers.defaults.put(serving("Service", "headless"))
    peers.defaults.drop(serving("Service"))
    assert (before is None, marks(snapshot, a_peer("p"))) == (False, None)
