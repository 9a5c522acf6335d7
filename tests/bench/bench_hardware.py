"""
`make bench-hardware`: the cost of hardware rules in planning, and the utilisation of a GPU cluster.

    planning   CPU time per pod, with NUMA, GPUs by index and racks, against the plain planner
    trace      a recorded cluster replayed until 130 % of its GPUs are requested, beside other
               placement policies

Both run in this process, one after the other, and need no API server. Figures go to
build/bench/hardware.json, measurements to hardware-raw.json; `make bench-docs` makes the tables and
the plot of docs/placement.md.
"""

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench import hardware_planning, hardware_replay, hardware_report, rows, scheduler_results
from tests.bench.hardware_trace import TraceError, read

TRACE: Final = Path(__file__).parents[3] / "shared" / "data" / "openb"
LISTS: Final = ("default", "multigpu20")
PLANNING, REPLAY = "planning", "trace"
FIRST_SEED: Final = 11


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench_hardware", description="Measure hardware placement in process."
    )
    parser.add_argument(
        "--part", action="append", choices=[PLANNING, REPLAY], help="this part; repeat for several"
    )
    parser.add_argument("--trace", type=Path, default=TRACE, help="folder of the trace's CSV files")
    parser.add_argument("--rounds", type=int, default=5, help="of the planning cases")
    parser.add_argument("--seeds", type=int, default=5, help="replays of each policy and list")
    parser.add_argument("--quick", action="store_true", help="one round, one seed, 1,000 nodes")
    parser.add_argument("--report", action="store_true", help="measure nothing, show the tables")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.rounds = chosen.seeds = 1
    chosen.part = chosen.part or [PLANNING, REPLAY]
    return chosen


def main(arguments: Sequence[str]) -> int:
    chosen = options(arguments)
    known = rows.read_raw(hardware_report.NAME) or {}
    if not chosen.report:
        try:
            parts = measured(chosen)
        except TraceError as exc:
            print(exc, file=sys.stderr)
            return 2
        about = {**known.get("about", {}), **dict.fromkeys(parts, _about())}
        known = {**known, **parts, "about": about}
        rows.write_raw(hardware_report.NAME, known)
    if not known:
        print("no measurements yet; run `make bench-hardware`", file=sys.stderr)
        return 2
    return rows.publish(
        hardware_report.NAME, hardware_report.report(known), text=hardware_report.text(known)
    )


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """A part that is not selected keeps what an earlier run found."""
    parts: dict[str, Any] = {}
    if REPLAY in chosen.part:
        parts[REPLAY] = _replays(chosen)
    if PLANNING in chosen.part:
        sizes = hardware_planning.SIZES[:1] if chosen.quick else hardware_planning.SIZES
        cases = hardware_planning.all_cases(sizes)
        parts[PLANNING] = []
        for sample in hardware_planning.measure(cases, rounds=chosen.rounds):
            parts[PLANNING].append(sample)
            print(hardware_report.line(sample), flush=True)
    return parts


def _replays(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    samples = []
    for name in LISTS[:1] if chosen.quick else LISTS:
        trace = read(chosen.trace, name)
        for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds):
            for policy in hardware_replay.POLICIES:
                replayed = hardware_replay.replay(trace, policy, seed=seed)
                about = {"list": name, "tasks": len(trace.tasks), "gpus": trace.gpus}
                sample = {**about, **replayed.sample()}
                samples.append(sample)
                print(hardware_report.line(sample), flush=True)
    return samples


def _about() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": scheduler_results.code(),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
