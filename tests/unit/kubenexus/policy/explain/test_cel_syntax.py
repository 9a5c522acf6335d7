import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubenexus.policy.explain import cel_syntax
from kubenexus.policy.explain.tracing import parts_of
from policies.engine import loader


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("a && b || c", ["a && b || c", "a && b", "a", "b", "c"], id="and binds tighter"),
        pytest.param("(a || b) && c", ["(a || b) && c", "(a || b)", "a", "b", "c"], id="brackets"),
        pytest.param("a ? b : c ? d : e", ["a ? b : c ? d : e", "a", "b", "c ? d : e", "c", "d", "e"], id="conditions nest to the right"),
        pytest.param("1 - -2", ["1 - -2", "1", "-2", "2"], id="a sign is no minus"),
        pytest.param("'in' in x", ["'in' in x", "'in'", "x"], id="a text in the form of an operator"),
        pytest.param("r'\\' == x", ["r'\\' == x", "r'\\'", "x"], id="a raw text ends at its quote"),
        pytest.param("'\\'' == x", ["'\\'' == x", "'\\''", "x"], id="an escaped quote does not"),
        pytest.param("a // b\n + c", ["a // b\n + c", "a", "c"], id="comments are no part"),
        pytest.param("a.?b[?'c'].orValue(1)", ["a.?b[?'c'].orValue(1)", "a.?b[?'c']", "a.?b", "a", "'c'", "1"], id="optional fields"),
        pytest.param("A.B{c: d, e: 1}", ["A.B{c: d, e: 1}", "d", "1"], id="messages"),
        pytest.param("a.`b/c`", ["a.`b/c`", "a"], id="quoted fields"),
        pytest.param("{'a': b}[c]", ["{'a': b}[c]", "{'a': b}", "'a'", "b", "c"], id="a map is indexed"),
    ],
)  # fmt: skip
def test_an_expression_is_taken_apart(source: str, want: list[str]) -> None:
    tree = cel_syntax.parse(source)
    assert tree is not None
    assert [source[node.start : node.end] for node in cel_syntax.walk(tree)] == want


@pytest.mark.parametrize("source", ["", "a +", "a b", "(a", "'a", "a.1", "a ? b", "$", "(" * 5000])
def test_a_text_that_is_no_expression_has_no_tree(source: str) -> None:
    assert cel_syntax.parse(source) is None


@given(st.text(alphabet="ab.()[]{}?:&|!=<>+-*/%,'\"\\ \n1r", max_size=40))
def test_no_text_makes_it_raise(source: str) -> None:
    tree = cel_syntax.parse(source)
    assert tree is None or 0 <= tree.start <= tree.end <= len(source)


def test_every_expression_of_the_library_has_a_tree() -> None:
    found: list[str] = []
    for entry, _ in loader.read_files(loader.LIBRARY).entries:
        found += [rule.expression for rule in entry.spec.variables + entry.spec.validations]
        found += [rule.when for rule in entry.spec.classify.workload_type]
    assert [source for source in found if cel_syntax.parse(source) is None] == []
    assert len(found) > 10


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param(
            "has(object.a) && object.a.b > 1",
            {"has(object.a)": 1, "object.a.b > 1": 1, "object.a.b": 2},
            id="operands, and the paths inside them",
        ),
        pytest.param("x.a && y.b && z.c", {"x.a": 1, "y.b": 1, "z.c": 1}, id="a chain is flat"),
        pytest.param(
            "x.a - (x.b - x.c)",
            {"x.a": 1, "x.b - x.c": 1, "x.b": 2, "x.c": 2},
            id="a chain of differences is not",
        ),
        pytest.param(
            "object.list.all(c, c.image.startsWith(params.registry))",
            {
                "object.list": 1,
                "params.registry": 1,
            },
            id="inside a loop, only what does not read its variable",
        ),
        pytest.param(
            "object.list.map(c, c.a).exists(c, c == other.b)",
            {"object.list.map(c, c.a)": 1, "object.list": 2, "other.b": 1},
            id="a loop over a loop",
        ),
        pytest.param("x.a == x.a", {"x.a": 1}, id="a part that stands twice is shown once"),
        pytest.param("object", {}, id="a bare name has no parts"),
    ],
)
def test_parts_that_are_shown(source: str, want: dict[str, int]) -> None:
    assert parts_of(source) == want
