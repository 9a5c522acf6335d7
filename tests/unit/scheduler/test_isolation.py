"""One object that breaks the scheduler's own code concerns that object alone."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kubenexus.why import render as why
from scheduler.errors import CorruptState, ErrorStep
from scheduler.isolation import IsolatedPart, Isolation, brief
from scheduler.queueing.entry import QueueState
from scheduler.report.metrics import Metrics
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer
from tests.unit.scheduler.faults import Bug, Faults, broken_nodes

GOOD = [f"good-{number}" for number in range(4)]
NOTE = (
    "the scheduler failed on pod ns/bad (Bug: filter of bad) and tries it again in 5s, or when it"
    " changes; other pods are not affected. Check the values on the pod for extremes, and report"
    " the error with the scheduler's log"
)


@dataclass(frozen=True)
class Marked:
    """Marked pods, and how they wait."""

    pods: tuple[str, ...]
    create: Callable[[Bench], None]


def one(bench: Bench) -> None:
    bench.pod("bad")


def gang(bench: Bench) -> None:
    """One member of three is marked."""
    for name in ("bad-0", "g-1", "g-2"):
        bench.pod(name, gang=("g", 3))


SINGLE = Marked(("bad",), one)
GANG = Marked(("bad-0", "g-1", "g-2"), gang)


def errors(bench: Bench) -> dict[str, float]:
    """Isolated errors by step."""
    counts = {
        step.value: bench.metrics.errors.labels(step.value)._value.get()  # no public reader
        for step in ErrorStep
    }
    return {step: count for step, count in counts.items() if count}


def state(bench: Bench, pod: str) -> QueueState | None:
    key = bench.scheduler.queue.key(f"uid-{pod}")
    return None if key is None else bench.scheduler.queue.state(key)


def arrive(bench: Bench, marked: Marked) -> None:
    bench.node("a", cpu="8")
    bench.node("b", cpu="8")
    for name in GOOD[:2]:
        bench.pod(name)
    marked.create(bench)
    for name in GOOD[2:]:
        bench.pod(name)


@pytest.mark.parametrize("marked", [SINGLE, GANG], ids=["pod", "gang"])
@pytest.mark.parametrize("seam", ["filter", "score", "charge", "uncharge"])
def test_an_error_about_one_unit_leaves_all_others_as_they_are(seam: str, marked: Marked) -> None:
    async def meets(faults: Faults, api: FakeApiServer | None) -> Bench:
        bench = faults.bench(api)
        arrive(bench, marked)
        await bench.settle()
        bench.show_all()
        nodes = bench.api.nodes()
        assert all(nodes[name] for name in GOOD), "every other pod is bound"
        assert not any(nodes[name] for name in marked.pods), "no member of the unit is"
        assert {state(bench, name) for name in marked.pods} == {QueueState.QUARANTINED}
        assert bench.scheduler.queue.quarantined() == 1
        assert errors(bench) == {"plan": 1}
        assert sorted(name for name, _ in bench.events("SchedulerError")) == sorted(marked.pods)
        assert not bench.scheduler.cache_mismatches()
        assert broken_nodes(bench) == []
        return bench

    async def story() -> None:
        faults = Faults(seam)
        bench = await meets(faults, None)
        for name in GOOD:
            bench.delete(name)
        bench = await meets(faults, bench.api)  # a restarted scheduler, and the same objects
        faults.armed.clear()
        await bench.settle(5.0)
        bench.show_all()
        assert all(bench.api.nodes().values())
        assert bench.scheduler.queue.quarantined() == 0
        assert not bench.scheduler.cache_mismatches()

    asyncio.run(story())


def test_users_and_operators_learn_of_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> Bench:
        bench = Faults("filter").bench()
        arrive(bench, SINGLE)
        await bench.settle()
        return bench

    with caplog.at_level(logging.ERROR):
        bench = asyncio.run(story())
    (line,) = caplog.records
    assert (line.message, vars(line)["step"], vars(line)["about"]) == (
        "isolated an error",
        "plan",
        "ns/bad",
    )
    assert line.exc_info is not None
    assert isinstance(line.exc_info[1], Bug)
    assert bench.events("SchedulerError") == [("bad", NOTE)]
    answer = bench.scheduler.explain("ns", "bad")
    assert answer is not None
    assert list(why.lines(answer)) == [
        "pod ns/bad: quarantined after an error of the scheduler for 0ms, tried 1 time",
        "  Bug: filter of bad; tried again in 5s, or when the pod changes; other pods are not"
        " affected",
    ]
    assert asyncio.run(conditions(bench)) == [("bad", "SchedulerError", NOTE)]


async def conditions(bench: Bench) -> list[tuple[str, str, str]]:
    return [row for row in await bench.write_conditions() if row[0] == "bad"]


def test_a_state_that_cannot_be_rebuilt_ends_the_process() -> None:
    async def story() -> None:
        faults = Faults("charge")
        bench = faults.bench()
        bench.node("a", cpu="8")
        faults.armed.clear()
        bench.pod("bad-0", node="a")
        faults.armed.add("charge")
        bench.pod("bad-1")
        await bench.settle()

    with pytest.raises(CorruptState, match="node a cannot be rebuilt"):
        asyncio.run(story())


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


def test_a_part_that_fails_pauses_longer_each_time_and_is_never_due_meanwhile() -> None:
    clock, ticks, fails = Clock(), list[float](), [True]

    def tick() -> None:
        ticks.append(clock.now)
        if fails[0]:
            raise Bug

    isolation = Isolation(Metrics())
    part = IsolatedPart(
        isolation, ErrorStep.BACKFILL, tick, now=lambda: clock.now, next_at=lambda: clock.now
    )
    due = []
    for _ in range(9):
        part.tick()
        due.append(part.next_at())
        clock.now = due[-1] or 0.0
    assert ticks == [100.0, 101.0, 103.0, 107.0, 115.0, 131.0, 163.0, 223.0, 283.0]
    fails[0] = False
    part.tick()
    assert part.next_at() == clock.now


def test_a_broken_state_is_not_isolated() -> None:
    with pytest.raises(CorruptState), Isolation(Metrics()).step(ErrorStep.PLAN, "p"):
        raise CorruptState


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(ValueError("year 1 is\n out of range"), "ValueError: year 1 is out of range"),
        pytest.param(Bug(), "Bug:"),
        pytest.param(Bug("x" * 500), "Bug: " + "x" * 194 + "…", id="long"),
    ],
)
def test_errors_in_one_line(error: Exception, want: str) -> None:
    assert brief(error) == want
