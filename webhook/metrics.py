"""
Prometheus metrics of the webhook, with bounded labels: verdicts and paths, never object names.

Under gunicorn each worker counts in its own files (`PROMETHEUS_MULTIPROC_DIR`, set before this
module is imported); `exposition` returns the sums.

    worker ──counts──▶ counter_PID.db, histogram_PID.db, gauge_*_PID.db ──▶ exposition: sums
    worker ends ─────▶ forget_workers: counts move to *_ended.db, its gauges are removed

Counting never fails for its caller: a folder that is missing or full costs a figure and a log
line, and no review. So the metrics are private to this module, and callers use its functions.
"""

import contextlib
import fcntl
import logging
import os
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

CONTENT_TYPE = CONTENT_TYPE_LATEST
QUIET_SECONDS: Final = 60.0  # between two log lines about counts that fail

_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_ADDED: Final = ("counter", "histogram")  # kinds whose values outlive their worker
_ENDED: Final = "ended"  # stands for the process id in the files of ended workers
_LOCK: Final = "lock"

_REVIEWS = Counter(
    "kubenexus_webhook_reviews_total",
    "Admission reviews answered, by path and verdict.",
    ["path", "verdict"],
)
_SECONDS = Histogram(
    "kubenexus_webhook_review_seconds",
    "Time from request body to answer, by path.",
    ["path"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0),
)
_POLICIES = Gauge(
    "kubenexus_webhook_policies",
    "Policies in force.",
    multiprocess_mode="livemin",
)
_POLICY_FAULTS = Gauge(
    "kubenexus_webhook_policy_faults",
    "Faults of the newest policies; above zero, the last good set is served instead.",
    multiprocess_mode="livemax",
)
_RULES_MISSING = Gauge(
    "kubenexus_webhook_rules_missing",
    "Operations on resources that policies name and the API server does not send yet.",
    multiprocess_mode="livemax",
)
_UNREADABLE = Counter(
    "kubenexus_webhook_unreadable_total",
    "Request bodies that were no AdmissionReview.",
)
_EVENTS = Counter(
    "kubenexus_webhook_events_total",
    "Events reported, by reason; repeats are counted too.",
    ["reason"],
)
_EVENTS_WRITTEN = Counter(
    "kubenexus_webhook_events_written_total",
    "Writes of Events that the API server accepted; repeats share a write.",
)
_EVENTS_DROPPED = Counter(
    "kubenexus_webhook_events_dropped_total",
    "Events that never reached the API server, by cause.",
    ["why"],
)
_EVENTS_WAITING = Gauge(
    "kubenexus_webhook_events_waiting",
    "Events in the queue of the writers.",
    multiprocess_mode="livesum",
)


_INTERNAL_ERRORS = Counter(
    "kubenexus_webhook_internal_errors_total",
    "Exceptions while a request was served, by step; the request is denied where it decides.",
    ["step"],
)
_OVERLOADED = Counter(
    "kubenexus_webhook_overload_rejections_total",
    "Requests rejected because too many bytes waited for a decision.",
)


class _Guard:
    """Runs what counts; a failure is logged, at most once a minute, and goes no further."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            now = self._clock()
            if now >= self._quiet_until:
                self._quiet_until = now + QUIET_SECONDS
                logger.exception("counting failed; the metrics are incomplete")


_guarded: Final = _Guard()


class EventCounts:
    """Copies the totals of one recorder, which counts for itself, into the metrics."""

    def __init__(self) -> None:
        self._written = 0
        self._dropped: Tally[str] = Tally()

    def take(self, *, written: int, dropped: Mapping[str, int], waiting: int) -> None:
        with _guarded():
            _EVENTS_WRITTEN.inc(written - self._written)
            for why, count in dropped.items():
                _EVENTS_DROPPED.labels(why).inc(count - self._dropped[why])
            _EVENTS_WAITING.set(waiting)
        self._written, self._dropped = written, Tally(dropped)


@lru_cache
def _of(path: str, allowed: bool) -> tuple[Counter, Histogram]:
    """The counters of one path and verdict: looking them up costs more than counting."""
    name, verdict = path.strip("/"), "allowed" if allowed else "denied"
    return _REVIEWS.labels(name, verdict), _SECONDS.labels(name)


def review(path: str, *, allowed: bool, seconds: float) -> None:
    """Count an answered review."""
    with _guarded():
        reviews, duration = _of(path, allowed)
        reviews.inc()
        duration.observe(seconds)


def unreadable() -> None:
    """Count a request body that is no review."""
    with _guarded():
        _UNREADABLE.inc()


def event(reason: str) -> None:
    """Count a reported Event."""
    with _guarded():
        _EVENTS.labels(reason).inc()


def overloaded() -> None:
    """Count a request that is rejected because too many wait."""
    with _guarded():
        _OVERLOADED.inc()


def internal_error(step: str) -> None:
    """Count an exception of our own; `step` is one of a few fixed words."""
    with _guarded():
        _INTERNAL_ERRORS.labels(step).inc()


def policies(*, in_force: int, faults: int) -> None:
    """Show the policies in force, and the faults of the newest ones."""
    with _guarded():
        _POLICIES.set(in_force)
        _POLICY_FAULTS.set(faults)


def rules_missing(count: int) -> None:
    """Show how many operations that policies name are not sent yet."""
    with _guarded():
        _RULES_MISSING.set(count)


def exposition() -> bytes:
    """The text of all metrics of all workers."""
    folder = os.environ.get(_FOLDER)
    if folder is None:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    registry.register(_Workers(Path(folder)))
    with _locked(Path(folder), fcntl.LOCK_SH):
        return generate_latest(registry)


class _Workers(Collector):
    """The files of all workers; one that a worker is about to write is left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def describe(self) -> Iterable[Metric]:
        return ()  # otherwise `register` would read the files

    def collect(self) -> Iterable[Metric]:
        files = [str(path) for path in sorted(self._folder.glob("*.db")) if _has_values(path)]
        found: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]  # prometheus-client leaves it untyped
        return found


def _has_values(path: Path) -> bool:
    """Whether the file has its first size: a worker that starts, or was killed then, has not."""
    return path.stat().st_size > 0


# --- Workers that have ended. ---


def forget_workers(running: Collection[int]) -> None:
    """
    Move the counts of workers that have ended into one file per kind, and remove their gauges.

    Called by the process that starts the workers, after each end of one. What fails now, or finds
    a scrape under way, is done at the next call.
    """
    folder = os.environ.get(_FOLDER)
    if folder is None:
        return
    with _guarded(), contextlib.suppress(BlockingIOError):
        mine = {str(pid) for pid in (*running, os.getpid())} | {_ENDED}
        with _locked(Path(folder), fcntl.LOCK_EX | fcntl.LOCK_NB):
            ended = [path for path in sorted(Path(folder).glob("*.db")) if _pid(path) not in mine]
            for kind in _ADDED:
                _add_up(Path(folder), kind, [p for p in ended if p.name.startswith(f"{kind}_")])
            for pid in sorted({_pid(path) for path in ended}):
                mark_process_dead(pid)  # type: ignore[no-untyped-call]  # prometheus-client leaves it untyped


def _pid(path: Path) -> str:
    return path.stem.rpartition("_")[2]


def _add_up(folder: Path, kind: str, ended: list[Path]) -> None:
    """Add the values of the files to those of all workers that ended before, and remove them."""
    if not ended:
        return
    total, fresh = folder / f"{kind}_{_ENDED}.db", folder / f"{kind}.new"
    sums: dict[str, float] = {}
    for path in filter(_has_values, (*([total] if total.exists() else ()), *ended)):
        for key, value, *_ in MmapedDict.read_all_values_from_file(path):  # type: ignore[no-untyped-call]  # as above
            sums[key] = sums.get(key, 0.0) + value
    fresh.unlink(missing_ok=True)
    written = MmapedDict(fresh)  # type: ignore[no-untyped-call]  # as above
    for key, value in sums.items():
        written.write_value(key, value, 0.0)  # type: ignore[no-untyped-call]  # as above
    written.close()  # type: ignore[no-untyped-call]  # as above
    fresh.replace(total)
    for path in ended:
        path.unlink()


@contextlib.contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """Keep scrapes and `forget_workers` apart, between processes too: no value is read twice."""
    with (folder / _LOCK).open("ab") as lock:
        fcntl.flock(lock, how)
        yield
