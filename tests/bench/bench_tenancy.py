"""
`make bench-tenancy`: three tenants on a recorded GPU cluster in virtual time, beside other strategies.

    fifo, greedy, ours   at 90 %, 110 % and 130 % demand, the same work for all, several seeds
    ours, guessed        the same work at 110 %, with guessed expected durations

Runs in this process and needs no API server: jobs, strategies and figures are those of `kubenexus
simulate --for … --compare` (`virtual_time.engine`, `virtual_time.wait_statistics`). Figures go to
build/bench/tenancy.json, measurements to tenancy-raw.json; `make bench-docs` makes the tables and
the plot of docs/tenancy.md.
"""

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubenexus.simulate.virtual_time import engine
from tests.bench import rows, scheduler_results, tenancy_figures, tenancy_report, tenancy_trace
from tests.bench.hardware_trace import TraceError

TRACE: Final = Path(__file__).parents[3] / "shared" / "data" / "openb"
DEMANDS: Final = (0.9, 1.1, 1.3)
FIRST_SEED: Final = 11


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_tenancy", description="Share a recorded cluster between three tenants."
    )
    parser.add_argument("--trace", type=Path, default=TRACE, help="folder of the trace's CSV files")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each strategy and demand")
    parser.add_argument("--hours", type=float, default=6.0, help="of arrivals, in virtual time")
    parser.add_argument("--every", type=int, default=40, help="one of so many hosts of the trace")
    parser.add_argument("--quick", action="store_true", help="one seed, 110 %% demand, two hours")
    parser.add_argument("--report", action="store_true", help="measure nothing, show the tables")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    results = rows.read_raw(tenancy_report.NAME)
    if not chosen.report:
        try:
            results = {**_about(chosen), "samples": measured(chosen)}
        except TraceError as exc:
            print(exc, file=sys.stderr)
            return 2
        if not chosen.quick:
            rows.write_raw(tenancy_report.NAME, results)
    if results is None:
        print("no measurements yet; run `make bench-tenancy`", file=sys.stderr)
        return 2
    figures, text = tenancy_report.report(results), f"\n{tenancy_report.markdown(results)}"
    if chosen.quick:
        print(text)
        return 0 if all(row.holds for row in figures) else 1
    return rows.publish(tenancy_report.NAME, figures, text=text)


def measured(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    trace, gangs = tenancy_trace.read(chosen.trace)
    nodes = tenancy_trace.hosts(trace, chosen.every)
    gpus = sum(node.gpus for node in nodes)
    hours, seeds = (2.0, 1) if chosen.quick else (chosen.hours, chosen.seeds)
    samples = []
    for demand, strategy, guess in _rounds(quick=chosen.quick):
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            jobs = tenancy_trace.work(
                gangs, gpus, demand=demand, hours=hours, seed=seed, guess=guess
            )
            run = engine.run(nodes, jobs, strategy, tables=tenancy_trace.tables())
            figures = tenancy_figures.figures(jobs, run, gpus, tenancy_trace.WEIGHTS)
            about = {
                "demand": demand,
                "seed": seed,
                "strategy": strategy,
                "hours": hours,
                "gpus": gpus,
            }
            samples.append({**about, "guessed": guess is not None, **figures})
            print(tenancy_report.line(samples[-1]), flush=True)
    return samples


def _rounds(*, quick: bool) -> Iterator[tuple[float, str, tenancy_trace.Guess | None]]:
    """FIFO and greedy do not read durations: guesses change nothing there."""
    for demand in (tenancy_report.JUDGED,) if quick else DEMANDS:
        for strategy in engine.STRATEGIES:
            yield demand, strategy, None
        if demand == tenancy_report.JUDGED:
            yield demand, engine.OURS, tenancy_trace.Guess()


def _about(chosen: argparse.Namespace) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": scheduler_results.code(),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
