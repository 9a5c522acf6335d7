"""Variables written out in the expressions that read them."""

import pytest

from policies.engine import inline_variables

KNOWN = {"labels": "object.metadata.labels", "app": "'x'"}


@pytest.mark.parametrize(
    ("source", "want"),
    [
        pytest.param("'a' in object", "'a' in object", id="no variable"),
        pytest.param(
            "variables.app == variables . labels['app']",
            "('x'\n) == (object.metadata.labels\n)['app']",
            id="each in its place",
        ),
        pytest.param(
            "'variables.app' == variables.app",
            "'variables.app' == ('x'\n)",
            id="a text in the form of one",
        ),
        pytest.param(
            "\"it's variables.app\" == variables.app // isn't variables.app\n",
            "\"it's variables.app\" == ('x'\n) // isn't variables.app\n",
            id="quotes in texts and comments",
        ),
        pytest.param(
            "'''a\n'variables.app''' == variables.app",
            "'''a\n'variables.app''' == ('x'\n)",
            id="a text of several lines",
        ),
        pytest.param(
            "object.variables.app == 'x'", "object.variables.app == 'x'", id="a field of that name"
        ),
        pytest.param("variables.other == 1", None, id="one that has to be left alone"),
        pytest.param(r"r'\' == variables.app", None, id="a raw text"),
        pytest.param(
            "[1].all(object, variables.app == object)", None, id="a loop that takes a name"
        ),
    ],
)
def test_written_out(source: str, want: str | None) -> None:
    assert inline_variables.inlined(source, KNOWN) == want


def test_what_grows_too_long_stays_as_it_was() -> None:
    source = "variables.v"
    assert inline_variables.inlined(source, {"v": "x" * (inline_variables.LONGEST - 3)}) is not None
    assert inline_variables.inlined(source, {"v": "x" * inline_variables.LONGEST}) is None


@pytest.mark.parametrize(
    ("source", "result_type", "want"),
    [
        pytest.param("object.a", "dyn", True, id="a field"),
        pytest.param("has(object.a) ? object.a : {}", "map<string,string>", True, id="a map"),
        pytest.param("object.a.map(x, x.b)", "list<dyn>", False, id="a loop"),
        pytest.param("uint(3)", "uint", False, id="a type that JSON lacks"),
        pytest.param("dyn(3u)", "dyn", False, id="the same, hidden"),
        pytest.param("object.?a", "dyn", False, id="an optional"),
        pytest.param("timestamp('2026-01-01T00:00:00Z')", "timestamp", False, id="a time"),
    ],
)
def test_may_be_inlined(source: str, result_type: str, want: bool) -> None:
    assert inline_variables.may_be_inlined(source, result_type) is want
