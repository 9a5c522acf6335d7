"""For any expression and any object, engines raise nothing but their own errors."""

import contextlib
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.cel import checked_expr, engines, protocol
from policies.cel.checked_expr import CheckedExpr, Expr
from policies.cel.protocol import Activation, CompileError, Engine, EvaluationError

FIRST: Final = engines.engine("cel-expr-python")
SECOND: Final = engines.engine("cel-python")
ENV: Final = protocol.ADMISSION
POD_ENV: Final = protocol.Environment(ENV.variables, schema="Pod")

both = pytest.mark.parametrize("engine", [FIRST, SECOND], ids=lambda engine: engine.name)

words = st.sampled_from(
    [
        "object",
        "oldObject",
        ".",
        "?.",
        "[",
        "]",
        "[?",
        "{",
        "}",
        "(",
        ")",
        ",",
        ":",
        "?",
        "+",
        "-",
        "*",
        "/",
        "%",
        "!",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "in",
        "1",
        "0",
        "2.5",
        "7u",
        "'a'",
        "b'x'",
        "null",
        "true",
        "size(",
        "all(x,",
        "map(x,",
        "transformMap(k,",
        "v,",
        "optional.of(",
        ".value()",
        ".orValue(",
        "has(",
        "dyn(",
        "quantity(",
        "cidr(",
        "semver(",
        ".validate(",
        "format.uri()",
        "containers(",
        ".includes(",
        "cel.bind(x,",
        "\n",
        "\t",
        '"',
        "'''",
        "#",
        "0x",
        "1e999",
        "ä",
        "😀",
        "\\",
        "`",
        "@",
        "spec",
        "containers",
        "x",
        "k",
        "v",
    ]
)
texts = st.one_of(st.text(max_size=60), st.lists(words, max_size=25).map(" ".join))

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(["1Gi", "10.0.0.0/8", "1.2.3", "a-b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["a", "spec", "containers", "value", "cel.type"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)

SOURCES: Final = (
    "object",
    "object.a == oldObject",
    "object.a + oldObject.a",
    "object.all(x, x == oldObject)",
    "object.a.map(x, [x, oldObject])",
    "object.spec.containers.all(c, has(c.name) && c.name.startsWith('a'))",
    "quantity(object.a).isLessThan(quantity('1'))",
    "object.isGreaterThan(oldObject)",
    "object.indexOf(oldObject) + object.sum()",
    "string(object)",
    "requests(object, 'cpu') > gpus(oldObject)",
    "containers(object)",
    "cidr(object.a).containsIP(oldObject.a)",
    "object.includes(oldObject)",
    "object.max() == object.min()",
    "object.a.find(oldObject.a)",
    "semver(object.a, true).major()",
    "url(object.a).getQuery()",
    "int(object) + int(oldObject)",
    "object.a[oldObject.a]",
)


@both
@settings(max_examples=150, deadline=None)
@given(source=texts)
def test_any_text_compiles_or_is_a_compile_error(engine: Engine, source: str) -> None:
    for env in (ENV, POD_ENV):
        with contextlib.suppress(CompileError):
            program = engine.compile(source, env, result_type="any")
            with contextlib.suppress(EvaluationError):
                program.evaluate(Activation({"object": {"a": 1}, "oldObject": None}))


PROGRAMS: Final = [
    (engine, engine.compile(s, ENV, result_type="any"))
    for engine in (FIRST, SECOND)
    for s in SOURCES
]


@settings(max_examples=150, deadline=None)
@given(one=json_values, other=json_values)
def test_any_object_gives_a_value_or_an_evaluation_error(one: Any, other: Any) -> None:
    for _, program in PROGRAMS:
        with contextlib.suppress(EvaluationError):
            program.evaluate(Activation({"object": one, "oldObject": other}))


@settings(max_examples=100, deadline=None)
@given(one=json_values, other=json_values)
def test_a_rule_gives_the_same_result_twice(one: Any, other: Any) -> None:
    def outcomes() -> list[object]:
        found: list[object] = []
        for _, program in PROGRAMS:
            try:
                found.append(
                    repr(program.evaluate_tagged(Activation({"object": one, "oldObject": other})))
                )
            except EvaluationError as error:
                found.append((error.kind, error.message))
        return found

    assert outcomes() == outcomes()


trees: st.SearchStrategy[Expr] = st.recursive(
    st.builds(
        lambda number, text: Expr(id=number, ident_expr=Expr.Ident(name=text)),
        st.integers(0, 2**63 - 1),
        st.text(max_size=5),
    ),
    lambda inner: st.builds(
        lambda parts: Expr(list_expr=Expr.CreateList(elements=parts)), st.lists(inner, max_size=3)
    ),
    max_leaves=8,
)


@given(tree=trees)
def test_a_tree_survives_its_bytes(tree: Expr) -> None:
    checked = CheckedExpr(expr=tree)
    assert checked_expr.decode(checked_expr.encode(checked)) == checked
