"""
What the scheduler counts about itself, for Prometheus: names begin with `kubenexus_scheduler_`.

Each `Metrics` has a registry of its own, so that two schedulers in one process do not meet.
Figures that somebody else keeps (queue, informers, events) are read when they are asked for.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX: Final = "kubenexus_scheduler_"
_PLANNING: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
_BINDING: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)

RESULTS: Final = ("placed", "no_fit", "bind_failed")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.scheduled = Counter(
            f"{_PREFIX}scheduled", "Pods bound to a node.", registry=self.registry
        )
        self.attempts = Counter(
            f"{_PREFIX}attempts",
            "Units tried, by result.",
            labelnames=("result",),
            registry=self.registry,
        )
        for result in RESULTS:
            self.attempts.labels(result)
        self.planning = Histogram(
            f"{_PREFIX}planning_seconds",
            "Time to plan one unit.",
            buckets=_PLANNING,
            registry=self.registry,
        )
        self.binding = Histogram(
            f"{_PREFIX}bind_seconds",
            "Time from a plan to the answer of the API server for all its pods.",
            buckets=_BINDING,
            registry=self.registry,
        )

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A figure that is read when asked for."""
        gauge = Gauge(f"{_PREFIX}{name}", text, registry=self.registry)
        gauge.set_function(read)

    def watch_each(
        self, name: str, text: str, label: str, values: Iterable[str], read: Callable[[str], float]
    ) -> None:
        """The same, for each value of one label."""
        gauge = Gauge(f"{_PREFIX}{name}", text, labelnames=(label,), registry=self.registry)
        for value in values:
            gauge.labels(value).set_function(partial(read, value))

    def render(self) -> bytes:
        return generate_latest(self.registry)
