"""Compile errors in plain words: from an engine's text, and for what no engine rejects."""

from __future__ import annotations

import re
from typing import Final

from policies.cel import error_kinds, optional_guard
from policies.cel.protocol import MAX_CODE_POINTS, CompileError, ResultType

_POSITION: Final = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED: Final = re.compile(r"^undeclared reference to '([^']+)'")


def from_text(text: str, source: str) -> CompileError:
    """The first error of the engine's report, with its position."""
    position = _POSITION.search(text)
    if position is None:
        return CompileError(error_kinds.evaluation_error(text).message)
    message = position[3].removesuffix(" [INVALID_ARGUMENT]").removesuffix(" (in container '')")
    line, column = max(1, int(position[1])), max(1, int(position[2]))
    name = _UNDECLARED.search(message)
    if name is not None:
        column = _start(source, line, column, name[1])
    return CompileError(message, line=line, column=column)


def _start(source: str, line: int, column: int, name: str) -> int:
    """Where a name begins: the engine points at the last dot of its path."""
    lines = source.split("\n")
    text = lines[line - 1] if line <= len(lines) else ""
    begin = text.rfind(name.partition(".")[0], 0, column)
    return begin + 1 if begin >= 0 else column


def reject_long(source: str) -> None:
    """Raise when the text is longer than CEL reads."""
    if len(source) > MAX_CODE_POINTS:
        raise CompileError(
            f"the expression has {len(source)} characters; at most {MAX_CODE_POINTS} are read"
        )


def reject_at(source: str, refused: optional_guard.RejectedExpression | None) -> None:
    """Raise the fault of a tree at its place in the source."""
    if refused is not None:
        before = source[: refused.offset]
        line, start = before.count("\n") + 1, before.rfind("\n") + 1
        raise CompileError(refused.message, line=line, column=refused.offset - start + 1)


def reject_result(result: str, expected: ResultType) -> None:
    """Raise when an expression of that type cannot give what is wanted."""
    if "optional_type" in result:
        raise CompileError(f"the expression gives {result}; {optional_guard.ADVICE}")
    if expected != "any" and result not in (expected, "dyn"):
        raise CompileError(
            f"the expression gives {result}; a {expected} is wanted, "
            "compare the value with something or convert it"
        )
