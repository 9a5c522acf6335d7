"""What is kept of pods among pods: gangs inside a plan, likeness, books."""

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
    a_peer,
    apart,
    near,
    nodes,
    picture,
    reasons,
    spread,
    term,
)

NOT_X = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}


# --- gangs ---


def hosts_of(found: object) -> list[str]:
    assert isinstance(found, Placed), found
    return sorted(one.node for one in found.placements)


def test_members_of_a_gang_keep_each_other_apart() -> None:
    gang = a_gang(4, labels={"app": "x"}, affinity=apart(term(HOST)))
    found = planner.plan(units(gang)[0], picture())
    assert len(set(hosts_of(found))) == 4


def test_members_of_a_gang_gather_in_one_zone() -> None:
    gang = a_gang(6, labels={"app": "x"}, affinity=near(term(ZONE)))
    assert {host[0] for host in hosts_of(planner.plan(units(gang)[0], picture()))} in ({"a"}, {"b"})


def test_members_of_a_gang_are_spread_over_zones() -> None:
    gang = a_gang(4, labels={"app": "x"}, topologySpreadConstraints=[spread(ZONE)])
    hosts = hosts_of(planner.plan(units(gang)[0], picture()))
    assert [host[0] for host in hosts] == ["a", "a", "b", "b"]


def test_a_gang_that_its_own_rules_forbid_has_no_place() -> None:
    gang = a_gang(3, labels={"app": "x"}, affinity=apart(term(ZONE)), nodeSelector={"disk": "ssd"})
    found = planner.plan(units(gang)[0], picture())
    assert isinstance(found, NoFit)
    assert "2 node(s) didn't match pod anti-affinity rules" in found.text


# --- likeness ---


def test_pods_with_labels_of_their_own_are_alike_to_selectors_that_do_not_name_them() -> None:
    snapshot = picture((a_peer("e"), "a1"))
    wish = apart(term(HOST))
    one, other, stranger = (
        a_pod(name, labels={"app": app, "index": name}, affinity=wish)
        for name, app in (("0", "x"), ("1", "x"), ("2", "y"))
    )
    signatures = [snapshot.interpod.signature(pod) for pod in (one, other, stranger)]
    assert signatures[0] == signatures[1] != signatures[2]


def test_a_pod_is_concerned_while_somebody_keeps_it_out() -> None:
    keeper = a_peer("e", "y", affinity=apart(term(ZONE)))
    snapshot = picture((keeper, "a1"))
    before = (
        snapshot.interpod.depends_on_pods(a_peer()),
        snapshot.interpod.depends_on_pods(a_peer("p", "z")),
    )
    snapshot.release(keeper, "a1")
    assert (*before, snapshot.interpod.depends_on_pods(a_peer())) == (True, False, False)


def test_the_books_of_a_node_that_went_are_empty_when_it_returns() -> None:
    snapshot = picture((a_peer("e", affinity=apart(term(HOST))), "a1"))
    pod = a_peer("p", affinity=apart(term(HOST)))
    before = reasons(snapshot, pod)
    snapshot.drop_node("a1")
    snapshot.put_node(nodes()[0])
    assert (before, reasons(snapshot, pod)) == ({"a1": ANTI_AFFINITY_BROKEN}, {})


def test_a_namespace_that_is_labelled_anew_is_selected_anew() -> None:
    snapshot = picture((a_peer("e", ns="other"), "a1"))
    pod = a_peer("p", affinity=apart(term(HOST, namespaceSelector={"matchLabels": {"team": "x"}})))
    before = reasons(snapshot, pod)
    snapshot.interpod.put_namespace("other", pairs({"team": "x"}))
    meanwhile = reasons(snapshot, pod)
    snapshot.interpod.drop_namespace("other")
    assert (before, meanwhile, reasons(snapshot, pod)) == ({}, {"a1": ANTI_AFFINITY_BROKEN}, {})


def test_more_selectors_than_are_kept_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are forgotten when there are too many, and so are kinds and terms nobody has."""
    monkeypatch.setattr(pod_counts, "_FEWEST", 2)
    monkeypatch.setattr(pod_counts, "_BYTES", 0)
    monkeypatch.setattr(pod_counts, "_IDLE", 1)
    monkeypatch.setattr(existing_terms, "_IDLE", 1)
    snapshot = picture()
    apps = [f"app-{i}" for i in range(7)]
    pods = [
        a_peer(app, app, cpu="1m", affinity=apart(term(HOST, {"matchLabels": {"app": app}})))
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


def test_pods_that_come_after_a_selector_are_counted_like_those_before() -> None:
    """Also by a selector of several values, and on rows that did not exist when it was asked."""
    either = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "x"]}]}
    pod = a_peer("p", affinity=apart(term(HOST, either)))
    snapshot = picture((a_peer("e"), "a1"))
    before = reasons(snapshot, pod)
    for i in range(200):
        snapshot.put_node(a_node(f"c{i}", labels={HOST: f"c{i}"}))
    for node in ("b1", "c150"):
        snapshot.charge(a_peer(f"on-{node}"), node)
    assert (sorted(before), sorted(reasons(snapshot, pod))) == (["a1"], ["a1", "b1", "c150"])


def test_terms_that_come_after_a_pod_was_looked_at_concern_it() -> None:
    snapshot = picture((a_peer("e", "y", affinity=apart(term(HOST, NOT_X))), "a1"))
    before = reasons(snapshot, a_peer())
    snapshot.charge(a_peer("f", "y", affinity=apart(term(HOST))), "b1")
    snapshot.charge(a_peer("g", "y", affinity=apart(term(HOST, NOT_X))), "b2")
    found = reasons(snapshot, a_peer()), reasons(snapshot, a_peer("p", ""))
    assert (before, *found) == (
        {},
        {"b1": EXISTING_ANTI_AFFINITY},
        {"a1": EXISTING_ANTI_AFFINITY, "b2": EXISTING_ANTI_AFFINITY},
    )


def test_terms_of_others_follow_the_labels_of_namespaces() -> None:
    wish = apart(term(HOST, namespaceSelector={"matchLabels": {"team": "new"}}))
    snapshot = picture((a_peer("e", "y", affinity=wish), "a1"))
    before = reasons(snapshot, a_peer())
    snapshot.interpod.put_namespace("ns", pairs({"team": "new"}))
    assert (before, reasons(snapshot, a_peer())) == ({}, {"a1": EXISTING_ANTI_AFFINITY})


def test_namespaces_and_services_come_by_watches() -> None:
    snapshot = picture((a_peer("e", ns="far"), "a1"))
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
