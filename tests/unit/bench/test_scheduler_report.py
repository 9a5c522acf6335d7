"""The figures and the measurements of the scheduler benchmark."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.bench import scheduler_reach, scheduler_report, scheduler_results
from tests.bench.bench_scheduler import Bench, options

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CASE = "singles-1200@1000"


def sample(peer: str, number: int = 1, case: str = CASE, **figures: Any) -> dict[str, Any]:
    plain = {"pods": 1200, "bound": 1200, "code": "c", "rss_mb": 100.0, "events": 1200}
    return {"case": case, "peer": peer, "round": number, **plain, **figures}


def results(*samples: dict[str, Any], planning: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    found = scheduler_results.empty("r")
    return {**found, "samples": list(samples), "planning": list(planning)}


def verdicts(found: dict[str, Any]) -> dict[str, tuple[float | None, bool]]:
    return {row.figure: (row.measured, row.holds) for row in scheduler_reach.report(found)}


def test_a_ratio_is_that_of_the_medians() -> None:
    ours = [
        sample("ours", n, pods_per_second=speed) for n, speed in enumerate((310.0, 290.0, 900.0))
    ]
    stock = [
        sample("stock", n, pods_per_second=speed) for n, speed in enumerate((200.0, 10.0, 210.0))
    ]
    found = verdicts(results(*ours, *stock))
    assert found[f"{CASE}: pods/s / stock"] == (1.55, True)


@pytest.mark.parametrize(
    ("cpu", "want"),
    [
        pytest.param(3.2, (0.8, True), id="just reached"),
        pytest.param(3.3, (0.825, False), id="missed"),
    ],
)
def test_an_upper_bound(cpu: float, want: tuple[float, bool]) -> None:
    found = verdicts(results(sample("ours", scheduler_cpu=cpu), sample("stock", scheduler_cpu=4.0)))
    assert found[f"{CASE}: scheduler CPU / stock"] == want


def test_the_faster_of_the_tuned_peers_counts() -> None:
    found = verdicts(
        results(
            sample("ours", case="mixed@250", pods_per_second=300.0),
            sample("native-packed", case="mixed@250", pods_per_second=200.0),
            sample("native-rack-packed", case="mixed@250", pods_per_second=100.0),
        )
    )
    assert found["mixed@250: pods/s / the faster tuned native gang"] == (1.5, False)


def test_the_worst_round_decides_about_placement() -> None:
    found = verdicts(
        results(
            sample("ours", 1, case="mixed@250", nodes_per_gang=1.344, over_racks=0),
            sample("ours", 2, case="mixed@250", nodes_per_gang=1.4, over_racks=1),
        )
    )
    assert (
        found["mixed@250: nodes/gang (bound 1.344)"],
        found["mixed@250: gangs over more than one rack"],
    ) == ((1.4, False), (1, False))


def test_planning_is_measured_by_its_growth() -> None:
    planning = (
        {"case": "planning-singles@1000", "nodes": 1000, "plan_us": 20.0},
        {"case": "planning-singles@5000", "nodes": 5000, "plan_us": 110.0},
    )
    found = verdicts(results(planning=planning))
    assert found == {"planning a pod (singles), 5,000 / 1,000 nodes": (5.5, False)}


def test_a_pod_that_was_never_bound_is_reported() -> None:
    found = verdicts(results(sample("ours", bound=1199)))
    assert found == {"ours: pods not bound and gangs left partial": (1, False)}


def test_a_figure_without_measurements_has_no_row() -> None:
    missing = scheduler_reach.not_measured(results())
    assert (scheduler_reach.report(results()), len(missing)) == ([], len(scheduler_reach.lines()))


def test_pieces_of_a_run_add_up_and_a_repeated_sample_replaces(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    first = scheduler_results.open_run(None, now=NOW, path=path)
    scheduler_results.add(first, "samples", sample("ours", 1, pods_per_second=1.0), path=path)
    second = scheduler_results.open_run(first["run"], now=NOW, path=path)
    scheduler_results.add(second, "samples", sample("ours", 2, pods_per_second=2.0), path=path)
    scheduler_results.add(second, "samples", sample("ours", 1, pods_per_second=3.0), path=path)
    kept = json.loads(path.read_text())
    assert (kept["run"], [(one["round"], one["pods_per_second"]) for one in kept["samples"]]) == (
        "20260102T030405Z",
        [(2, 2.0), (1, 3.0)],
    )


def test_another_run_sets_the_older_one_aside(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    scheduler_results.add(scheduler_results.empty("old"), "samples", sample("ours"), path=path)
    fresh = scheduler_results.open_run("new", now=NOW, path=path)
    assert (fresh["samples"], sorted(one.name for one in tmp_path.iterdir())) == (
        [],
        ["scheduler-old.json"],
    )


def test_the_order_is_rotated_from_round_to_round(tmp_path: Path) -> None:
    selected = options(["--rounds", "3", "--peer", "ours", "--peer", "stock"])
    bench = Bench(None, tmp_path, selected, {})  # type: ignore[arg-type]  # turns need no plane
    turns = bench.turns(("stock", "stock-packed", "ours"))
    assert [(number, peer.name) for number, peer in turns] == [
        (1, "ours"),
        (1, "stock"),
        (2, "stock"),
        (2, "ours"),
        (3, "ours"),
        (3, "stock"),
    ]


def test_the_page_shows_medians_with_their_spread() -> None:
    page = scheduler_report.markdown(
        results(*(sample("ours", n, pods_per_second=float(n)) for n in (100, 300, 200)))
    )
    assert "| ours | 3 | 200 (100-300) | - |" in page
