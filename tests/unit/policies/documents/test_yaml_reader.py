from pathlib import Path

import pytest

from policies.documents import yaml_reader
from policies.documents.yaml_reader import DocumentError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", [], id="an empty file has no documents"),
        pytest.param("---\n---\na: 1\n---\n", [{"a": 1}], id="empty documents are left out"),
        pytest.param(
            "a: 2024-01-01\nb: 1.5\nc: on",
            [{"a": "2024-01-01", "b": 1.5, "c": True}],
            id="a date stays text",
        ),
        pytest.param("1: x", [{"1": "x"}], id="keys are text"),
        pytest.param(
            "x: &a {k: 1, l: 2}\ny: {<<: *a, l: 3}",
            [{"x": {"k": 1, "l": 2}, "y": {"k": 1, "l": 3}}],
            id="merge keys give way to own keys",
        ),
        pytest.param("x: &a [1]\ny: *a", [{"x": [1], "y": [1]}], id="aliases unfold"),
    ],
)
def test_values(text: str, want: list[object]) -> None:
    assert [doc.value for doc in yaml_reader.parse(text, "f.yaml")] == want


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 8)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "a: 1\na: 2",
            "f.yaml:2:1: key 'a' stands twice in one map; remove one",
            id="duplicate key",
        ),
        pytest.param(
            "a:\n\tb: 1",
            "f.yaml:2:1: not YAML: a tab stands where spaces belong; indent with spaces",
            id="tab",
        ),
        pytest.param(
            "a: [1, 2", "f.yaml:2:1: not YAML: did not find expected ',' or ']'", id="syntax"
        ),
        pytest.param(
            "a: !!python/object:os.system x",
            "f.yaml:1:4: tag 'tag:yaml.org,2002:python/object:os.system' is not understood; write a plain value",
            id="foreign tag",
        ),
        pytest.param("? [a]\n: 1", "f.yaml:1:3: a key must be a plain word", id="list as key"),
        pytest.param(
            "a: {<<: 3}",
            "f.yaml:1:9: a merge key `<<` takes a map or a list of maps",
            id="merge of a number",
        ),
        pytest.param(
            "a: " + "[" * 70 + "]" * 70, "f.yaml:1:68: nested deeper than 64 levels", id="too deep"
        ),
        pytest.param("a: *b", "f.yaml:1:4: not YAML: found undefined alias", id="unknown alias"),
        pytest.param(
            "a: " + "x" * yaml_reader.LARGEST,
            f"f.yaml: the text has {yaml_reader.LARGEST + 3} characters, at most {yaml_reader.LARGEST} are read",
            id="too large",
        ),
    ],
)
def test_faults_name_place_and_fix(text: str, want: str) -> None:
    with pytest.raises(DocumentError) as caught:
        yaml_reader.parse(text, "f.yaml")
    assert str(caught.value) == want


def test_an_alias_bomb_is_rejected_before_it_unfolds() -> None:
    with pytest.raises(
        DocumentError, match="unfolds to more than 250000 values; write fewer aliases"
    ):
        yaml_reader.parse(bomb(), "f.yaml")


def test_a_recursive_alias_is_rejected() -> None:
    with pytest.raises(DocumentError, match="nested deeper"):
        yaml_reader.parse("a: &a [*a]", "f.yaml")


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda p: None, "no such file", id="missing"),
        pytest.param(lambda p: p.mkdir(), "this is a folder", id="folder"),
        pytest.param(lambda p: p.write_bytes(b"a: \xff"), "byte 3 is not UTF-8", id="not UTF-8"),
        pytest.param(
            lambda p: p.write_bytes(b"#" * (yaml_reader.LARGEST + 1)), "split it", id="too large"
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, make: object, want: str) -> None:
    path = tmp_path / "f.yaml"
    assert callable(make)
    make(path)
    with pytest.raises(DocumentError, match=want):
        yaml_reader.read(path)


def test_places_point_at_values_or_at_the_nearest_parent() -> None:
    [doc] = yaml_reader.parse("a:\n  - b: 1\n    c: 2\n", "f.yaml")
    paths: list[list[yaml_reader.Step]] = [["a", 0, "c"], ["a", 0, "missing"], [], ["a", 7]]
    assert [str(doc.place(path)) for path in paths] == [
        "f.yaml:3:8",
        "f.yaml:2:5",
        "f.yaml:1:1",
        "f.yaml:2:3",
    ]
