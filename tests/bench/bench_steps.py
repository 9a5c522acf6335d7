"""
`make bench-steps`: how long the event loop of the scheduler is busy without interruption.

Each situation of `step_situations` runs in a process of its own, at several numbers of nodes. The
longest step and the CPU time in total go to build/bench/steps.json, measurements to steps-raw.json;
`make bench-docs` makes the table of docs/performance.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from tests.bench import rows
from tests.bench.step_situations import SITUATIONS, measure

NAME: Final = "steps"
NODES: Final = (1000, 5000, 10_000)
LONGEST: Final = 100.0  # milliseconds of CPU time
GROWTH: Final = 12.0  # from the smallest to the largest number of nodes


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench_steps", description="Measure the longest steps.")
    parser.add_argument("--nodes", type=int, action="append", help="repeat for several")
    parser.add_argument("--only", default="", help="situations whose name contains this")
    parser.add_argument("--quick", action="store_true", help="1,000 nodes alone")
    parser.add_argument("--one", nargs=2, metavar=("SITUATION", "NODES"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        print(json.dumps(measure(chosen.one[0], int(chosen.one[1]))))
        return 0
    sizes = chosen.nodes or (NODES[:1] if chosen.quick else NODES)
    known = {_key(sample): sample for sample in (rows.read_raw(NAME) or {}).get("samples", [])}
    for name in SITUATIONS:
        for nodes in sizes if chosen.only in name else ():
            sample = _in_a_process(name, nodes)
            known[_key(sample)] = sample
            print(_line(sample), flush=True)
            rows.write_raw(NAME, {"samples": list(known.values())})
    return rows.publish(NAME, report(list(known.values())))


def _in_a_process(name: str, nodes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.bench_steps", "--one", name, str(nodes)]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    sample: dict[str, Any] = json.loads(finished.stdout)
    return sample


def _key(sample: dict[str, Any]) -> tuple[str, int]:
    return sample["situation"], sample["nodes"]


def _line(sample: dict[str, Any]) -> str:
    return (
        f"{sample['situation']:<50} {sample['nodes']:>6} nodes  longest {_ms(sample):7.1f} ms"
        f"  total {sample['total']:7.2f} s  forks {sample['forks']:6.2f} s  bound {sample['bound']}"
    )


def _ms(sample: dict[str, Any]) -> float:
    return float(sample["longest"]) * 1000


def report(samples: Sequence[dict[str, Any]]) -> list[rows.Row]:
    """Two rows for each situation: its longest step, and how its CPU time grows with the nodes."""
    found: list[rows.Row] = []
    for name in dict.fromkeys(sample["situation"] for sample in samples):
        own = sorted((s for s in samples if s["situation"] == name), key=lambda s: s["nodes"])
        by_nodes = ", ".join(f"{s['nodes']:,}: {_ms(s):.0f}" for s in own)
        found.append(
            rows.at_most(
                f"{name}: longest step, ms CPU",
                max(map(_ms, own)),
                LONGEST,
                spread=by_nodes,
                note="by number of nodes",
            )
        )
        if len(own) > 1:
            totals = [s["total"] + s["forks"] for s in own]
            found.append(
                rows.at_most(
                    f"{name}: growth of CPU time",
                    totals[-1] / totals[0],
                    GROWTH,
                    spread=", ".join(f"{total:.1f} s" for total in totals),
                    note=f"{own[0]['nodes']:,} to {own[-1]['nodes']:,} nodes, forks included",
                )
            )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
