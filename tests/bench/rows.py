"""
Rows of a benchmark: printed as a table, written to build/bench/NAME.json for the tables in docs/.

A row is one figure that was asked for: what was measured, what was to be reached, whether it
holds, how far the runs lay apart, and what a reader should know.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "build" / "bench"

Row = dict[str, Any]


def row(
    figure: str, measured: float, reach: float, *, spread: str, note: str = "", most: bool = True
) -> Row:
    """`most`: the reach is an upper bound, else a lower one."""
    return {
        "figure": figure,
        "measured": round(measured, 3),
        "reach": reach,
        "holds": bool(measured <= reach if most else measured >= reach),
        "spread": spread,
        "note": note,
    }


def publish(name: str, rows: Sequence[Row]) -> int:
    """Write and print the rows; an exit code that says whether all of them hold."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(list(rows), indent=2) + "\n")
    for one in rows:
        verdict = "holds" if one["holds"] else "MISSED"
        print(
            f"{one['figure']:<58} {one['measured']:>9} (reach {one['reach']}) {verdict}"
            f"  [{one['spread']}] {one['note']}"
        )
    return 0 if all(one["holds"] for one in rows) else 1
