"""
One run of the load generator wrk, and what a process beside it spent meanwhile.
"""

import contextlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kubenexus.dev.process.child import Child

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a run; CPU and memory are those of the process beside it."""

    per_second: float
    p50: float
    p99: float
    bad: int
    cpu_ms: float = 0.0
    rss_mb: float = 0.0


def load(url: str, *, script: Path, beside: Child | None, connections: int, seconds: int) -> Load:
    before = _cpu(beside)
    output = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    done = int(_figure(r"(\d+) requests in", output))
    bad = int(_figure(r"Non-2xx or 3xx responses: (\d+)", output, "0"))
    bad += sum(int(n) for n in re.findall(r"(?:connect|read|write|timeout) (\d+)", output))
    return Load(
        float(_figure(r"Requests/sec:\s+([\d.]+)", output)),
        _milliseconds(_figure(r"\n +50% +(\S+)", output)),
        _milliseconds(_figure(r"\n +99% +(\S+)", output)),
        bad,
        (_cpu(beside) - before) * 1000 / max(done, 1),
        _rss(beside),
    )


def _figure(pattern: str, text: str, default: str | None = None) -> str:
    match = re.search(pattern, text)
    if match is None:
        if default is None:
            raise SystemExit(f"wrk said nothing like {pattern!r}:\n{text}")
        return default
    return match[1]


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise SystemExit(f"wrk said {text!r} where a time belongs")


def _family(child: Child | None) -> list[int]:
    """The process and its workers."""
    if child is None or child.pid is None:
        return []
    listed = subprocess.run(
        ["pgrep", "-s", str(child.pid)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


def _cpu(child: Child | None) -> float:
    """Seconds of CPU that the family has spent."""
    total = 0
    for pid in _family(child):
        with contextlib.suppress(FileNotFoundError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def _rss(child: Child | None) -> float:
    """Megabytes of the largest of the family."""
    largest = 0
    for pid in _family(child):
        with contextlib.suppress(FileNotFoundError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            largest = max(largest, pages * os.sysconf("SC_PAGE_SIZE"))
    return largest / 1e6
