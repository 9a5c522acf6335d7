"""
The one format of benchmark results: a list of rows in build/bench/NAME.json.

A row is one figure with a goal:

    figure     what was measured, with its unit
    measured   the value; null: the run did not measure it, and then it does not hold
    reach      the bound to reach, as "≤ 2" or "≥ 0.45"
    holds      whether `measured` is within the bound
    spread     how far the rounds lay apart
    note       what a reader should know beside it

Benchmarks that run in pieces, or whose page shows more than figures, keep their measurements in
build/bench/NAME-raw.json and make their rows from them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "build" / "bench"
HEADINGS = ("Figure", "Measured", "Reach", "Holds", "Spread", "Note")


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    measured: float | None
    reach: str
    holds: bool
    spread: str
    note: str = ""


def at_most(
    figure: str, measured: float | None, bound: float, *, spread: str, note: str = ""
) -> Row:
    holds = measured is not None and measured <= bound
    return Row(figure, _rounded(measured), f"≤ {bound:g}", holds, spread, note)


def at_least(
    figure: str, measured: float | None, bound: float, *, spread: str, note: str = ""
) -> Row:
    holds = measured is not None and measured >= bound
    return Row(figure, _rounded(measured), f"≥ {bound:g}", holds, spread, note)


def _rounded(measured: float | None) -> float | None:
    return None if measured is None else round(float(measured), 3)


# --- files ---


def path(name: str, *, folder: Path = FOLDER) -> Path:
    return folder / f"{name}.json"


def raw_path(name: str, *, folder: Path = FOLDER) -> Path:
    return folder / f"{name}-raw.json"


def read(name: str, *, folder: Path = FOLDER) -> list[Row] | None:
    """The rows of a benchmark; None: it was not run."""
    file = path(name, folder=folder)
    return [Row(**row) for row in json.loads(file.read_text())] if file.exists() else None


def write(name: str, rows: Sequence[Row], *, folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False)
    path(name, folder=folder).write_text(f"{text}\n")


def read_raw(name: str) -> dict[str, Any] | None:
    file = raw_path(name)
    return json.loads(file.read_text()) if file.exists() else None


def write_raw(name: str, measurements: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    raw_path(name).write_text(json.dumps(measurements, indent=1) + "\n")


def publish(name: str, rows: Sequence[Row], *, text: str | None = None) -> int:
    """Write the rows, print them or `text`; the exit code says whether all of them hold."""
    write(name, rows)
    print(text if text is not None else "\n".join(map(line, rows)))
    return 0 if all(row.holds for row in rows) else 1


# --- text ---


def line(row: Row) -> str:
    verdict = "holds" if row.holds else "MISSED"
    return (
        f"{row.figure:<58} {_shown(row.measured):>12} (reach {row.reach}) {verdict}"
        f"  [{row.spread}] {row.note}"
    )


def markdown(rows: Sequence[Row]) -> str:
    return table(
        HEADINGS,
        [
            (
                row.figure,
                _shown(row.measured),
                row.reach,
                "yes" if row.holds else "**no**",
                row.spread,
                row.note,
            )
            for row in rows
        ],
    )


def table(headings: Sequence[str], body: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(headings)} |", f"| {' | '.join('---' for _ in headings)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, cells))} |" for cells in body)])


def _shown(measured: float | None) -> str:
    return "not measured" if measured is None else str(measured)
