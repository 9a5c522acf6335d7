"""The conformance runner and its table, on rows small enough to see."""

import pytest

from policies.cel import engines
from tests.conformance import cel_spec, cel_table
from tests.pages import ROOT

DOCUMENT = ROOT / "docs" / "cel.md"


def row(figure: str, measured: int, note: str) -> dict[str, object]:
    return {"figure": figure, "measured": measured, "note": note}


def test_the_table_has_the_total_first_and_a_column_for_each_engine() -> None:
    rows = [
        row("one: vectors passed", 3, "of 4, 1.0"),
        row("one: parse", 2, "of 3"),
        row("one: basic", 1, "of 1"),
        row("two: vectors passed", 1, "of 4, 2.0"),
        row("two: parse", 0, "of 3"),
        row("two: basic", 1, "of 1"),
    ]
    assert cel_table.render(rows).splitlines() == [
        "| Part of the suite | Vectors | one | two |",
        "| --- | ---: | ---: | ---: |",
        "| all | 4 | **3** | **1** |",
        "| `basic` | 1 | 1 | 1 |",
        "| `parse` | 3 | 2 | 0 |",
    ]


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    document = f"before\n{cel_table.BEGIN}\nold\n{cel_table.END}\nafter"
    want = f"before\n{cel_table.BEGIN}\nnew\n{cel_table.END}\nafter"
    assert cel_table.replaced(document, "new") == want


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="want the markers"):
        cel_table.replaced("nothing here", "new")


def test_the_published_table_reaches_the_required_share() -> None:
    text = DOCUMENT.read_text("utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| all |"))
    _, _, vectors, first, _, _ = (cell.strip(" *") for cell in line.split("|"))
    assert (vectors, int(first) >= cel_spec.REACH["cel-expr-python"]) == ("1756", True)


def vector(expr: str, **want: object) -> dict[str, object]:
    return {"file": "f", "section": "s", "name": "n", "expr": expr, **want}


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        pytest.param(vector("1", want={"int": "1"}), True, id="the right value"),
        pytest.param(vector("1", want={"int": "2"}), False, id="another value"),
        pytest.param(vector("1u", want={"int": "1"}), False, id="another type"),
        pytest.param(vector("true", want={"int": "1"}), False, id="a bool is no number"),
        pytest.param(vector("-0.0", want={"double": 0.0}), False, id="a zero with another sign"),
        pytest.param(vector("[1]", want={"list": [{"double": 1.0}]}), False, id="inside a list"),
        pytest.param(vector("1/0", want={"int": "1"}), False, id="an error for a value"),
        pytest.param(vector("1", want_error=["no such key"]), False, id="a value for an error"),
        pytest.param(vector("1/0", want_error=["divide by zero"]), True, id="the right error"),
        pytest.param(vector("1/0", want_error=["no such key"]), False, id="another error"),
        pytest.param(
            vector("nothing(1)", want_error=["divide by zero"]), False, id="an unknown function"
        ),
        pytest.param(
            vector("nothing(1)", want_error=["no such overload"]), False, id="nor is it an overload"
        ),
        pytest.param(vector("1", want_error=["words of no kind"]), False, id="unknown words"),
        pytest.param(vector("[1]", check_only=True, want_type={"list": "int"}), True, id="a type"),
        pytest.param(vector("[1]", check_only=True, want_type="int"), False, id="a wrong type"),
    ],
)
def test_the_runner_is_strict(given: dict[str, object], passed: bool) -> None:
    why = cel_spec.judge(engines.engine("cel-expr-python"), given)
    assert (why == "") is passed
