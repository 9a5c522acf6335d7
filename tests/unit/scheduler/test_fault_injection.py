"""
An error at any point of the scheduler's code about one unit: all others are bound, nothing is left
half-done, and the unit is bound once the error is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.faults import MARK, FaultAtCall, Faults, broken_nodes
from tests.unit.scheduler.tenancy.builders import STARTED, leader, tables
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Thousands of tracebacks, all of them wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


GOOD = [f"good-{number}" for number in range(4)]
DURATION = {"scheduling.kubenexus.io/expected-duration": "1h"}
TENANT = {"tenant.kubenexus.io/name": "t"}


def nothing(bench: Bench) -> None:
    """The marked unit fits as soon as no error comes."""


# --- situations: what waits, and what lets the marked unit fit in the end ---


@dataclass(frozen=True)
class Situation:
    name: str
    marked: Callable[[Bench], None]
    free: Callable[[Bench], None] = nothing
    small: bool = False  # the nodes have capacity for the others alone


def a_pod_that_fits(bench: Bench) -> None:
    bench.pod("bad")


def a_gang_that_fits(bench: Bench) -> None:
    for name in ("bad-0", "g-1", "g-2"):
        bench.pod(name, gang=("g", 3))


def a_leader(bench: Bench) -> None:
    leader(bench, "bad", 3)


def too_large(bench: Bench) -> None:
    bench.pod("bad", cpu="8")


def a_preemptor(bench: Bench) -> None:
    bench.pod("bad", cpu="4", priority=10)


def over_quota(bench: Bench) -> None:
    bench.pod("bad", cpu="4", labels=TENANT)


def another_node(bench: Bench) -> None:
    bench.node("c", cpu="16")


def more_quota(bench: Bench) -> None:
    bench.scheduler.adopt(tables(t={"max": {"cpu": "100"}}))


FITS = Situation("a pod that fits", a_pod_that_fits)
GANG = Situation("a gang that fits", a_gang_that_fits)
LEADER = Situation("a leader whose members are to come", a_leader)
LARGE = Situation("a pod that fits nowhere", too_large, another_node, small=True)
PREEMPTOR = Situation("a preemptor", a_preemptor, small=True)
QUOTA = Situation("a pod over quota", over_quota, more_quota)
ALL = [FITS, GANG, LEADER, LARGE, PREEMPTOR, QUOTA]


def arrive(bench: Bench, situation: Situation) -> None:
    bench.scheduler.adopt(tables(t={"max": {"cpu": "1"}}))
    bench.node("a", cpu="4" if situation.small else "8")
    bench.node("b", cpu="4" if situation.small else "8")
    if situation.small:
        bench.pod("runs", node="a", cpu="4", owner="job", annotations=DURATION, status=STARTED)
    for name in GOOD[:2]:
        bench.pod(name, priority=20)
    situation.marked(bench)
    for name in GOOD[2:]:
        bench.pod(name, priority=20)


async def pass_time(bench: Bench, seconds: float, times: int) -> None:
    for _ in range(times):
        await bench.settle(seconds)
        for name in bench.api.evicted:
            bench.api.pods.pop(name, None)  # its kubelet has ended it
        bench.show_all()


def check_others(bench: Bench) -> None:
    nodes = bench.api.nodes()
    assert [name for name in GOOD if not nodes[name]] == [], "every other pod is bound"
    assert not bench.scheduler.cache_mismatches()
    assert broken_nodes(bench) == []


def check_end(bench: Bench) -> None:
    """All is bound, and nothing is left of the error."""
    assert {name for name, node in bench.api.nodes().items() if not node} == set()
    assert not bench.scheduler.cache_mismatches()
    assert broken_nodes(bench) == []
    parts = bench.scheduler
    assert (parts.queue.quarantined(), len(parts.failed_events), parts.binding) == (0, 0, 0)
    assert parts.binding_cycles.pods_in_flight == 0
    used = parts.accounts.ledger.state()
    parts.accounts.ledger.broken = True
    parts.accounts.repair()
    assert parts.accounts.ledger.state() == used


def is_marked(name: str) -> bool:
    return name.startswith(MARK)


# --- an error at every function that the scheduler calls ---


@dataclass(frozen=True)
class Entry:
    """A step of the scheduler, and which of its calls concern the marked unit."""

    name: str
    owner: Callable[[Bench], object]
    method: str
    concerns: Callable[[Any], bool]


def schedules_marked(unit: Any) -> bool:
    return any(is_marked(pod.key.name) for pod in unit.pods)


SCHEDULE = Entry("schedule", lambda bench: bench.scheduler.cycle, "schedule", schedules_marked)
PUT_POD = Entry(
    "put", lambda bench: bench.scheduler, "_on_pod", lambda event: is_marked(event.key[1])
)
PUT_NODE = Entry("node", lambda bench: bench.scheduler, "_on_node", lambda event: True)


async def with_fault(entry: Entry, situation: Situation, number: int) -> tuple[Bench, FaultAtCall]:
    """The first call of the entry that concerns the marked unit fails at its n-th call."""
    bench = Faults().bench(reservations=FakeReservations() if situation is LEADER else None)
    fault = FaultAtCall(number)
    owner, met = entry.owner(bench), list[bool]()
    step = getattr(owner, entry.method)

    def call(about: Any) -> None:
        if met or not entry.concerns(about):
            step(about)
            return
        met.append(True)
        with fault:
            step(about)

    setattr(owner, entry.method, call)
    arrive(bench, situation)
    await pass_time(bench, 1.0, 3)
    return bench, fault


def numbers(fault: FaultAtCall) -> list[int]:
    """The first call of each function, and some of the last ones, which often undo."""
    first = {calls[0] for calls in fault.functions.values()}
    last = [calls[-1] for calls in fault.functions.values() if len(calls) > 1]
    return sorted(first | set(last[::6]))


@pytest.mark.parametrize("situation", ALL, ids=lambda situation: situation.name)
@pytest.mark.parametrize("entry", [SCHEDULE, PUT_POD, PUT_NODE], ids=lambda entry: entry.name)
def test_an_error_at_any_function(entry: Entry, situation: Situation) -> None:
    async def story() -> None:
        _, fault = await with_fault(entry, situation, 10**9)
        assert fault.calls, "the situation meets the step"
        for number in numbers(fault):
            bench, hit = await with_fault(entry, situation, number)
            try:
                check_others(bench)
                situation.free(bench)
                await pass_time(bench, 20.0, 4)
                check_end(bench)
            except Exception as error:
                raise AssertionError(f"after an error at call {number}, {hit.at}") from error

    asyncio.run(story())
