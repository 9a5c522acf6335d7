"""Unschedulable nodes, taints, node selectors and node affinity: what is refused, in which words."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins import node_affinity
from tests.unit.scheduler.builders import a_node, a_pod

Json = dict[str, Any]

UNMATCHED = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"
CORDONED = "node(s) were unschedulable"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"


def required(*terms: Json) -> Json:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"affinity": {"nodeAffinity": required}}


def matches(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def names(operator: str, *values: str) -> Json:
    fields = [{"key": "metadata.name", "operator": operator, "values": [v]} for v in values]
    return {"matchFields": fields}


def taint(key: str = "k", value: str = "v", effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


def answer(found: list[Node], pod: Pod) -> tuple[list[str], str]:
    """The nodes that take the pod, and what the filters report where none does."""
    snapshot, memo = Snapshot.of(found), Memo()
    rows = filters.feasible(snapshot, pod, memo)
    open_to = [snapshot.table.names[row] for row in np.flatnonzero(rows)]
    text = filters.explain(snapshot, pod, memo).text
    return open_to, "" if open_to else text.removeprefix(f"0/{len(found)} nodes are available: ")


CLUSTER = [
    a_node("a", labels={"disk": "ssd", "cores": "8"}),
    a_node("b", labels={"disk": "hdd", "cores": "16"}),
    a_node("c", labels={"cores": "many"}),
    a_node("d"),
]


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, "abcd", id="nothing required"),
        pytest.param({"nodeSelector": {"disk": "ssd"}}, "a", id="a selector"),
        pytest.param({"nodeSelector": {"disk": "ssd", "cores": "16"}}, "", id="all of a selector"),
        pytest.param(required(matches("disk", "In", "ssd", "hdd")), "ab", id="In"),
        pytest.param(required(matches("disk", "NotIn", "ssd")), "bcd", id="NotIn holds without it"),
        pytest.param(required(matches("disk", "Exists")), "ab", id="Exists"),
        pytest.param(required(matches("disk", "DoesNotExist")), "cd", id="DoesNotExist"),
        pytest.param(required(matches("cores", "Gt", "8")), "b", id="Gt, and never for a word"),
        pytest.param(
            required(matches("cores", "Lt", "16")), "a", id="Lt, and never without the label"
        ),
        pytest.param(required(matches("cores", "Gt", "few")), "", id="Gt of a word holds nowhere"),
        pytest.param(required(matches("cores", "Gt", "-1")), "", id="a label's value has no sign"),
        pytest.param(required(matches("cores", "Lt", str(2**63))), "", id="no number of 64 bits"),
        pytest.param(required(matches("disk", "NotIn", "?")), "", id="no value of a label"),
        pytest.param(required(matches("disk", "In")), "", id="In without values holds nowhere"),
        pytest.param(
            required(matches("disk", "Exists", "x")), "", id="Exists with values holds nowhere"
        ),
        pytest.param(
            required(matches("disk", "Near", "x")), "", id="an unknown operator holds nowhere"
        ),
        pytest.param(required(matches("nowhere", "In", "x")), "", id="a label that no node has"),
        pytest.param(required(matches("disk", "In", "nvme")), "", id="a value that no node has"),
        pytest.param(
            required(matches("disk", "In", "ssd"), matches("cores", "Gt", "8")),
            "ab",
            id="one term of two",
        ),
        pytest.param(
            required(
                {
                    "matchExpressions": [
                        {"key": "disk", "operator": "Exists"},
                        {"key": "cores", "operator": "Lt", "values": ["16"]},
                    ]
                }
            ),
            "a",
            id="all of a term",
        ),
        pytest.param(required({}), "", id="an empty term holds nowhere"),
        pytest.param(
            required({}, matches("disk", "Exists")), "ab", id="an empty term does no harm"
        ),
        pytest.param(required(), "", id="required of no term"),
        pytest.param(required(names("NotIn", "a")), "bcd", id="any name but one"),
        pytest.param(
            {"nodeSelector": {"disk": "ssd"}, **required(matches("cores", "Gt", "8"))},
            "",
            id="selector and affinity both hold",
        ),
    ],
)
def test_node_affinity(spec: Json, want: str) -> None:
    text = "" if want else f"4 {UNMATCHED}."
    assert answer(CLUSTER, a_pod(**spec)) == (list(want), text)


@pytest.mark.parametrize(
    ("spec", "want", "text"),
    [
        pytest.param(required(names("In", "a")), "a", "", id="one node"),
        pytest.param(required(names("In", "a"), names("In", "d")), "ad", "", id="one of two"),
        pytest.param(
            {**required(names("In", "a")), "cpu": "9"},
            "",
            f"1 Insufficient cpu, 3 {NOT_NAMED}.",
            id="no further filter runs on the other nodes",
        ),
        pytest.param(
            required(names("In", "x")), "", f"4 {NOT_NAMED}.", id="a node that does not exist"
        ),
        pytest.param(
            required(names("In", "a", "b")),
            "",
            "pod affinity terms conflict.",
            id="two names at once",
        ),
        pytest.param(
            required(names("In", "a", "b"), names("In", "c")), "c", "", id="a conflict in one term"
        ),
        pytest.param(
            required({**names("In", "a"), **matches("disk", "In", "hdd")}),
            "",
            f"1 {UNMATCHED}, 3 {NOT_NAMED}.",
            id="a named node that does not match",
        ),
        pytest.param(
            required(names("In", "a"), matches("disk", "In", "tape")),
            "a",
            "",
            id="a term without names opens all nodes",
        ),
        pytest.param(
            {**required(names("In", "a"), matches("disk", "In", "tape")), "cpu": "9"},
            "",
            f"1 Insufficient cpu, 3 {UNMATCHED}.",
            id="a term without names: the others are judged",
        ),
        pytest.param(
            required({**names("In", "a"), **matches("cores", "Gt", "few")}),
            "",
            f"1 {UNMATCHED}, 3 {NOT_NAMED}.",
            id="an unreadable term still names its node",
        ),
    ],
)
def test_nodes_named_one_by_one(spec: Json, want: str, text: str) -> None:
    assert answer(CLUSTER, a_pod(**spec)) == (list(want), text)


@pytest.mark.parametrize(
    ("node", "tolerations", "text"),
    [
        pytest.param({"taints": [taint()]}, [], TAINTED, id="not tolerated"),
        pytest.param({"taints": [taint(effect="NoExecute")]}, [], TAINTED, id="NoExecute"),
        pytest.param(
            {"taints": [taint(effect="PreferNoSchedule")]}, [], "", id="only a preference"
        ),
        pytest.param(
            {"taints": [taint()]}, [{"operator": "Exists"}], "", id="everything tolerated"
        ),
        pytest.param(
            {"taints": [taint()]}, [{"key": "k", "value": "v"}], "", id="Equal by default"
        ),
        pytest.param(
            {"taints": [taint()]}, [{"key": "k", "value": "w"}], TAINTED, id="another value"
        ),
        pytest.param(
            {"taints": [taint()]}, [{"key": "j", "operator": "Exists"}], TAINTED, id="another key"
        ),
        pytest.param(
            {"taints": [taint()]},
            [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            TAINTED,
            id="another effect",
        ),
        pytest.param(
            {"taints": [taint(), taint("j")]},
            [{"key": "k", "operator": "Exists"}],
            TAINTED,
            id="one of two",
        ),
        pytest.param(
            {"taints": [taint(value="7")]},
            [{"key": "k", "operator": "Gt", "value": "5"}],
            "",
            id="Gt: the taint is above",
        ),
        pytest.param(
            {"taints": [taint(value="5")]},
            [{"key": "k", "operator": "Gt", "value": "5"}],
            TAINTED,
            id="Gt: the same is not above",
        ),
        pytest.param(
            {"taints": [taint(value="-7")]},
            [{"key": "k", "operator": "Lt", "value": "5"}],
            "",
            id="Lt: below zero",
        ),
        pytest.param(
            {"taints": [taint(value="07")]},
            [{"key": "k", "operator": "Gt", "value": "5"}],
            TAINTED,
            id="a leading zero is no number",
        ),
        pytest.param(
            {"taints": [taint(value="7")]},
            [{"key": "k", "operator": "Gt", "value": "five"}],
            TAINTED,
            id="a word is no number",
        ),
        pytest.param(
            {"taints": [taint(value="9" * 30)]},
            [{"key": "k", "operator": "Gt", "value": "5"}],
            TAINTED,
            id="no number of 64 bits either",
        ),
        pytest.param({"unschedulable": True}, [], CORDONED, id="cordoned"),
        pytest.param(
            {"unschedulable": True, "taints": [taint()]}, [], CORDONED, id="cordoned comes first"
        ),
        pytest.param(
            {"unschedulable": True},
            [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            "",
            id="a cordon that is tolerated",
        ),
        pytest.param(
            {"unschedulable": True},
            [{"key": "node.kubernetes.io/unschedulable", "effect": "NoExecute"}],
            CORDONED,
            id="a cordon is of effect NoSchedule",
        ),
    ],
)
def test_taints(node: Json, tolerations: list[Json], text: str) -> None:
    want = ([], f"1 {text}.") if text else (["n"], "")
    assert answer([a_node("n", **node)], a_pod(tolerations=tolerations)) == want


RESTARTS = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]
MOUNTS = [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        pytest.param(
            {"containers": [{"name": "c", "restartPolicyRules": RESTARTS}]},
            "RestartAllContainersOnContainerExits",
            id="a rule that restarts all containers",
        ),
        pytest.param(
            {"hostNetwork": True, "hostUsers": False},
            "UserNamespacesHostNetworkSupport",
            id="users of its own on the host's network",
        ),
        pytest.param(
            {"initContainers": [{"name": "c", "volumeMounts": MOUNTS}]},
            "VolumeBindMountOptions",
            id="options of a bind mount",
        ),
    ],
)
def test_features_that_a_kubelet_must_have_declared(spec: Json, wanted: str) -> None:
    def node(name: str, *features: str) -> Node:
        amounts = {"cpu": "4", "pods": "9"}
        status = {"declaredFeatures": list(features), "allocatable": amounts}
        return Node.read({"metadata": {"name": name}, "status": status})

    pod = a_pod(**spec)
    able, unable = node("able", "Another", wanted), [node("old"), node("other", "Another")]
    text = "2 node(s) didn't match Pod's required features."
    assert (answer([able, *unable], pod), answer(unable, pod)) == ((["able"], ""), ([], text))


def test_the_first_filter_that_rejects_gives_the_reason() -> None:
    found = [
        a_node("a", unschedulable=True, taints=[taint()]),
        a_node("b", taints=[taint()], labels={"disk": "ssd"}),
        a_node("c", cpu="1"),
        a_node("d", cpu="1", labels={"disk": "ssd"}),
    ]
    pod = a_pod(cpu="2", nodeSelector={"disk": "ssd"})
    text = f"1 Insufficient cpu, 1 {UNMATCHED}, 1 {TAINTED}, 1 {CORDONED}."
    assert answer(found, pod) == ([], text)


def test_a_changed_label_is_seen() -> None:
    snapshot, memo = Snapshot.of(CLUSTER), Memo()
    pod = a_pod(**required(matches("cores", "Gt", "8")))
    snapshot.put_node(a_node("d", labels={"cores": "9"}))
    snapshot.drop_node("b")
    rows = filters.feasible(snapshot, pod, memo)
    assert [snapshot.table.names[row] for row in np.flatnonzero(rows)] == ["d"]


# --- for every cluster and every requirement: as if each node had been read on its own ---

KEYS = st.sampled_from(["x", "y"])
VALUES = st.sampled_from(["1", "2", "10", "word", "-1", "?"])
LABELS = st.dictionaries(KEYS, st.sampled_from(["1", "2", "10", "word"]))
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
EXPRESSIONS = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    KEYS,
    OPERATORS,
    st.lists(VALUES, max_size=2),
)
FIELDS = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "elsewhere"]),
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
        "matchFields": st.lists(FIELDS, max_size=2),
    },
)


def holds(row: Json, name: str, labels: dict[str, str]) -> bool:
    """One requirement on one node, read plainly."""
    values: list[str] = row["values"]
    if row["key"] == "metadata.name":
        return bool((name in values) == (row["operator"] == "In"))
    if {"-1", "?"} & set(values):
        return False
    have = labels.get(row["key"])
    match row["operator"]:
        case "In":
            return have in values
        case "NotIn":
            return bool(values) and have not in values
        case "Exists":
            return have is not None and not values
        case "DoesNotExist":
            return have is None and not values
        case other:
            if len(values) != 1 or not values[0].isdigit() or have is None or not have.isdigit():
                return False
            return int(have) > int(values[0]) if other == "Gt" else int(have) < int(values[0])


def term_holds(term: Json, name: str, labels: dict[str, str]) -> bool:
    rows = [*term.get("matchExpressions", []), *term.get("matchFields", [])]
    return bool(rows) and all(holds(row, name, labels) for row in rows)


@settings(max_examples=100, deadline=None)
@given(st.lists(LABELS, min_size=1, max_size=4), LABELS, st.none() | st.lists(TERMS, max_size=3))
def test_all_rows_at_once_say_what_each_node_would(
    found: list[dict[str, str]], selector: dict[str, str], terms: list[Json] | None
) -> None:
    spec: Json = {"nodeSelector": selector} | (required(*terms) if terms is not None else {})
    cluster = [a_node(f"n{i}", labels=labels) for i, labels in enumerate(found)]
    table = Snapshot.of(cluster).table
    rows = node_affinity.matching(table, a_pod(**spec).spec)
    got = {name for name, row in table.rows.items() if rows[row]}
    want = {
        f"n{i}"
        for i, labels in enumerate(found)
        if selector.items() <= labels.items()
        and (terms is None or any(term_holds(term, f"n{i}", labels) for term in terms))
    }
    assert got == want
