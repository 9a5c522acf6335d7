import pytest

from policies.documents import positions, yaml_reader

WORD = "HERE"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x: a == HERE", id="plain, on one line"),
        pytest.param("x: a ==\n  b &&\n  HERE", id="plain, over several lines"),
        pytest.param("x: 'it''s' \n", id="single quotes without the word stand at their start"),
        pytest.param("x: 'it''s ''a'' HERE'", id="single quotes, doubled inside"),
        pytest.param("x: 'a ==\n  b &&\n     HERE'", id="single quotes over lines"),
        pytest.param('x: "a\\"b\\t\\u0041 HERE"', id="double quotes with escapes"),
        pytest.param('x: "a ==\\\n  b &&\\\n  \\ HERE"', id="double quotes, lines continued"),
        pytest.param('x: "a\n  b\n  HERE"', id="double quotes, lines folded"),
        pytest.param("x: |\n  a\n    b HERE\n", id="literal, deeper line"),
        pytest.param("x: |\n\n  a\n\n  HERE\n", id="literal, empty lines"),
        pytest.param("x: |2\n    a\n  HERE\n", id="literal, indentation said"),
        pytest.param("x: >\n  a\n  b HERE\n", id="folded"),
        pytest.param("x: >-\n  a\n    b\n  HERE\n", id="folded, deeper line between"),
        pytest.param("x: >-\n  a(\n    HERE)\n", id="folded, word on the deeper line"),
        pytest.param("x: >\n  a \n  b  HERE\n", id="folded, blanks at a line's end"),
        pytest.param("x: >\n  a\n\n  b\n\n\n  HERE\n", id="folded, empty lines"),
        pytest.param("x: {y: [b, {x: HERE}]}", id="in a flow map"),
    ],
)
def test_a_place_inside_a_scalar_is_the_place_in_the_file(text: str) -> None:
    document = yaml_reader.parse(text, "f")[0]
    path = ("y", 1, "x") if "{y" in text else ()
    node = document.scalar(("x", *path) if path else ("x",))
    assert node is not None
    offset = max(node.value.find(WORD), 0)
    line = node.value.count("\n", 0, offset) + 1
    column = offset - node.value.rfind("\n", 0, offset)
    at = text.find(WORD) if WORD in text else text.index("it")
    want = (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
    assert positions.place(node, text, line, column) == want


def test_a_file_that_changed_gives_the_place_of_the_scalar() -> None:
    node = yaml_reader.parse("a: 1\nx: 'b HERE'\n", "f")[0].scalar(("x",))
    assert node is not None
    assert positions.place(node, "", 1, 3) == (2, 4)
