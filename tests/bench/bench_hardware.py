"""
`make bench-hardware`: what hardware rules cost planning, and how full they get a GPU cluster.

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
    found = parser.parse_args(arguments)
    if found.quick:
        found.rounds = found.seeds = 1
    found.part = found.part or [PLANNING, REPLAY]
    return found


def main(arguments: Sequence[str]) -> int:
    asked = options(arguments)
    known = rows.read_raw(hardware_report.NAME) or {}
    if not asked.report:
        try:
            found = measured(asked)
        except TraceError as exc:
            print(exc, file=sys.stderr)
            return 2
        about = {**known.get("about", {}), **dict.fromkeys(found, _about())}
        known = {**known, **found, "about": about}
        rows.write_raw(hardware_report.NAME, known)
    if not known:
        print("nothing was measured yet; run `make bench-hardware`", file=sys.stderr)
        return 2
    return rows.publish(
        hardware_report.NAME, hardware_report.report(known), text=hardware_report.text(known)
    )


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    """A part that is not asked for keeps what an earlier run found."""
    found: dict[str, Any] = {}
    if REPLAY in asked.part:
        found[REPLAY] = _replays(asked)
    if PLANNING in asked.part:
        sizes = hardware_planning.SIZES[:1] if asked.quick else hardware_planning.SIZES
        cases = hardware_planning.all_cases(sizes)
        found[PLANNING] = []
        for sample in hardware_planning.measure(cases, rounds=asked.rounds):
            found[PLANNING].append(sample)
            print(hardware_report.line(sample), flush=True)
    return found


def _replays(asked: argparse.Namespace) -> list[dict[str, Any]]:
    found = []
    for name in LISTS[:1] if asked.quick else LISTS:
        trace = read(asked.trace, name)
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds):
            for policy in hardware_replay.POLICIES:
                one = hardware_replay.replay(trace, policy, seed=seed)
                about = {"list": name, "tasks": len(trace.tasks), "gpus": trace.gpus}
                sample = {**about, **one.sample()}
                found.append(sample)
                print(hardware_report.line(sample), flush=True)
    return found


def _about() -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": scheduler_results.code(),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
