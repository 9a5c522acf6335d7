"""Kubernetes' function library, as the API server answers. `error` stands for an EvaluationError."""

from typing import Final

import pytest

from policies.cel import engines, protocol
from policies.cel.protocol import Activation, CompileError, EvaluationError
from tests.conformance import kubernetes_answers as answers

ENGINE: Final = engines.engine("cel-expr-python")
PORTABLE: Final = engines.engine("cel-python")
ENV: Final = protocol.Environment.of(["object"])


def answer(engine: protocol.Engine, source: str) -> object:
    program = engine.compile(source, ENV, result_type="any")
    try:
        return program.evaluate(Activation({"object": {}}))
    except EvaluationError:
        return "error"


@pytest.mark.parametrize(("source", "want"), [*answers.PORTABLE, *answers.EXTENSIONS])
def test_first_engine(source: str, want: object) -> None:
    assert answer(ENGINE, source) == want


@pytest.mark.parametrize(("source", "want"), answers.PORTABLE)
def test_second_engine(source: str, want: object) -> None:
    assert answer(PORTABLE, source) == want


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("object.?a.orValue(1)", id="optionals"),
        pytest.param("[1].all(i, v, v == 1)", id="two variables"),
        pytest.param("cel.bind(x, 1, x)", id="cel.bind"),
        pytest.param("format.dns1123Label().validate('a').hasValue()", id="format"),
        pytest.param("math.greatest(1, 2)", id="math"),
        pytest.param("nothing(1)", id="an unknown function"),
    ],
)
def test_what_the_second_engine_lacks_is_refused_when_loaded(source: str) -> None:
    with pytest.raises(CompileError):
        PORTABLE.compile(source, ENV, result_type="any")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("quantity('1') + 1", "found no matching overload for '_+_'"),
        ("quantity('1') == '1'", "found no matching overload for '_==_'"),
        ("isIP(cidr('10.0.0.0/8'))", "found no matching overload for 'isIP'"),
        ("semver('1.0.0').isLessThan(quantity('1'))", "found no matching overload"),
        ("quantity('1').value", "undefined field 'value'"),
        ("ip('10.0.0.1').masked()", "found no matching overload for 'masked'"),
        ("cel.@joinMaps([{}])", "Syntax error"),
    ],
)
def test_types_of_our_own_are_checked_when_loaded(source: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        ENGINE.compile(source, ENV, result_type="any")
    assert caught.value.message.startswith(message)


def test_an_object_that_looks_like_a_quantity_is_none() -> None:
    program = ENGINE.compile("object.isLessThan(quantity('1'))", ENV)
    with pytest.raises(EvaluationError) as caught:
        program.evaluate(Activation({"object": {"value": "0"}}))
    assert caught.value.kind == "no-overload"


def test_a_forged_quantity_is_an_error_of_the_rule() -> None:
    program = ENGINE.compile("object.isLessThan(quantity('1'))", ENV)
    forged = {"cel.type": "kubernetes.Quantity", "value": "not a number"}
    with pytest.raises(EvaluationError) as caught:
        program.evaluate(Activation({"object": forged}))
    assert caught.value.kind == "function"
