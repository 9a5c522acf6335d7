"""
How much CPU time the steps of the event loop take.

    with metrics.steps(LoopStep.PLAN):
        ...

A step runs without interruption: watches, binds and lease renewals wait for its end. Each kind of
step has a histogram and its longest duration; a step over budget is logged with its name. CPU time
of the thread is measured, so that a busy machine does not count against a step.
"""

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from enum import StrEnum
from types import TracebackType
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

logger = logging.getLogger(__name__)

BUDGET: Final = 0.1  # seconds
BUCKETS: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_SECONDS: Final = "kubenexus_scheduler_step_seconds"
_LONGEST: Final = "kubenexus_scheduler_step_longest_seconds"


class LoopStep(StrEnum):
    """Kinds of steps."""

    WATCH = "watch"
    POLICIES = "policies"
    REQUEUE = "requeue"
    TENANCY = "tenancy"
    TIMERS = "timers"
    QUEUE = "queue"
    PLAN = "plan"
    EXPLAIN = "explain"


class StepClock:
    """Measures the steps of one kind; they do not nest."""

    __slots__ = ("_began", "_clock", "_name", "counts", "longest", "seconds")

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._began = 0.0
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self.longest = 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        took = self._clock() - self._began
        self.counts[bisect_left(BUCKETS, took)] += 1
        self.seconds += took
        if took > self.longest:
            self.longest = took
        if took > BUDGET:
            logger.warning(
                "step over budget",
                extra={"step": self._name, "cpu_seconds": round(took, 3), "budget": BUDGET},
            )


class StepTimer(Collector):
    """One per scheduler: a clock for each kind of step, exported as metrics."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clocks = {step: StepClock(step.value, clock) for step in LoopStep}

    def __call__(self, step: LoopStep) -> StepClock:
        return self._clocks[step]

    def longest(self) -> tuple[LoopStep, float]:
        """The slowest step so far, and its CPU time."""
        step = max(self._clocks, key=lambda step: self._clocks[step].longest)
        return step, self._clocks[step].longest

    def collect(self) -> Iterable[Metric]:
        steps = HistogramMetricFamily(
            _SECONDS, "CPU time of one step of the event loop.", labels=("step",)
        )
        longest = GaugeMetricFamily(
            _LONGEST, "The longest such step since the start.", labels=("step",)
        )
        for step, clock in self._clocks.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, BUCKETS), "+Inf"), clock.counts, strict=True):
                total += count
                buckets.append((bound, total))
            steps.add_metric((step.value,), buckets, clock.seconds)
            longest.add_metric((step.value,), clock.longest)
        return (steps, longest)
