"""
The measurements of the scheduler benchmark, in one file: build/bench/scheduler-raw.json.

    {"run": …, "machine": {…}, "samples": [sample …], "restarts": [sample …], "planning": [sample …]}

A run may be made in pieces: each piece adds its samples to the run it names. A repeated sample of
the same run (same case, scheduler and round) replaces the older one. Each sample has the code that
it was measured on.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kubenexus.dev.binaries import versions
from tests.bench import rows

NAME: Final = "scheduler"
FILE: Final = rows.raw_path(NAME)
ROOT: Final = Path(__file__).parents[2]
SECTIONS: Final = ("samples", "restarts", "planning")
PRODUCT: Final = ("kubenexus", "scheduler", "cluster", "policies")

Sample = dict[str, Any]
Results = dict[str, Any]


def new_run(now: datetime) -> str:
    return now.strftime("%Y%m%dT%H%M%SZ")


def empty(run: str) -> Results:
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kubernetes": versions.DEFAULT_KUBERNETES,
        "etcd": versions.ETCD,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    return {"run": run, "machine": machine, **{section: [] for section in SECTIONS}}


def read(path: Path = FILE) -> Results | None:
    return json.loads(path.read_text()) if path.exists() else None


def open_run(run: str | None, *, now: datetime, path: Path = FILE) -> Results:
    """The results to add to: the run that is named, or a new one; another run is set aside."""
    known = read(path)
    if run is not None and known is not None and known["run"] == run:
        return known
    if known is not None:
        path.rename(path.with_name(f"{path.stem}-{known['run']}.json"))
    return empty(run or new_run(now))


def add(results: Results, section: str, sample: Sample, *, path: Path = FILE) -> None:
    """Take one sample in and write the file: what is measured is not lost by an interruption."""
    others = [earlier for earlier in results[section] if _key(earlier) != _key(sample)]
    results[section] = [*others, sample]
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(_rounded(results), indent=1) + "\n")
    scratch.replace(path)


def stamp(now: datetime | None = None) -> Sample:
    """When, and of what code."""
    at = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    return {"at": at, "code": code()}


def code() -> str:
    """The commit, and a digest of the product's files: equal digests are equal code."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return f"{done.stdout.strip() or 'no-commit'}+{digest.hexdigest()[:12]}"


def _sources() -> Iterable[Path]:
    return (path for package in PRODUCT for path in (ROOT / package).rglob("*.py"))


def _key(sample: Sample) -> tuple[Any, ...]:
    return tuple(sample.get(part) for part in ("case", "peer", "round"))


def _rounded(value: Any) -> Any:
    """Six digits are more than was measured."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
