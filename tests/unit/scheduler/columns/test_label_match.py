"""Selectors: of one object, and the same for all nodes at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.label_match import LabelIndex
from scheduler.model.label_selector import (
    LabelRequirement,
    NodeTerms,
    any_selects,
    read_node_terms,
    selects,
)
from scheduler.model.label_selector import read as read_selector
from tests.unit.scheduler.builders import a_node

LABELS = {"zone": "z1", "size": "10", "word": "large"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "want"),
    [
        pytest.param("zone", "In", ("z1", "z2"), True, id="one of"),
        pytest.param("zone", "In", ("z2",), False, id="none of"),
        pytest.param("none", "In", ("z1",), False, id="one of, without the label"),
        pytest.param("zone", "NotIn", ("z1",), False, id="not one of"),
        pytest.param("none", "NotIn", ("z1",), True, id="not one of, without the label"),
        pytest.param("zone", "Exists", (), True, id="there"),
        pytest.param("none", "Exists", (), False, id="not there"),
        pytest.param("none", "DoesNotExist", (), True, id="wanted away"),
        pytest.param("zone", "DoesNotExist", (), False, id="wanted away and there"),
        pytest.param("size", "Gt", ("9",), True, id="more than"),
        pytest.param("size", "Gt", ("10",), False, id="not more than as much"),
        pytest.param("size", "Lt", ("11",), True, id="less than"),
        pytest.param("word", "Lt", ("11",), False, id="no number"),
        pytest.param("none", "Lt", ("11",), False, id="less than, without the label"),
        pytest.param("zone", "Unheard", ("z1",), False, id="an operator of the future"),
    ],
)
def test_a_requirement(key: str, operator: str, values: tuple[str, ...], want: bool) -> None:
    assert LabelRequirement(key, operator, values).holds(LABELS) is want


def test_an_empty_selector_selects_everything_and_an_empty_term_nothing() -> None:
    assert selects(read_selector({}) or (), LABELS) is True
    assert read_selector(None) is None
    assert any_selects(read_node_terms({"nodeSelectorTerms": [{}]}) or (), LABELS) is False
    assert any_selects(read_node_terms({"nodeSelectorTerms": []}) or (), LABELS) is False
    assert read_node_terms(None) is None


RULES = st.builds(
    LabelRequirement,
    st.sampled_from(["zone", "size", "none"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Unheard"]),
    st.lists(st.sampled_from(["z1", "z2", "5", "10"]), max_size=2).map(tuple),
)
TERMS = st.lists(st.lists(RULES, max_size=2).map(tuple), max_size=3).map(tuple)
SOME_LABELS = st.dictionaries(
    st.sampled_from(["zone", "size"]), st.sampled_from(["z1", "z2", "5", "7", "10", ""])
)


@settings(max_examples=80, deadline=None)
@given(st.lists(SOME_LABELS, max_size=4), TERMS)
def test_matching_rows_agree_with_each_node(nodes: list[dict[str, str]], terms: NodeTerms) -> None:
    snapshot = Snapshot.of(a_node(f"n{i}", labels=labels) for i, labels in enumerate(nodes))
    rows = LabelIndex(snapshot.table)
    want = [i for i, labels in enumerate(nodes) if any_selects(terms, labels)]
    for _ in range(2):
        assert rows.rows_of(terms).tolist() == want
    if nodes:
        snapshot.put_node(a_node("n0", labels={"zone": "z2", "size": "7"}))
        changed = any_selects(terms, {"zone": "z2", "size": "7"})
        assert (0 in rows.rows_of(terms)) is changed
