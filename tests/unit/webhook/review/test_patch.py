from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.review.patch import Patch, apply

Json = dict[str, Any]


def changed(obj: Json, *changes: tuple[str, list[str | int], Any]) -> Patch:
    patch = Patch(obj)
    for how, path, value in changes:
        if how == "drop":
            patch.drop([str(step) for step in path])
        else:
            getattr(patch, how)(path, value)
    return patch


@pytest.mark.parametrize(
    ("obj", "change", "want"),
    [
        pytest.param(
            {},
            ("set", ["metadata", "labels", "a/b~c"], "1"),
            [
                {"op": "add", "path": "/metadata", "value": {}},
                {"op": "add", "path": "/metadata/labels", "value": {}},
                {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "1"},
            ],
            id="missing parents are made and keys escaped",
        ),
        pytest.param(
            {"metadata": {"labels": None}},
            ("set", ["metadata", "labels", "a"], "1"),
            [
                {"op": "replace", "path": "/metadata/labels", "value": {}},
                {"op": "add", "path": "/metadata/labels/a", "value": "1"},
            ],
            id="a null parent is replaced",
        ),
        pytest.param(
            {"a": "1"}, ("set", ["a"], "1"), [], id="what is there already changes nothing"
        ),
        pytest.param(
            {"a": None},
            ("set", ["a"], "1"),
            [{"op": "replace", "path": "/a", "value": "1"}],
            id="a null value",
        ),
        pytest.param(
            {"l": [1]},
            ("append", ["l"], 2),
            [{"op": "add", "path": "/l/-", "value": 2}],
            id="a list grows at its end",
        ),
        pytest.param(
            {"l": [1, 2]}, ("append", ["l"], 2), [], id="a list never holds a value twice"
        ),
        pytest.param(
            {},
            ("append", ["l"], 2),
            [{"op": "add", "path": "/l", "value": [2]}],
            id="a missing list",
        ),
        pytest.param(
            {"l": [{"n": 1}]},
            ("set", ["l", 0, "m"], 2),
            [{"op": "add", "path": "/l/0/m", "value": 2}],
            id="a field of a list's item",
        ),
        pytest.param(
            {"l": [1]},
            ("set", ["l", 0], 2),
            [{"op": "replace", "path": "/l/0", "value": 2}],
            id="an item",
        ),
    ],
)
def test_operations(obj: Json, change: tuple[str, list[str | int], Any], want: list[Json]) -> None:
    before = repr(obj)
    patch = changed(obj, change)
    assert list(patch.operations) == want
    assert apply(obj, patch.operations) == patch.result
    assert repr(obj) == before


steps = st.text("ab/~0", min_size=1, max_size=3)
values = st.integers() | st.text(max_size=3)
maps = st.recursive(
    st.dictionaries(steps, values, max_size=3),
    lambda inner: st.dictionaries(steps, inner, max_size=3),
    max_leaves=8,
)


@given(maps, st.lists(st.tuples(st.lists(steps, min_size=1, max_size=3), values), max_size=4))
def test_the_operations_lead_from_the_object_to_the_result(
    obj: Json, changes: list[tuple[list[str], Any]]
) -> None:
    patch = Patch(obj)
    for path, value in changes:
        try:
            patch.set(path, value)
        except (AttributeError, TypeError):  # the path leads through a plain value
            return
    assert apply(obj, patch.operations) == patch.result
    again = Patch(patch.result)
    path, value = changes[-1] if changes else (["x"], patch.result.get("x", 0))
    again.set(path, value)
    assert not changes or again.operations == ()
