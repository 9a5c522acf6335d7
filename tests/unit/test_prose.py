"""Docstrings, comments, messages and pages name their agents, and use the words of the field."""

from pathlib import Path

import pytest

from tests import prose
from tests.pages import ROOT

PLACES = ("kubenexus", "webhook", "scheduler", "cluster", "policies", "docs", "README.md")
BUDGET = 1  # pronouns per 1,000 words


def in_the_tree(place: str) -> Path:
    if not (ROOT / place).exists():
        pytest.skip("the packages are installed elsewhere; this test reads the source tree")
    return ROOT / place


@pytest.mark.parametrize("place", PLACES)
def test_sentences_name_their_agent(place: str) -> None:
    lines = list(prose.lines([in_the_tree(place)]))
    found = prose.matches(lines, prose.PRONOUNS)
    assert 1000 * len(found) <= BUDGET * prose.words(lines), found


@pytest.mark.parametrize("place", PLACES)
def test_capacity_is_called_capacity(place: str) -> None:
    assert prose.matches(prose.lines([in_the_tree(place)]), prose.ROOM) == []


@pytest.mark.parametrize(
    ("text", "pronouns", "rooms"),
    [
        pytest.param("The scheduler evicts victims.", 0, 0, id="plain"),
        pytest.param("Somebody goes for whoever asks.", 2, 0, id="pronouns"),
        pytest.param("There is room for two.", 0, 1, id="room"),
        pytest.param("A mushroom grows.", 0, 0, id="part of a word"),
        pytest.param("```\nnobody\n```\n", 0, 0, id="what a program prints"),
    ],
)
def test_what_is_counted(text: str, pronouns: int, rooms: int, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    lines = list(prose.lines([page]))
    got = len(prose.matches(lines, prose.PRONOUNS)), len(prose.matches(lines, prose.ROOM))
    assert got == (pronouns, rooms)


def test_docstrings_comments_and_messages_are_prose(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""One of\nanybody."""\nanybody = 1  # nobody\nname = "everybody"\nraise E("no one is")\n'
    )
    found = prose.matches(prose.lines([module]), prose.PRONOUNS)
    assert sorted(line.number for line in found) == [2, 3, 5]
