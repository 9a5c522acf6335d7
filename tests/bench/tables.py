"""
`make bench-docs`: the tables of the pages in docs/ from what the benchmarks left in build/bench.

Each table stands between two marks that name its benchmark; a benchmark that was not run leaves
its table as it is. Most benchmarks leave rows; those of the scheduler, of hardware and of tenancy
leave samples and render themselves, the latter two with a plot.
"""

import json
import re
import sys
from pathlib import Path

from tests.bench import (
    hardware_plot,
    hardware_report,
    scheduler_report,
    tenancy_plot,
    tenancy_report,
)
from tests.bench.rows import FOLDER

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "performance.md", DOCS / "placement.md", DOCS / "tenancy.md")
PLOT = DOCS / "placement-trace.svg"
TENANCY_PLOT = DOCS / "tenancy.svg"
HARDWARE = "hardware-"  # one benchmark, several tables


def table(name: str) -> str | None:
    if name.startswith(HARDWARE):
        part, known = name.removeprefix(HARDWARE), hardware_report.read()
        return hardware_report.markdown(known, part) if known and known.get(part) else None
    if name == "tenancy":
        found = tenancy_report.read()
        return tenancy_report.markdown(found) if found else None
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


def plot() -> str | None:
    """The curves of the trace's main list of tasks."""
    known = (hardware_report.read() or {}).get("trace", [])
    samples = [one for one in known if one["list"] == "default"]
    return hardware_plot.svg(samples, "GPUs in use while tasks arrive") if samples else None


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rendered(page.read_text()))
    if (drawn := plot()) is not None:
        PLOT.write_text(drawn)
    if (tenants := tenancy_report.read()) is not None:
        TENANCY_PLOT.write_text(tenancy_plot.svg(tenants["samples"]))
    sys.exit(0)
