"""An optional never reaches Python: inside a map it would end the whole process."""

from typing import Final

import pytest

from policies.cel import engines, optional_guard, protocol
from policies.cel.protocol import Activation, CompileError, EvaluationError

ENGINE: Final = engines.engine("cel-expr-python")
OBJECT: Final = {"a": 3, "l": [1]}


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("containers({'a': optional.of(1)})", id="a map for our own function"),
        pytest.param("[optional.of(1)].indexOf(optional.of(1))", id="a list for our own function"),
        pytest.param("optional.of(1).includes(1)", id="a receiver of our own function"),
        pytest.param("containers({'a': object.l[?0]})", id="an index whose type is not known"),
        pytest.param("containers({'a': object.?l[0]})", id="an index into an optional"),
        pytest.param("containers({'a': object.l[?0].x})", id="a field of an optional"),
        pytest.param("[1].transformMap(i, v, optional.of(v))", id="a map of optionals"),
        pytest.param("[1].transformMap(i, v, object.l[?0])", id="a map of hidden optionals"),
        pytest.param("containers(dyn({'a': optional.of(1)}))", id="through dyn"),
        pytest.param("containers([1, {'a': optional.of(1)}][1])", id="through a mixed list"),
        pytest.param("containers({'a': {'b': optional.of(1)}, 'c': 1})", id="through a mixed map"),
        pytest.param("containers(true ? dyn({}) : {'a': optional.of(1)})", id="through a choice"),
        pytest.param("containers([[{'a': optional.of(1)}]].flatten()[0])", id="through flatten"),
        pytest.param(
            "cel.bind(x, object.l[?0], containers({'a': x}))", id="through a bound variable"
        ),
        pytest.param("containers({'a': format.named('uri')})", id="from our own function"),
        pytest.param("object.l[?0]", id="as the result"),
    ],
)
def test_an_optional_that_would_get_lost_is_rejected(source: str) -> None:
    with pytest.raises(CompileError) as caught:
        ENGINE.compile(source, protocol.ADMISSION, result_type="any")
    assert caught.value.message == optional_guard.ADVICE


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("[?optional.of(1)]", [1]),
        ("{?'a': optional.of(1)}", {"a": 1}),
        ("{?'a': object.?b}", {}),
        ("[optional.of(1)][0].value()", 1),
        ("object.?a.orValue(1)", 3),
        ("object.l[?0].orValue(7)", 1),
        ("object.l[?5].orValue(7)", 7),
        ("object.?l[?0].hasValue()", True),
        ("object.?a.optMap(x, x + 1).orValue(0)", 4),
        ("object.?b.or(object.?a).value()", 3),
        ("[optional.of(1)].map(x, x.value())", [1]),
        ("size([optional.of(1)])", 1),
        ("optional.of(1) == optional.none()", False),
        ("[{'a': optional.of(1)}].all(m, m.a.hasValue())", True),
        ("cel.bind(x, object.?a, x.hasValue())", True),
        ("[1].first().value()", 1),
    ],
)
def test_what_people_write_passes(source: str, want: object) -> None:
    program = ENGINE.compile(source, protocol.ADMISSION, result_type="any")
    assert program.evaluate(Activation({"object": OBJECT})) == want


def test_an_optional_as_a_result_is_an_error_of_the_rule() -> None:
    env = protocol.Environment.of(["object"])
    unchecked = protocol.Environment(env.variables, checked=False)
    for source in ("object.?a", "[object.?a]", "{'a': object.?a}", "{'a': [{'b': object.?a}]}"):
        program = ENGINE.compile(source, unchecked, result_type="any")
        with pytest.raises(EvaluationError) as caught:
            program.evaluate(Activation({"object": OBJECT}))
        assert caught.value.kind == "type"


def test_the_fault_has_its_place_on_a_later_line() -> None:
    with pytest.raises(CompileError) as caught:
        ENGINE.compile("true ||\n  optional.of(1).includes(1)", protocol.ADMISSION)
    assert (caught.value.line, caught.value.column) == (2, 26)
