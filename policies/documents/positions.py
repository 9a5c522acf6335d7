r"""
Where a character of a YAML scalar's value stands in its file.

    plain, 'single', "double", > folded     both texts are walked side by side: folds give one blank
                                            for any run of blanks and line ends, escapes give one
                                            character for several
    | literal                               line by line, below the indentation

Lines and columns count from one on both sides. Where the walk loses its way, the place is that of
the scalar itself: a pointer is never wrong by more than the expression it points into.
"""

import re
from typing import Final

import yaml

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_BLANKS: Final = " \t\r\n"
Place = tuple[int, int]


def place(node: yaml.ScalarNode, text: str, line: int, column: int) -> Place:
    """The file's line and column of `line`:`column` in the scalar's value."""
    start = (node.start_mark.line + 1, node.start_mark.column + 1)
    lines = text.split("\n")
    if node.start_mark.line >= len(lines):
        return start
    if node.style == "|":
        return _literal(node, lines, line, column) or start
    offset = _offset(node.value, line, column)
    position = _walk(node, text, offset)
    return start if position is None else position


def _offset(value: str, line: int, column: int) -> int:
    before = value.split("\n")[: line - 1]
    return sum(len(part) + 1 for part in before) + column - 1


def _literal(node: yaml.ScalarNode, lines: list[str], line: int, column: int) -> Place | None:
    first = node.start_mark.line + 1
    body = lines[first : node.end_mark.line + 1]
    filled = [text for text in body if text.strip()]
    if not filled or first + line - 1 >= len(lines):
        return None
    header = lines[first - 1][node.start_mark.column :]
    value_line = next((text for text in node.value.split("\n") if text.strip()), "")
    # An explicit indentation indicator leaves blanks in the value's own first line.
    indent = _lead(filled[0]) - _lead(value_line)
    return (first + line, indent + column) if header.startswith("|") else None


def _lead(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _walk(node: yaml.ScalarNode, text: str, offset: int) -> Place | None:
    raw = _raw_start(node, text)
    for character in node.value[:offset]:
        step = _step(text, raw, character, node.style)
        if step is None:
            return None
        raw = step
    raw = _skip_to(text, raw, node.value[offset : offset + 1])
    return text.count("\n", 0, raw) + 1, raw - (text.rfind("\n", 0, raw) + 1) + 1


def _raw_start(node: yaml.ScalarNode, text: str) -> int:
    raw = 0
    for _ in range(node.start_mark.line):
        raw = text.index("\n", raw) + 1
    raw += node.start_mark.column
    if node.style == ">":
        return text.find("\n", raw) + 1
    return raw + 1 if node.style in ("'", '"') else raw


def _skip_to(text: str, raw: int, character: str) -> int:
    """Past the blanks of a fold, where the next character of the value is no blank."""
    if character and character not in _BLANKS:
        while raw < len(text) and text[raw] in _BLANKS:
            raw += 1
    return raw


def _step(text: str, raw: int, character: str, style: str | None) -> int | None:
    """The position in `text` after the character `character` of the value; None: lost."""
    raw = _skip_to(text, raw, character)
    if raw >= len(text):
        return None
    if style == '"' and text[raw] == "\\":
        return _escape(text, raw, character)
    if style == "'" and character == "'" and text.startswith("''", raw):
        return raw + 2
    if character in _BLANKS:
        return _fold(text, raw, character)
    return raw + 1 if text[raw] == character else None


def _escape(text: str, raw: int, character: str) -> int | None:
    escape = _ESCAPE.match(text, raw)
    if escape is None:
        return None
    if escape[1] == "\n":  # a line continued: it gives no character of its own
        return _step(text, _skip_to(text, escape.end(), "x"), character, '"')
    return escape.end()


def _fold(text: str, raw: int, character: str) -> int:
    """Past one blank of the value: itself, or the line end and indentation it was made from."""
    if text[raw] not in _BLANKS:
        return raw  # one of several blanks that one line end and its indentation gave
    if text[raw] == character and character != "\n" and not _line_ends(text, raw):
        return raw + 1
    end = text.find("\n", raw) + 1
    if not end or text[raw:end].strip():
        return raw + 1
    return end + _lead(text[end:].split("\n", 1)[0])


def _line_ends(text: str, raw: int) -> bool:
    """Only blanks stand between here and the end of the line."""
    end = text.find("\n", raw)
    return end >= 0 and not text[raw:end].strip()
