"""
Writes the conformance table of `docs/cel.md` from the rows that `cel_spec` measured.

    python -m tests.conformance.cel_table build/bench/cel-conformance.json docs/cel.md

Only what stands between the two markers is replaced.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- conformance: begin -->"
END: Final = "<!-- conformance: end -->"
_TOTAL: Final = "vectors passed"

Row = Mapping[str, Any]


def render(rows: Sequence[Row]) -> str:
    """The table: the total first, then each file of the suite, one column an engine."""
    engines: list[str] = []
    cells: dict[str, dict[str, tuple[int, str]]] = {}  # file -> engine -> (passed, of how many)
    for row in rows:
        engine, _, file = str(row["figure"]).partition(": ")
        if engine not in engines:
            engines.append(engine)
        count = re.search(r"of (\d+)", str(row["note"]))
        cells.setdefault(file, {})[engine] = (row["measured"], count[1] if count else "?")
    files = [_TOTAL, *sorted(file for file in cells if file != _TOTAL)]
    lines = [f"| Part of the suite | Vectors | {' | '.join(engines)} |"]
    lines.append("| --- | ---: |" + " ---: |" * len(engines))
    for file in files:
        name, mark = ("all", "**") if file == _TOTAL else (f"`{file}`", "")
        of = next(iter(cells[file].values()))[1]
        passed = " | ".join(f"{mark}{cells[file][engine][0]}{mark}" for engine in engines)
        lines.append(f"| {name} | {of} | {passed} |")
    return "\n".join(lines)


def replaced(document: str, table: str) -> str:
    """The document with the table between its markers."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"want the markers {BEGIN} and {END} in the document")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: Sequence[str]) -> int:
    """Rewrite the document in place."""
    rows, document = (Path(argument) for argument in arguments)
    text = document.read_text("utf-8")
    document.write_text(replaced(text, render(json.loads(rows.read_text("utf-8")))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
