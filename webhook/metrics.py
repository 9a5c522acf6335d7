"""
Prometheus metrics of the webhook, with bounded labels: verdicts and paths, never object names.

Under gunicorn each worker counts in its own files (`PROMETHEUS_MULTIPROC_DIR`, set before this
module is imported); `exposition` returns the sums.
"""

import os
from collections import Counter as Tally
from collections.abc import Mapping
from functools import lru_cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = CONTENT_TYPE_LATEST

REVIEWS = Counter(
    "kubenexus_webhook_reviews_total",
    "Admission reviews answered, by path and verdict.",
    ["path", "verdict"],
)
SECONDS = Histogram(
    "kubenexus_webhook_review_seconds",
    "Time from request body to answer, by path.",
    ["path"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 3.0),
)
POLICIES = Gauge(
    "kubenexus_webhook_policies",
    "Policies in force.",
    multiprocess_mode="livemin",
)
POLICY_FAULTS = Gauge(
    "kubenexus_webhook_policy_faults",
    "Faults of the newest policies; above zero, the last good set is served instead.",
    multiprocess_mode="livemax",
)
RULES_MISSING = Gauge(
    "kubenexus_webhook_rules_missing",
    "Operations on resources that policies name and the API server does not send yet.",
    multiprocess_mode="livemax",
)
UNREADABLE = Counter(
    "kubenexus_webhook_unreadable_total",
    "Request bodies that were no AdmissionReview.",
)
EVENTS = Counter(
    "kubenexus_webhook_events_total",
    "Events reported, by reason; repeats are counted too.",
    ["reason"],
)
EVENTS_WRITTEN = Counter(
    "kubenexus_webhook_events_written_total",
    "Writes of Events that the API server accepted; repeats share a write.",
)
EVENTS_DROPPED = Counter(
    "kubenexus_webhook_events_dropped_total",
    "Events that never reached the API server, by cause.",
    ["why"],
)
EVENTS_WAITING = Gauge(
    "kubenexus_webhook_events_waiting",
    "Events in the queue of the writers.",
    multiprocess_mode="livesum",
)


class EventCounts:
    """Copies the totals of one recorder, which counts for itself, into the metrics."""

    def __init__(self) -> None:
        self._written = 0
        self._dropped: Tally[str] = Tally()

    def take(self, *, written: int, dropped: Mapping[str, int], waiting: int) -> None:
        EVENTS_WRITTEN.inc(written - self._written)
        for why, count in dropped.items():
            EVENTS_DROPPED.labels(why).inc(count - self._dropped[why])
        EVENTS_WAITING.set(waiting)
        self._written, self._dropped = written, Tally(dropped)


@lru_cache
def _of(path: str, allowed: bool) -> tuple[Counter, Histogram]:
    """The counters of one path and verdict: looking them up costs more than counting."""
    name, verdict = path.strip("/"), "allowed" if allowed else "denied"
    return REVIEWS.labels(name, verdict), SECONDS.labels(name)


def review(path: str, *, allowed: bool, seconds: float) -> None:
    """Count an answered review."""
    reviews, duration = _of(path, allowed)
    reviews.inc()
    duration.observe(seconds)


def exposition() -> bytes:
    """The text of all metrics of all workers."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus-client leaves it untyped
    return generate_latest(registry)
