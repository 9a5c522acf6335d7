"""
What the scheduler counts about itself, for Prometheus.

Names begin with `kubenexus_scheduler_`, those about gangs with `kubenexus_gang_`. Labels have few
values, all known beforehand: never a namespace, a gang, a pod or a node. Each `Metrics` has a
registry of its own, so that two schedulers in one process do not meet. Figures that somebody else
keeps (queue, informers, events) are read when they are asked for.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_PREFIX: Final = "kubenexus_scheduler_"
_GANG: Final = "kubenexus_gang_"
_PLANNING: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
_BINDING: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
_WAITING: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

RESULTS: Final = ("placed", "no_fit", "held_back", "bind_failed", "bind_refused")
STEPS: Final = ("search", "evicted", "refused", "placed", "in_vain")
PROVISIONING: Final = ("asked", "provisioned", "failed")
OUTCOMES: Final = ("scheduled", "no_fit", "timed_out", "released", "kept")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.scheduled = self._counter(f"{_PREFIX}scheduled", "Pods bound to a node.")
        self.attempts = self._counters(
            f"{_PREFIX}attempts", "Units tried, by result.", "result", RESULTS
        )
        self.planning = self._histogram(
            f"{_PREFIX}planning_seconds", "Time to plan one unit.", _PLANNING
        )
        self.binding = self._histogram(
            f"{_PREFIX}bind_seconds",
            "Time from a plan to the answer of the API server for all its pods.",
            _BINDING,
        )
        self.waiting = self._histogram(
            f"{_PREFIX}waiting_seconds",
            "Time from a unit that could be placed to its plan.",
            _WAITING,
        )
        self.gangs = self._counters(
            f"{_GANG}scheduling_decisions", "Gangs, by what was decided.", "outcome", OUTCOMES
        )
        self.gang_waiting = self._histogram(
            f"{_GANG}waiting_time_seconds", "Time from a complete gang to its plan.", _WAITING
        )
        self.gang_completion = self._histogram(
            f"{_GANG}completion_latency_seconds",
            "Time from the first member of a gang to the last bind of a plan.",
            _WAITING,
        )
        self.preemption = self._counters(
            f"{_PREFIX}preemption",
            "Searches for victims, pods evicted, refused and evicted in vain, units placed by it.",
            "step",
            STEPS,
        )
        self.provisioning = self._counters(
            f"{_PREFIX}provisioning_requests",
            "ProvisioningRequests made for gangs, and what autoscalers answered.",
            "phase",
            PROVISIONING,
        )
        self.holds = self._counter(
            f"{_GANG}starvation_preventions", "Gangs for which nodes were held."
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

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _counters(self, name: str, text: str, label: str, values: Iterable[str]) -> Counter:
        counter = Counter(name, text, labelnames=(label,), registry=self.registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, buckets=buckets, registry=self.registry)
