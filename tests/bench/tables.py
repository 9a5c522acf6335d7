"""
`make bench-docs`: the tables and plots of docs/ from what the benchmarks wrote to build/bench.

A table stands between `<!-- bench NAME -->` and `<!-- end -->`. It shows the rows of the
benchmark; pages of the scheduler, of hardware and of tenancy show their measurements beneath. A
benchmark that was not run leaves its table and its plot as they are.
"""

import re
import sys
from pathlib import Path

from tests.bench import (
    hardware_plot,
    hardware_report,
    rows,
    scheduler_report,
    tenancy_plot,
    tenancy_report,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "performance.md", DOCS / "placement.md", DOCS / "tenancy.md")
HARDWARE_PLOT = DOCS / "placement-trace.svg"
TENANCY_PLOT = DOCS / "tenancy.svg"


def table(name: str) -> str | None:
    """`hardware` has one table for each of its parts: hardware-trace, hardware-planning."""
    bench, _, part = name.partition("-")
    if bench != "steps" and (results := rows.read_raw(bench)) is not None:
        if bench == "scheduler":
            return scheduler_report.markdown(results)
        if bench == "tenancy":
            return tenancy_report.markdown(results)
        return hardware_report.markdown(results, part) if results.get(part) else None
    figures = rows.read(name)
    return None if figures is None else rows.markdown(figures)


def rendered(page: str) -> str:
    for name in re.findall(r"<!-- bench (\S+) -->", page):
        text = table(name)
        if text is not None:
            start = page.index(f"<!-- bench {name} -->\n") + len(f"<!-- bench {name} -->\n")
            page = page[:start] + text + "\n" + page[page.index("<!-- end -->", start) :]
    return page


def draw() -> None:
    if (hardware := rows.read_raw("hardware")) is not None:
        samples = [sample for sample in hardware.get("trace", []) if sample["list"] == "default"]
        if samples:
            title = "GPUs in use while tasks arrive"
            HARDWARE_PLOT.write_text(hardware_plot.svg(samples, title))
    if (tenancy := rows.read_raw("tenancy")) is not None:
        TENANCY_PLOT.write_text(tenancy_plot.svg(tenancy["samples"]))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rendered(page.read_text()))
    draw()
    sys.exit(0)
