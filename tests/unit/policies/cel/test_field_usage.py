"""What expressions reach of their objects, and that nothing else makes a difference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cel import engines, field_usage
from policies.cel.protocol import (
    ADMISSION,
    Activation,
    EvaluationError,
    PartialActivation,
    Program,
)

ENGINE = engines.engine("cel-expr-python")
ALL = field_usage.ALL


def compiled(source: str) -> Program:
    return ENGINE.compile(source, ADMISSION, result_type="any")


def reads(source: str) -> Any:
    program = compiled(source)
    assert isinstance(program, PartialActivation)
    return program.reads().parts


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("1 == 1", {}, id="no object"),
        pytest.param("object != null", {"object": ALL}, id="an object as a whole"),
        pytest.param("object.a.b == 'c'", {"object": {"a": {"b": ALL}}}, id="a field"),
        pytest.param("object['a'].b == 'c'", {"object": {"a": {"b": ALL}}}, id="a key"),
        pytest.param("object[object.k] == 1", {"object": ALL}, id="a key that is not known"),
        pytest.param("has(object.a.b)", {"object": {"a": {"b": {}}}}, id="whether it is there"),
        pytest.param(
            "has(object.a) && object.a.b == 1", {"object": {"a": {"b": ALL}}}, id="both together"
        ),
        pytest.param("size(object.a) > 1", {"object": {"a": ALL}}, id="handed to a function"),
        pytest.param("object.?a.b.hasValue()", {"object": ALL}, id="an optional field"),
        pytest.param(
            "object.a.all(x, has(x.b) && x.c.exists(y, y.d == 1))",
            {"object": {"a": {"[]": {"b": {}, "c": {"[]": {"d": ALL}}}}}},
            id="items of a list, and of lists in them",
        ),
        pytest.param(
            "object.a.all(k, v, v.b == 1 && k != '')",
            {"object": {"a": {"[]": {"b": ALL}}}},
            id="values of a map",
        ),
        pytest.param(
            "object.a.map(x, x).exists(y, y.b == 1)",
            {"object": {"a": {"[]": ALL}}},
            id="items that are carried on",
        ),
        pytest.param(
            "object.a.all(object, object.b == 1)",
            {"object": {"a": {"[]": {"b": ALL}}}},
            id="a loop that takes the name of an object",
        ),
        pytest.param("gpus(object) > 0", {}, id="a fact that is worked out beside the engine"),
        pytest.param(
            "object.a == oldObject.b",
            {"object": {"a": ALL}, "oldObject": {"b": ALL}},
            id="two objects",
        ),
    ],
)
def test_reads(source: str, want: Any) -> None:
    assert reads(source) == want


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param(ALL, {"a": [{"b": 1, "c": 2}, 3], "d": {"e": {}}}, id="all of it"),
        pytest.param({}, {}, id="nothing of it"),
        pytest.param({"a": {}}, {"a": []}, id="that there is a list"),
        pytest.param({"a": {"[]": {"b": ALL}}}, {"a": [{"b": 1}, 3]}, id="a field of its items"),
        pytest.param({"a": {"b": ALL}}, {"a": []}, id="a field of a list"),
        pytest.param({"[]": {}}, {"a": [], "d": {}}, id="the keys of a map"),
        pytest.param(
            {"[]": {}, "d": {"e": ALL}}, {"a": [], "d": {"e": {}}}, id="its keys, and one value"
        ),
        pytest.param({"x": ALL}, {}, id="what is missing"),
    ],
)
def test_kept(parts: Any, want: Any) -> None:
    assert field_usage.trim({"a": [{"b": 1, "c": 2}, 3], "d": {"e": {}}}, parts) == want


def test_together_reach_what_each_of_them_does() -> None:
    views = [
        field_usage.ReachableFields({"object": {"a": {"b": ALL}}}),
        field_usage.ReachableFields({"object": {"a": {"c": {}}, "d": ALL}, "oldObject": {}}),
    ]
    want: Any = {"object": {"a": {"b": ALL, "c": {}}, "d": ALL}, "oldObject": {}}
    assert field_usage.together(tuple(views)).parts == want
    assert field_usage.together((*views, field_usage.WHOLE)).parts == dict.fromkeys(
        ("object", "oldObject"), ALL
    )


FIELDS = st.sampled_from(["a", "b", "c"])
OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "x"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(FIELDS, below, max_size=3),
    max_leaves=12,
)
RULES = st.sampled_from(
    [
        "object.a == 1",
        "object.a.b == 'x'",
        "object['a']['b'] == 'x'",
        "has(object.a) && has(object.a.b)",
        "!has(object.a) || object.a != null",
        "size(object.a) > 0",
        "'b' in object.a",
        "1 in object.a",
        "object.a.all(x, x.b == 1)",
        "object.a.all(x, has(x.b) ? x.b.exists(y, y == 1) : true)",
        "object.a.exists_one(x, x == object.b)",
        "object.a.filter(x, has(x.c)).map(x, x.c)",
        "object.a.all(k, v, k != 'b' || v == 1)",
        "object.a.map(x, x)[0].b == 1",
        "object.?a.?b.orValue(3) == 3",
        "cel.bind(s, object.a, s.b == s.c)",
        "object == oldObject",
        "object.a == oldObject.a",
        "[object.a, object.b].exists(x, x.c == 1)",
        "{'k': object.a}.k.b == 1",
        "type(object.a) == type(object.b)",
        "string(object.a.b) == '1'",
        "object.a[0].b == 1",
        "object.a.b.c",
    ]
)


def outcome(program: Program, activation: Activation) -> object:
    try:
        return program.evaluate_tagged(activation)
    except EvaluationError as exc:
        return exc.kind, exc.message


@given(st.lists(RULES, min_size=1, max_size=4), OBJECTS, OBJECTS)
def test_what_is_not_reached_makes_no_difference(rules: list[str], obj: Any, old: Any) -> None:
    programs = [compiled(rule) for rule in rules]
    view = field_usage.together(
        tuple(one.reads() for one in programs if isinstance(one, PartialActivation))
    )
    values = {**dict.fromkeys((name for name, _ in ADMISSION.variables), None)}
    values |= {"object": obj, "oldObject": old}
    plain, trimmed = Activation(dict(values)), Activation(dict(values), view=view)
    assert [outcome(one, trimmed) for one in programs] == [outcome(one, plain) for one in programs]
