"""CPU time of the steps of the event loop: histogram, longest step, and a log line over budget."""

import logging

import pytest

from scheduler.report.metrics import Metrics
from scheduler.report.steps import BUDGET, LoopStep, StepTimer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(timer: StepTimer, clock: Clock, step: LoopStep, *seconds: float) -> None:
    for took in seconds:
        with timer(step):
            clock.now += took


def test_steps_are_counted_by_kind_and_duration() -> None:
    clock = Clock()
    timer = StepTimer(clock)
    run(timer, clock, LoopStep.PLAN, 0.00005, 0.003, 0.003, 7.0)
    run(timer, clock, LoopStep.WATCH, 0.02)
    steps, longest = timer.collect()
    plans = {
        s.labels["le"]: s.value
        for s in steps.samples
        if s.labels.get("step") == "plan" and "le" in s.labels
    }
    assert (plans["0.0001"], plans["0.005"], plans["5.0"], plans["+Inf"]) == (1, 3, 3, 4)
    assert {s.labels["step"]: s.value for s in longest.samples if s.value} == {
        "plan": pytest.approx(7.0),
        "watch": pytest.approx(0.02),
    }
    step, seconds = timer.longest()
    assert (step, round(seconds, 6)) == (LoopStep.PLAN, 7.0)


def test_a_step_over_budget_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    timer = StepTimer(clock)
    with caplog.at_level(logging.WARNING):
        run(timer, clock, LoopStep.REQUEUE, BUDGET)
        run(timer, clock, LoopStep.TENANCY, BUDGET * 2)
    assert [(r.message, r.__dict__["step"], r.__dict__["cpu_seconds"]) for r in caplog.records] == [
        ("step over budget", "tenancy", 0.2)
    ]


def test_a_step_that_fails_is_counted_too() -> None:
    clock = Clock()
    timer = StepTimer(clock)

    def fail() -> None:
        with timer(LoopStep.PLAN):
            clock.now += 1.0
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    assert timer.longest() == (LoopStep.PLAN, 1.0)


def test_the_scheduler_exports_them() -> None:
    text = Metrics().render().decode()
    assert 'kubenexus_scheduler_step_seconds_count{step="plan"} 0.0' in text
    assert 'kubenexus_scheduler_step_longest_seconds{step="requeue"} 0.0' in text
