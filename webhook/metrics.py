"""
What the webhook counts, with bounded labels: verdicts and paths, never names of users' objects.

Under gunicorn each worker counts in its own files (`PROMETHEUS_MULTIPROC_DIR`, set before this
module is imported) and `exposition` adds them up, whichever process answers.
"""

import os

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
UNREADABLE = Counter(
    "kubenexus_webhook_unreadable_total",
    "Request bodies that were no AdmissionReview.",
)


def exposition() -> bytes:
    """The text of all metrics of all workers."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # prometheus-client leaves it untyped
    return generate_latest(registry)
