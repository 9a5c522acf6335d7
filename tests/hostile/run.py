"""
One attack from start to end, and what it shows.

    python -m tests.hostile.run [--objects N] [--seed S] [--no-admission] [--folder FOLDER]

Writes FOLDER/hostile.json, keeps the logs beside it, and ends with 1 where `report` finds a problem
or a time beyond its bound. Everything runs on 127.0.0.1; the requests are bounded in number, the
clients are `attack.CLIENTS`.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.binaries.progress import Lines
from tests.cluster.pod_watch import Stream
from tests.hostile import attack, neighbour, report, requests
from tests.hostile.attack import Attack
from tests.hostile.census import Census
from tests.hostile.neighbour import Neighbour
from tests.hostile.site import POOL, Site

Json = dict[str, Any]

OBJECTS: Final = 20_000
SEED: Final = 20
RESULT: Final = "hostile.json"


def run(
    binaries: Binaries, folder: Path, *, objects: int, seed: int, admission: bool = True
) -> Json:
    """The figures of one attack."""
    with Site(binaries, folder, admission=admission) as site:
        hostile = site.user(requests.NAMESPACE)
        quiet = site.user(neighbour.NAMESPACE)
        stream = Stream(site.plane, neighbour.NAMESPACE)
        lease, start = site.lease(), time.monotonic()
        census: Census | None = None

        def hopeless() -> bool:
            return census is not None and census.hopeless

        sender = Attack(hostile, site.admin, seed=seed, count=objects, stop=hopeless)
        census = Census(site.watched(), sent=lambda: sender.sent, before_revival=sender.purge)
        with census, Neighbour(quiet, stream, node_labels=POOL, labels=site.stamps) as other:
            with sender:
                sender.wait()
            seconds = time.monotonic() - start
            other.finish(*([0.0] if census.hopeless else []))
            census.inspect()
            shown, cpu = neighbour.summary(other), census.cpu_seconds()
        return {
            "seed": seed,
            "admission": admission,
            "seconds": round(seconds),
            "attack": attack.summary(sender),
            "neighbour": shown,
            "ends": [asdict(end) for end in census.ends],
            "silences": census.silences(),
            "cpu_seconds": cpu,
            "scheduler_metrics": site.figures(),
            "lease": {"before": lease, "after": site.lease()},
            "tracebacks": {name: tracebacks(log) for name, log in site.logs().items()},
        }


def tracebacks(log: Path) -> int:
    """How often a process wrote the trace of an exception, which ended it or not."""
    return log.read_text("utf-8", errors="replace").count("Traceback (most recent call last)")


def main(arguments: Sequence[str]) -> int:
    """The long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.run")
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--no-admission", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("build") / "hostile")
    options = parser.parse_args(arguments)
    version = os.environ.get("KUBENEXUS_TEST_KUBERNETES", versions.DEFAULT_KUBERNETES)
    binaries = locate.get(version, env=os.environ, show=Lines(print))
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        try:
            result = run(
                binaries,
                Path(scratch),
                objects=options.objects,
                seed=options.seed,
                admission=not options.no_admission,
            )
        finally:
            shutil.copytree(Path(scratch) / "logs", options.folder / "logs", dirs_exist_ok=True)
    (options.folder / RESULT).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(report.table(result))
    wrong = [*report.problems(result), *report.slow(result)]
    print("\n".join(wrong) or "no process ended, no lease was lost, the other tenant was served")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
