"""
Words of prose in a tree: docstrings, comments, messages and Markdown, and which of them to avoid.

    python -m tests.prose scheduler/tenancy docs/tenancy.md      each line that should be rewritten

`PRONOUNS` hide the agent of a sentence: name the component, the pod or the user instead. "room" says
capacity, and is not the word that a reader searches for.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PRONOUNS: Final = re.compile(
    r"\b(some|any|every)(body|one)\b|\bnobody\b|\bno one\b|\bwho(m|so)?ever\b|\bwhatever\b",
    re.IGNORECASE,
)
ROOM: Final = re.compile(r"\brooms?\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]*")
_FENCE: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of prose and where it is."""

    path: Path
    number: int
    text: str


def lines(paths: Iterable[Path]) -> Iterator[Line]:
    """The prose of files and folders: .py and .md."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            if file.suffix == ".py":
                yield from _python(file)
            elif file.suffix == ".md":
                yield from _markdown(file)


def words(found: Iterable[Line]) -> int:
    return sum(len(_WORD.findall(line.text)) for line in found)


def matches(found: Iterable[Line], pattern: re.Pattern[str]) -> list[Line]:
    """One entry for each match."""
    return [line for line in found for _ in pattern.finditer(line.text)]


def _python(path: Path) -> Iterator[Line]:
    """Comments, and string literals with a space in them: docstrings and messages."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Line(path, token.start[0], token.string)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, text in enumerate(node.value.splitlines()):
                yield Line(path, node.lineno + offset, text)


def _markdown(path: Path) -> Iterator[Line]:
    """Without fenced blocks: these show what programs print, which other tests hold to the code."""
    text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), path.read_text())
    for number, line in enumerate(text.splitlines(), start=1):
        yield Line(path, number, line)


def main(arguments: list[str]) -> None:
    found = list(lines(map(Path, arguments)))
    for pattern in (PRONOUNS, ROOM):
        for line in matches(found, pattern):
            print(f"{line.path}:{line.number}: {line.text.strip()}")
    said, rooms, total = len(matches(found, PRONOUNS)), len(matches(found, ROOM)), words(found)
    print(
        f"{total} words, {said} pronouns ({1000 * said / max(1, total):.1f} per 1,000), {rooms} rooms"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
