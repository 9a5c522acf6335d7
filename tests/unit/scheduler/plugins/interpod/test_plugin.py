"""The inter-pod plugin: gangs inside a plan, signatures, state."""

import pytest

from scheduler.model.fields import pairs
from scheduler.model.plan import NoFit, Placed
from scheduler.model.unit import units
from scheduler.plan import planner
from scheduler.plugins.interpod import existing_terms, pod_counts
from tests.unit.scheduler.builders import a_gang, a_node, a_pod
from tests.unit.scheduler.plugins.interpod.builders import (
    ANTI_AFFINITY_BROKEN,
    EXISTING_ANTI_AFFINITY,
    HOST,
    ZONE,
    a_labelled_pod,
    a_snapshot,
    affinity,
    anti_affinity,
    nodes,
    reasons,
    spread,
    term,
)

NOT_X = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}


# --- gangs ---


def hosts_of(found: object) -> list[str]:
    assert isinstance(found, Placed), found
    return sorted(one.node for one in found.placements)


def test_anti_affinity_between_members_of_a_gang() -> None:
    gang = a_gang(4, labels={"app": "x"}, affinity=anti_affinity(term(HOST)))
    found = planner.plan(units(gang)[0], a_snapshot())
    assert len(set(hosts_of(found))) == 4


def test_affinity_between_members_of_a_gang() -> None:
    gang = a_gang(6, labels={"app": "x"}, affinity=affinity(term(ZONE)))
    assert {host[0] for host in hosts_of(planner.plan(units(gang)[0], a_snapshot()))} in (
        {"a"},
        {"b"},
    )


def test_members_of_a_gang_are_spread_over_zones() -> None:
    gang = a_gang(4, labels={"app": "x"}, topologySpreadConstraints=[spread(ZONE)])
    hosts = hosts_of(planner.plan(units(gang)[0], a_snapshot()))
    assert [host[0] for host in hosts] == ["a", "a", "b", "b"]


def test_a_gang_that_its_own_constraints_forbid_does_not_fit() -> None:
    gang = a_gang(
        3, labels={"app": "x"}, affinity=anti_affinity(term(ZONE)), nodeSelector={"disk": "ssd"}
    )
    found = planner.plan(units(gang)[0], a_snapshot())
    assert isinstance(found, NoFit)
    assert "2 node(s) didn't match pod anti-affinity rules" in found.text


# --- signatures and state ---


def test_labels_that_no_selector_names_do_not_change_the_signature() -> None:
    snapshot = a_snapshot((a_labelled_pod("e"), "a1"))
    constraints = anti_affinity(term(HOST))
    one, other, stranger = (
        a_pod(name, labels={"app": app, "index": name}, affinity=constraints)
        for name, app in (("0", "x"), ("1", "x"), ("2", "y"))
    )
    signatures = [snapshot.interpod.signature(pod) for pod in (one, other, stranger)]
    assert signatures[0] == signatures[1] != signatures[2]


def test_a_selected_pod_and_an_excluded_pod_of_one_spec_have_different_signatures() -> None:
    """The first count and the first existing term have the same number, but not the same sign."""
    y_excluded = anti_affinity(term(HOST, {"matchLabels": {"app": "y"}}))
    snapshot = a_snapshot((a_labelled_pod("e", "z", affinity=y_excluded), "a1"))
    snapshot.interpod.signature(a_labelled_pod("o", "o", affinity=anti_affinity(term(HOST))))
    selected, excluded = a_labelled_pod("p", "x"), a_labelled_pod("q", "y")
    signatures = [snapshot.interpod.signature(pod) for pod in (selected, excluded)]
    assert selected.spec == excluded.spec
    assert signatures == [(1,), (-1,)]


def test_a_pod_depends_on_pods_while_existing_anti_affinity_excludes_it() -> None:
    keeper = a_labelled_pod("e", "y", affinity=anti_affinity(term(ZONE)))
    snapshot = a_snapshot((keeper, "a1"))
    before = (
        snapshot.interpod.depends_on_pods(a_labelled_pod()),
        snapshot.interpod.depends_on_pods(a_labelled_pod("p", "z")),
    )
    snapshot.release(keeper, "a1")
    assert (*before, snapshot.interpod.depends_on_pods(a_labelled_pod())) == (True, False, False)


def test_the_state_of_a_deleted_node_is_empty_when_it_returns() -> None:
    snapshot = a_snapshot((a_labelled_pod("e", affinity=anti_affinity(term(HOST))), "a1"))
    pod = a_labelled_pod("p", affinity=anti_affinity(term(HOST)))
    before = reasons(snapshot, pod)
    snapshot.drop_node("a1")
    snapshot.put_node(nodes()[0])
    assert (before, reasons(snapshot, pod)) == ({"a1": ANTI_AFFINITY_BROKEN}, {})


def test_a_namespace_that_is_labelled_anew_is_selected_anew() -> None:
    snapshot = a_snapshot((a_labelled_pod("e", ns="other"), "a1"))
    pod = a_labelled_pod(
        "p", affinity=anti_affinity(term(HOST, namespaceSelector={"matchLabels": {"team": "x"}}))
    )
    before = reasons(snapshot, pod)
    snapshot.interpod.put_namespace("other", pairs({"team": "x"}))
    meanwhile = reasons(snapshot, pod)
    snapshot.interpod.drop_namespace("other")
    assert (before, meanwhile, reasons(snapshot, pod)) == ({}, {"a1": ANTI_AFFINITY_BROKEN}, {})


def test_more_selectors_than_the_cache_holds_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there are too many columns, kinds or terms, the unused ones are dropped."""
    monkeypatch.setattr(pod_counts, "_FEWEST", 2)
    monkeypatch.setattr(pod_counts, "_BYTES", 0)
    monkeypatch.setattr(pod_counts, "_IDLE", 1)
    monkeypatch.setattr(existing_terms, "_IDLE", 1)
    snapshot = a_snapshot()
    apps = [f"app-{i}" for i in range(7)]
    pods = [
        a_labelled_pod(
            app, app, cpu="1m", affinity=anti_affinity(term(HOST, {"matchLabels": {"app": app}}))
        )
        for app in apps
    ]
    for pod in pods:
        snapshot.charge(pod, "a1")
    with snapshot.trial():
        for pod in pods:
            snapshot.place(pod, "b1")
        inside = [sorted(reasons(snapshot, pod)) for pod in pods]
    after = [sorted(reasons(snapshot, pod)) for pod in pods]
    assert (inside, after) == ([["a1", "b1"]] * 7, [["a1"]] * 7)


def test_a_count_opened_before_or_after_a_pod_is_the_same() -> None:
    """Also by a selector of several values, and on rows that were added after it was opened."""
    either = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "x"]}]}
    pod = a_labelled_pod("p", affinity=anti_affinity(term(HOST, either)))
    snapshot = a_snapshot((a_labelled_pod("e"), "a1"))
    before = reasons(snapshot, pod)
    for i in range(200):
        snapshot.put_node(a_node(f"c{i}", labels={HOST: f"c{i}"}))
    for node in ("b1", "c150"):
        snapshot.charge(a_labelled_pod(f"on-{node}"), node)
    assert (sorted(before), sorted(reasons(snapshot, pod))) == (["a1"], ["a1", "b1", "c150"])


def test_new_existing_terms_apply_to_a_known_kind() -> None:
    snapshot = a_snapshot(
        (a_labelled_pod("e", "y", affinity=anti_affinity(term(HOST, NOT_X))), "a1")
    )
    before = reasons(snapshot, a_labelled_pod())
    snapshot.charge(a_labelled_pod("f", "y", affinity=anti_affinity(term(HOST))), "b1")
    snapshot.charge(a_labelled_pod("g", "y", affinity=anti_affinity(term(HOST, NOT_X))), "b2")
    found = reasons(snapshot, a_labelled_pod()), reasons(snapshot, a_labelled_pod("p", ""))
    assert (before, *found) == (
        {},
        {"b1": EXISTING_ANTI_AFFINITY},
        {"a1": EXISTING_ANTI_AFFINITY, "b2": EXISTING_ANTI_AFFINITY},
    )


def test_existing_terms_follow_the_labels_of_namespaces() -> None:
    constraints = anti_affinity(term(HOST, namespaceSelector={"matchLabels": {"team": "new"}}))
    snapshot = a_snapshot((a_labelled_pod("e", "y", affinity=constraints), "a1"))
    before = reasons(snapshot, a_labelled_pod())
    snapshot.interpod.put_namespace("ns", pairs({"team": "new"}))
    assert (before, reasons(snapshot, a_labelled_pod())) == ({}, {"a1": EXISTING_ANTI_AFFINITY})


def test_feeds_of_namespaces_and_workloads() -> None:
    snapshot = a_snapshot((a_labelled_pod("e", ns="far"), "a1"))
    watched = list(snapshot.interpod.feeds())
    changes = []
    for feed in watched:
        about = {"name": "far", "namespace": "far", "labels": {"team": "new"}}
        spec = {"selector": {"app": "x", "matchLabels": {"app": "x"}}}
        found = feed.read({"metadata": about, "spec": spec})
        changes.append([feed.put(found), feed.put(found), feed.drop(found), feed.drop(found)])
    assert [feed.resource.kind for feed in watched] == [
        "Namespace",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
    ]
    assert changes == [[True, False, True, False]] * 5
