"""Filters of inter-pod affinity and topology spread, with their reasons."""

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import units
from scheduler.plan import planner
from tests.unit.scheduler.builders import a_node
from tests.unit.scheduler.plugins.interpod.builders import (
    ANTI_AFFINITY_BROKEN,
    EXISTING_ANTI_AFFINITY,
    HOST,
    NO_AFFINITY,
    SKEWED,
    UNLABELLED,
    ZONE,
    Y,
    a_labelled_pod,
    a_snapshot,
    affinity,
    anti_affinity,
    everywhere,
    preferred,
    reasons,
    spread,
    term,
)

AFFINITY = [
    pytest.param([], a_labelled_pod(), {}, id="no constraint"),
    pytest.param(
        [(a_labelled_pod("e"), "a1")],
        a_labelled_pod(affinity=affinity(term(ZONE))),
        everywhere(NO_AFFINITY, "a1", "a2"),
        id="in the zone of a pod that matches",
    ),
    pytest.param(
        [(a_labelled_pod("e", deleted=True), "a1")],
        a_labelled_pod(affinity=affinity(term(HOST))),
        everywhere(NO_AFFINITY, "a1"),
        id="a terminating pod is still company",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "bare")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE))),
        everywhere(NO_AFFINITY),
        id="a pod on a node without the key is in no domain",
    ),
    pytest.param(
        [],
        a_labelled_pod("p", "x", affinity=affinity(term(ZONE))),
        {"bare": NO_AFFINITY},
        id="the first pod of a group needs only a node with the key",
    ),
    pytest.param(
        [],
        a_labelled_pod("p", "y", affinity=affinity(term(ZONE))),
        everywhere(NO_AFFINITY),
        id="a pod that does not match its own terms is not the first",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "bare")],
        a_labelled_pod("p", "x", affinity=affinity(term(ZONE))),
        {"bare": NO_AFFINITY},
        id="a pod that is in no domain does not end the exception of the first",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1"), (a_labelled_pod("f", "y"), "a1")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE), term(HOST, Y))),
        everywhere(NO_AFFINITY),
        id="one pod must match all terms, not one pod each",
    ),
    pytest.param(
        [(a_labelled_pod("e", labels={"app": "x", "tier": "t"}), "a1")],
        a_labelled_pod(
            "p",
            "",
            affinity=affinity(term(ZONE), term(HOST, {"matchLabels": {"app": "x", "tier": "t"}})),
        ),
        everywhere(NO_AFFINITY, "a1"),
        id="every term in its own domain",
    ),
    pytest.param(
        [(a_labelled_pod("e", ns="other"), "a1")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE))),
        everywhere(NO_AFFINITY),
        id="pods of other namespaces are not meant",
    ),
    pytest.param(
        [(a_labelled_pod("e", ns="other"), "a1")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE, namespaces=["other"]))),
        everywhere(NO_AFFINITY, "a1", "a2"),
        id="unless they are named",
    ),
    pytest.param(
        [(a_labelled_pod("e", ns="other"), "a1")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE, namespaceSelector={}))),
        everywhere(NO_AFFINITY, "a1", "a2"),
        id="or all namespaces are meant",
    ),
    pytest.param(
        [(a_labelled_pod("e", ns="other"), "a1"), (a_labelled_pod("f"), "b1")],
        a_labelled_pod(
            "p",
            "",
            affinity=affinity(term(ZONE, namespaceSelector={"matchLabels": {"team": "blue"}})),
        ),
        everywhere(NO_AFFINITY, "a1", "a2"),
        id="or those with a label, and then not its own",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1")],
        a_labelled_pod("p", "", affinity=affinity(term(ZONE, None))),
        everywhere(NO_AFFINITY),
        id="an absent selector selects nothing",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1")],
        a_labelled_pod("p", affinity=anti_affinity(term(HOST))),
        {"a1": ANTI_AFFINITY_BROKEN},
        id="not on the host of a pod that matches",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "bare")],
        a_labelled_pod("p", affinity=anti_affinity(term(HOST))),
        {},
        id="a node without the key breaks no anti-affinity",
    ),
    pytest.param(
        [(a_labelled_pod("e"), "a1"), (a_labelled_pod("f", "y"), "b1")],
        a_labelled_pod("p", affinity=anti_affinity(term(ZONE), term(HOST, Y))),
        {"a1": ANTI_AFFINITY_BROKEN, "a2": ANTI_AFFINITY_BROKEN, "b1": ANTI_AFFINITY_BROKEN},
        id="each term of anti-affinity counts",
    ),
    pytest.param(
        [(a_labelled_pod("e", "y", affinity=anti_affinity(term(ZONE))), "a1")],
        a_labelled_pod("p"),
        {"a1": EXISTING_ANTI_AFFINITY, "a2": EXISTING_ANTI_AFFINITY},
        id="an existing pod keeps others out of its zone",
    ),
    pytest.param(
        [(a_labelled_pod("e", "y", affinity=anti_affinity(term(ZONE)), ns="other"), "a1")],
        a_labelled_pod("p"),
        {},
        id="but not those of namespaces it does not mean",
    ),
    pytest.param(
        [
            (
                a_labelled_pod(
                    "e",
                    "y",
                    ns="other",
                    affinity=anti_affinity(
                        term(ZONE, namespaceSelector={"matchLabels": {"team": "red"}})
                    ),
                ),
                "a1",
            )
        ],
        a_labelled_pod("p"),
        {"a1": EXISTING_ANTI_AFFINITY, "a2": EXISTING_ANTI_AFFINITY},
        id="and those of namespaces it selects",
    ),
    pytest.param(
        [
            (a_labelled_pod("e", affinity=anti_affinity(term(HOST))), "a1"),
            (a_labelled_pod("f"), "b1"),
        ],
        a_labelled_pod("p", affinity=affinity(term(ZONE)) | anti_affinity(term(HOST))),
        {"bare": NO_AFFINITY, "a1": ANTI_AFFINITY_BROKEN, "b1": ANTI_AFFINITY_BROKEN},
        id="affinity speaks before anti-affinity, and that before the others'",
    ),
    pytest.param(
        [(a_labelled_pod("e", affinity=preferred("podAntiAffinity", 100, term(HOST))), "a1")],
        a_labelled_pod("p", affinity=preferred("podAntiAffinity", 100, term(HOST))),
        {},
        id="preferences reject no node",
    ),
]


@pytest.mark.parametrize(("there", "pod", "want"), AFFINITY)
def test_affinity(there: list[tuple[Pod, str]], pod: Pod, want: dict[str, str]) -> None:
    assert reasons(a_snapshot(*there), pod) == want


ON_A = [(a_labelled_pod("e"), "a1")]

SPREAD = [
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)]),
        {"a1": SKEWED, "a2": SKEWED, "bare": UNLABELLED},
        id="the fuller zone is rejected",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, maxSkew=2)]),
        {"bare": UNLABELLED},
        id="within the skew",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod("p", "y", topologySpreadConstraints=[spread(ZONE)]),
        {"bare": UNLABELLED},
        id="a pod that is not selected adds nothing",
    ),
    pytest.param(
        [(a_labelled_pod("e", deleted=True), "a1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)]),
        {"bare": UNLABELLED},
        id="a terminating pod is not counted",
    ),
    pytest.param(
        [(a_labelled_pod("e", ns="other"), "a1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)]),
        {"bare": UNLABELLED},
        id="nor one of another namespace",
    ),
    pytest.param(
        [*ON_A, (a_labelled_pod("f"), "b1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, minDomains=3)]),
        {"a1": SKEWED, "a2": SKEWED, "b1": SKEWED, "b2": SKEWED, "bare": UNLABELLED},
        id="too few domains: the emptiest counts as empty",
    ),
    pytest.param(
        [*ON_A, (a_labelled_pod("f"), "b1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, minDomains=2)]),
        {"bare": UNLABELLED},
        id="as many domains as wanted",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)], nodeSelector={"disk": "ssd"}),
        {"bare": UNLABELLED},
        id="zones that the node selector rules out are no domains",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(
            topologySpreadConstraints=[spread(ZONE, nodeAffinityPolicy="Ignore")],
            nodeSelector={"disk": "ssd"},
        ),
        {"a1": SKEWED, "a2": SKEWED, "bare": UNLABELLED},
        id="unless the policy ignores the node selector",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE), spread("disk")]),
        {"b1": UNLABELLED, "b2": UNLABELLED, "bare": UNLABELLED},
        id="zones whose nodes lack another constraint's key are no domains",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, {})]),
        {"bare": UNLABELLED},
        id="a selector of everything counts no pods",
    ),
    pytest.param(
        [(a_labelled_pod("e", labels={"app": "x", "version": "1"}), "a1")],
        a_labelled_pod(
            labels={"app": "x", "version": "2"},
            topologySpreadConstraints=[spread(ZONE, matchLabelKeys=["version"])],
        ),
        {"bare": UNLABELLED},
        id="another version is another group",
    ),
    pytest.param(
        ON_A,
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE, soft=True)]),
        {},
        id="a soft constraint rejects no node",
    ),
    pytest.param(
        [*ON_A, (a_labelled_pod("f", "y", affinity=anti_affinity(term(HOST))), "b1")],
        a_labelled_pod(topologySpreadConstraints=[spread(ZONE)]),
        {"a1": SKEWED, "a2": SKEWED, "bare": UNLABELLED, "b1": EXISTING_ANTI_AFFINITY},
        id="spread speaks before affinity",
    ),
]


@pytest.mark.parametrize(("there", "pod", "want"), SPREAD)
def test_spread(there: list[tuple[Pod, str]], pod: Pod, want: dict[str, str]) -> None:
    assert reasons(a_snapshot(*there), pod) == want


def test_honored_taints_exclude_a_zone_from_the_count() -> None:
    there = [
        a_node("a", labels={ZONE: "a"}),
        a_node("b", labels={ZONE: "b"}, taints=[{"key": "only", "effect": "NoSchedule"}]),
    ]
    snapshot = Snapshot.of(there, ON_A[:0])
    snapshot.charge(a_labelled_pod("e"), "a")
    ignored = a_labelled_pod(topologySpreadConstraints=[spread(ZONE)])
    honoured = a_labelled_pod(topologySpreadConstraints=[spread(ZONE, nodeTaintsPolicy="Honor")])
    assert (reasons(snapshot, ignored), reasons(snapshot, honoured)) == ({"a": SKEWED}, {})


def test_the_text_is_that_of_kube_scheduler() -> None:
    pod = a_labelled_pod(
        topologySpreadConstraints=[spread(ZONE)], affinity=anti_affinity(term(ZONE, Y))
    )
    snapshot = a_snapshot(*ON_A, (a_labelled_pod("f", "y"), "b2"))
    found = planner.plan(units([pod])[0], snapshot)
    assert isinstance(found, NoFit)
    assert found.text == (
        "0/5 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing "
        "required label), 2 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match "
        "pod topology spread constraints."
    )
