"""
Markdown in small pieces: a heading, a table, a page with its note. Pure.
"""

from collections.abc import Iterable, Sequence
from typing import Final

NOTE: Final = "<!-- Made from code by `make generate`; edit the code instead. -->"


def page(title: str, *parts: str) -> str:
    """A whole file: the title, the note, and the parts with an empty line between them."""
    return "\n\n".join((f"# {title}", NOTE, *(part.strip() for part in parts if part))) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    """The text as it is typed; empty stays empty."""
    return f"`{text}`" if text else ""


def codes(texts: Iterable[str]) -> str:
    return ", ".join(code(text) for text in texts)


def cell(text: str) -> str:
    """The text in one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell(text) for text in cells)} |"
