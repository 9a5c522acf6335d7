"""
The scheduler's Prometheus metrics.

Names begin with `kubenexus_scheduler_`, those about gangs with `kubenexus_gang_`. Labels have few
values, all known beforehand: never a namespace, a gang, a pod or a node. Each `Metrics` has its own
registry, so that two schedulers in one process do not collide. Gauges of values that other parts
hold (queue, cache, Events) are read on scrape.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from scheduler.errors import ErrorStep
from scheduler.report.steps import StepTimer

logger = logging.getLogger(__name__)

_PREFIX: Final = "kubenexus_scheduler_"
_GANG: Final = "kubenexus_gang_"
_PLANNING: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
_BINDING: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
_WAITING: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

RESULTS: Final = ("placed", "unschedulable", "over_quota", "bind_failed", "bind_refused", "error")
STEPS: Final = ("search", "abandoned", "evicted", "refused", "placed", "wasted")
PROVISIONING: Final = ("pending", "provisioned", "failed")
OUTCOMES: Final = ("scheduled", "unschedulable", "timed_out", "released", "retained")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.steps = StepTimer()
        self.registry.register(self.steps)
        self.scheduled = self._counter(f"{_PREFIX}scheduled", "Pods bound to a node.")
        self.attempts = self._counters(
            f"{_PREFIX}attempts", "Scheduling attempts of units, by result.", "result", RESULTS
        )
        self.errors = self._counters(
            f"{_PREFIX}errors",
            "Errors in the scheduler itself, each isolated to one object, by step; any is a bug.",
            "step",
            [step.value for step in ErrorStep],
        )
        self.planning = self._histogram(
            f"{_PREFIX}planning_seconds", "Time to plan one unit.", _PLANNING
        )
        self.binding = self._histogram(
            f"{_PREFIX}bind_seconds",
            "Time to bind all pods of a plan.",
            _BINDING,
        )
        self.waiting = self._histogram(
            f"{_PREFIX}waiting_seconds",
            "Time from a complete unit to its plan.",
            _WAITING,
        )
        self.gangs = self._counters(
            f"{_GANG}scheduling_decisions", "Decisions on gangs, by outcome.", "outcome", OUTCOMES
        )
        self.gang_waiting = self._histogram(
            f"{_GANG}waiting_time_seconds", "Time from a complete gang to its plan.", _WAITING
        )
        self.gang_completion = self._histogram(
            f"{_GANG}completion_latency_seconds",
            "Time from the first member of a gang to its last bind.",
            _WAITING,
        )
        self.preemption = self._counters(
            f"{_PREFIX}preemption",
            "Victim searches, abandoned searches, evictions, refused and wasted evictions, placed "
            "preemptors.",
            "step",
            STEPS,
        )
        self.provisioning = self._counters(
            f"{_PREFIX}provisioning_requests",
            "ProvisioningRequests created for gangs, by phase.",
            "phase",
            PROVISIONING,
        )
        self.holds = self._counter(
            f"{_GANG}starvation_preventions", "Starving gangs for which nodes were held."
        )

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Register a gauge that is read on scrape."""
        gauge = Gauge(f"{_PREFIX}{name}", text, registry=self.registry)
        gauge.set_function(partial(self._read, read))

    def watch_each(
        self, name: str, text: str, label: str, values: Iterable[str], read: Callable[[str], float]
    ) -> None:
        """Register such a gauge for each value of one label."""
        gauge = Gauge(f"{_PREFIX}{name}", text, labelnames=(label,), registry=self.registry)
        for value in values:
            gauge.labels(value).set_function(partial(self._read, partial(read, value)))

    def _read(self, read: Callable[[], float]) -> float:
        """NaN for a value that cannot be read: the others are served."""
        try:
            return read()
        except Exception as error:
            self.errors.labels(ErrorStep.METRICS.value).inc()
            logger.error("cannot read a gauge", exc_info=error)
            return float("nan")

    def render(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _counters(self, name: str, text: str, label: str, values: Iterable[str]) -> Counter:
        counter = Counter(name, text, labelnames=(label,), registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)
