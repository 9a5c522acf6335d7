"""The one format of build/bench/NAME.json, for every benchmark, from small made-up measurements."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import (
    bench_http,
    bench_policy,
    bench_steps,
    hardware_report,
    rows,
    scheduler_reach,
    tables,
    tenancy_report,
    webhook_report,
)
from tests.bench.wrk import Load
from tests.unit.bench import measurements

KEYS = {
    "figure": (str,),
    "measured": (float, type(None)),
    "reach": (str,),
    "holds": (bool,),
    "spread": (str,),
    "note": (str,),
}


def policy() -> list[rows.Row]:
    times = {"bare": [1e-4, 1.1e-4], "evaluate": [1.5e-4, 1.6e-4], "crowded": [1.6e-4, 1.6e-4]}
    return bench_policy.report(times, 1.25)


def webhook() -> list[rows.Row]:
    loads = [Load(1200.0, 1.0, 4.0, 0, cpu_ms=0.5, rss_mb=90.0), Load(1100.0, 1.1, 4.2, 0)]
    arms = dict.fromkeys(("none", *webhook_report.SHARES), loads)
    return webhook_report.report(loads, arms, arms)


BENCHES: dict[str, Callable[[], list[rows.Row]]] = {
    "hardware": lambda: hardware_report.report(measurements.hardware()),
    "http": lambda: bench_http.report([(11.0, 5.0), (12.0, 5.5)]),
    "policy": policy,
    "scheduler": lambda: scheduler_reach.report(measurements.scheduler()),
    "steps": lambda: bench_steps.report(measurements.steps()),
    "tenancy": lambda: tenancy_report.report(measurements.tenancy()),
    "webhook": webhook,
}


def test_every_benchmark_of_the_makefile_is_checked_here() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    names = {line.split(":")[0] for line in makefile.splitlines() if line.startswith("bench-")}
    assert names - {"bench-docs"} == {f"bench-{name}" for name in BENCHES}


@pytest.mark.parametrize("name", BENCHES)
def test_the_file_of_a_benchmark_is_a_list_of_rows(name: str, tmp_path: Path) -> None:
    found = BENCHES[name]()
    rows.write(name, found, folder=tmp_path)
    written = json.loads(rows.path(name, folder=tmp_path).read_text())
    assert len(written) == len(found) > 0
    for row in written:
        assert list(row) == list(KEYS)
        assert all(type(row[key]) in types for key, types in KEYS.items())
        assert re.fullmatch(r"[≤≥] -?[0-9.]+", row["reach"])
    assert rows.read(name, folder=tmp_path) == found


@pytest.mark.parametrize("name", BENCHES)
def test_a_table_has_a_line_for_each_row(name: str) -> None:
    found = BENCHES[name]()
    head, _, *lines = rows.markdown(found).splitlines()
    assert head == "| Figure | Measured | Reach | Holds | Spread | Note |"
    assert [line.split(" | ")[0] for line in lines] == [f"| {row.figure}" for row in found]


@pytest.mark.parametrize(
    ("row", "want"),
    [
        pytest.param(rows.at_most("f", 2.0, 2.0, spread="s"), ("≤ 2", True), id="at the bound"),
        pytest.param(rows.at_most("f", 2.1, 2.0, spread="s"), ("≤ 2", False), id="above it"),
        pytest.param(rows.at_least("f", 0.5, 0.45, spread="s"), ("≥ 0.45", True), id="at least"),
        pytest.param(rows.at_least("f", 0.4, 0.45, spread="s"), ("≥ 0.45", False), id="below it"),
        pytest.param(rows.at_most("f", None, 5.0, spread="s"), ("≤ 5", False), id="not measured"),
    ],
)
def test_whether_a_figure_holds(row: rows.Row, want: tuple[str, bool]) -> None:
    assert (row.reach, row.holds) == want


def test_a_benchmark_that_was_not_run_leaves_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "table", lambda name: None)
    page = "<!-- bench policy -->\nolder\n<!-- end -->\n"
    assert tables.rendered(page) == page
    monkeypatch.setattr(tables, "table", lambda name: f"table of {name}")
    assert tables.rendered(page) == "<!-- bench policy -->\ntable of policy\n<!-- end -->\n"
