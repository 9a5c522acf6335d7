"""
What the fault suite, the fuzzer and the hostile tenant counted, kept in files, and the tables made from them.

    python -m tests.cluster.reliability build/reliability docs/reliability.md [TABLE…]

A folder without one of the files leaves that table as it is, and so do tables that are not among
those named, if any are. Only what stands between the markers is replaced.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.hostile import report

FAULTS: Final = "webhook.json"
FUZZ: Final = "fuzz.json"
GANGS: Final = "gangs.json"
TENANCY: Final = "tenancy.json"
HOSTILE: Final = "hostile.json"

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


def render_fuzz(row: Row) -> str:
    lines = ["| Inputs | Decided | Rejected as no review | Slowest response | Failures |"]
    lines.append("|" + " ---: |" * 5)
    judged = row["statuses"].get("200", 0)
    lines.append(
        f"| {row['inputs']:,} | {judged:,} | {row['inputs'] - judged:,} "
        f"| {row['slowest_ms']:,} ms | {row['broken']} |"
    )
    return "\n".join(lines)


def render_gangs(rows: Sequence[Row]) -> str:
    lines = [
        "| Fault | times | gangs so far | binds | gangs left partial | longest partial "
        "| pods on two nodes | nodes overcommitted |",
        "| --- |" + " ---: |" * 7,
    ]
    for row in rows:
        cells = [row["times"], f"{row['gangs']:,}", f"{row['binds']:,}", row["partial"]]
        cells += [f"{row['longest']:.1f} s", row["double"], row["over"]]
        lines.append(f"| {row['fault']} | {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines)


def render_tenancy(rows: Sequence[Row]) -> str:
    heads = ("times", "evicted", "wasted", "binds")
    wrong = ("gangs left partial", "pods on two nodes", "nodes overcommitted")
    lines = [f"| Fault | {' | '.join((*heads, *wrong))} |", "| --- |" + " ---: |" * 7]
    keys = ("times", "evicted", "wasted", "binds", "partial", "double", "over")
    for row in rows:
        lines.append(f"| {row['fault']} | {' | '.join(f'{row[key]:,}' for key in keys)} |")
    total = {key: sum(row[key] for row in rows) for key in keys[:4]}
    cells = " | ".join(f"{total[key]:,}" for key in keys[:4])
    return "\n".join([*lines, f"| **all** | {cells} | | | |"])


def replaced(document: str, name: str, table: str) -> str:
    """The document with the table between the markers of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"want the markers {begin} and {end} in the document")
    return f"{before}{begin}\n{table}\n{end}{after}"


TABLES: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "faults": (FAULTS, render),
    "fuzz": (FUZZ, render_fuzz),
    "gangs": (GANGS, render_gangs),
    "tenancy": (TENANCY, render_tenancy),
    "hostile": (HOSTILE, report.table),
}


def main(arguments: Sequence[str]) -> int:
    """Rewrite the document in place."""
    folder, document = (Path(argument) for argument in arguments[:2])
    wanted = arguments[2:] or tuple(TABLES)
    text = document.read_text("utf-8")
    for name, (file, shown) in TABLES.items():
        counted = folder / file
        if name in wanted and counted.exists():
            text = replaced(text, name, shown(json.loads(counted.read_text("utf-8"))))
    document.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
