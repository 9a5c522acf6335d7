"""
`make bench-docs`: the tables of docs/performance.md from what the benchmarks left in build/bench.

Each table stands between two marks that name its benchmark; a benchmark that was not run leaves
its table as it is. Most benchmarks leave rows; the scheduler's leaves samples and renders itself.
"""

import json
import re
import sys
from pathlib import Path

from tests.bench import scheduler_report
from tests.bench.rows import FOLDER

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"


def table(name: str) -> str | None:
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    if name == "scheduler":
        return scheduler_report.markdown(json.loads(path.read_text()))
    lines = [
        "| Figure | Measured | Reach | Holds | Spread | Note |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in json.loads(path.read_text()):
        holds = "yes" if row["holds"] else "**no**"
        cells = (row["figure"], row["measured"], row["reach"], holds, row["spread"], row["note"])
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines)


def rendered(page: str) -> str:
    for name in re.findall(r"<!-- bench (\S+) -->", page):
        found = table(name)
        if found is not None:
            start = page.index(f"<!-- bench {name} -->\n") + len(f"<!-- bench {name} -->\n")
            page = page[:start] + found + "\n" + page[page.index("<!-- end -->", start) :]
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
    sys.exit(0)
