"""
What the fault suite counted, kept in a file, and the table of `docs/reliability.md` made from it.

    python -m tests.cluster.reliability build/reliability/webhook.json docs/reliability.md

Only what stands between the two markers is replaced.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

BEGIN: Final = "<!-- faults: begin -->"
END: Final = "<!-- faults: end -->"

Row = Mapping[str, Any]
COLUMNS: Final = (
    "sent",
    "answered",
    "failed",
    "no API server",
    "wrongly refused",
    "wrongly admitted",
)


def add(file: Path, row: Row) -> None:
    """Put the row in the place of an older one of the same fault, or at the end."""
    rows = json.loads(file.read_text("utf-8")) if file.exists() else []
    known = {old["fault"]: old for old in rows} | {row["fault"]: dict(row)}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(list(known.values()), indent=1) + "\n", "utf-8")


def render(rows: Sequence[Row]) -> str:
    lines = [f"| Fault | {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * len(COLUMNS)]
    for row in rows:
        cells = " | ".join(f"{row[column]:,}" for column in COLUMNS)
        lines.append(f"| {row['fault']} | {cells} |")
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
