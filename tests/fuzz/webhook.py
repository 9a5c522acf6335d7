"""
Fuzzes the webhook for a time or a number of inputs: `python -m tests.fuzz.webhook --seconds 60`.

Prints how many inputs were answered, by status, and the slowest answer, and writes the same to
build/reliability/fuzz.json. The first input that violates the contract, or needs more CPU time than
the API server waits for an answer, ends the run with exit code 1 and is kept in build/fuzz/, from where
`--replay` takes it again. Every run can be repeated with the seed that it prints.
"""

import argparse
import faulthandler
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzz import corpus, mutation
from tests.fuzz.target import Target

FOUND: Final = Path("build") / "fuzz"
COUNTS: Final = Path("build") / "reliability" / "fuzz.json"
PATHS: Final = ("/mutate", "/validate")
REPORT_SECONDS: Final = 30.0
MOST_CPU_SECONDS: Final = 2.0  # the API server waits for 3
STUCK_SECONDS: Final = 60.0  # of one input; nothing in this process could end it
STANDARD_ERROR: Final = 2  # its descriptor: a test may have replaced the stream
LARGE: Final = 4096  # bytes; a larger input is kept before it runs, as it may be the last one


@dataclass
class Slowest:
    """The longest answer, by the clock and by the processor: a busy machine delays any of them."""

    wall: float = 0.0
    cpu: float = 0.0

    def see(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = max(self.wall, wall), max(self.cpu, cpu)


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    target = Target(options.engine)
    if options.replay:
        for path in PATHS:
            print(path, target.run(path, options.replay.read_bytes()))
        return 0
    return _fuzz(target, options)


def _fuzz(target: Target, options: argparse.Namespace) -> int:
    random, seeds = Random(options.seed), corpus.seeds()
    counts: Counter[int] = Counter()
    slowest, started = Slowest(), time.perf_counter()
    reported = started
    print(f"seed {options.seed}", flush=True)
    while _wanted(options, counts.total(), time.perf_counter() - started):
        body = mutation.mutant(random, seeds)
        path = random.choice(PATHS)
        if len(body) > LARGE:
            _keep(body)
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True, file=STANDARD_ERROR)
        before, busy = time.perf_counter(), time.thread_time()
        try:
            counts[target.run(path, body)] += 1
        except Exception as exc:
            print(f"{path} broke after {counts.total()} inputs: {_keep(body)}: {exc!r:.500}")
            return 1
        finally:
            faulthandler.cancel_dump_traceback_later()
        now, cpu = time.perf_counter(), time.thread_time() - busy
        if cpu > options.cpu:
            print(f"{path} took {cpu:.1f} s of CPU after {counts.total()} inputs: {_keep(body)}")
            return 1
        slowest.see(now - before, cpu)
        if now - reported > REPORT_SECONDS:
            reported = now
            print(_line(counts, slowest, now - started), flush=True)
    seconds = time.perf_counter() - started
    print(_line(counts, slowest, seconds))
    _write(options.counts, counts, slowest, seconds)
    return 0


def _wanted(options: argparse.Namespace, count: int, seconds: float) -> bool:
    if options.count is not None:
        return bool(count < options.count)
    return bool(seconds < options.seconds)


def _line(counts: Counter[int], slowest: Slowest, seconds: float) -> str:
    by_status = ", ".join(f"{count} x {status}" for status, count in sorted(counts.items()))
    return (
        f"{counts.total()} inputs in {seconds:.0f} s ({by_status}), no contract violated, "
        f"slowest answer {slowest.wall * 1000:.0f} ms, dearest {slowest.cpu * 1000:.0f} ms of CPU"
    )


def _write(file: Path, counts: Counter[int], slowest: Slowest, seconds: float) -> None:
    row = {
        "inputs": counts.total(),
        "statuses": {str(status): count for status, count in sorted(counts.items())},
        "seconds": round(seconds),
        "slowest_ms": round(slowest.wall * 1000),
        "slowest_cpu_ms": round(slowest.cpu * 1000),
        "broken": 0,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(row, indent=1) + "\n", "utf-8")


def _keep(body: bytes) -> Path:
    FOUND.mkdir(parents=True, exist_ok=True)
    file = FOUND / "webhook.json"
    file.write_bytes(body)
    return file


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fuzz.webhook", description="Fuzz the webhook.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--count", type=int, help="how many inputs, instead of how long")
    parser.add_argument("--seed", type=int, default=time.time_ns(), help="of a run to repeat")
    parser.add_argument(
        "--cpu", type=float, default=MOST_CPU_SECONDS, help="the most CPU seconds of one input"
    )
    parser.add_argument("--engine", help="the CEL engine; default: the first there is")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="where to write the counts")
    parser.add_argument("--replay", type=Path, help="a file with one input")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
