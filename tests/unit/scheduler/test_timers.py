"""
An idle scheduler sleeps until the time that its components name, and acts then: not later, not in
between, not in a busy loop.

Each situation ends in quiet: no watch event arrives. `follow_timers` moves the clock only to the
times at which the scheduler wants to wake up, and lists what happened at each of them.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from cluster import errors
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import (
    backfill,
    leader,
    pending_pod,
    running_pod,
    tenant_pod,
)
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations
from tests.unit.scheduler.tenancy.reservation.tenant_scene import TenantReservationScene
from tests.unit.scheduler.tenancy.reservation.tenant_scene import at as time_at

pytestmark = pytest.mark.timeout(60)

Happened = list[tuple[float, str]]

_MAX_WAKEUPS = 200


async def follow_timers(bench: Bench, until: float) -> Happened:
    """What happens at which time, while nothing but the clock moves."""
    happened: Happened = []
    for _ in range(_MAX_WAKEUPS):
        due = bench.scheduler._next_at()
        if due is None or due > until:
            return happened
        before = _state(bench)
        at = bench.now = max(due, bench.now)
        await bench.settle()
        happened += [(round(at, 3), text) for text in _new(before, _state(bench))]
    raise AssertionError(f"woke up {_MAX_WAKEUPS} times until {bench.now}")


def _state(bench: Bench) -> list[str]:
    attempts = sum(
        sample.value
        for metric in bench.metrics.attempts.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )
    placed = sorted(f"{name} on {node}" for name, node in bench.api.nodes().items() if node)
    reported = [f"{report.reason} {report.regarding.name}" for report in bench.reports]
    evicted = [f"{name} evicted" for name in (*bench.api.evicted, *bench.api.deletes)]
    return ["attempt"] * int(attempts) + placed + reported + evicted


def _new(before: list[str], after: list[str]) -> list[str]:
    old = Counter(before)
    new = []
    for text in after:
        old[text] -= 1
        if old[text] < 0:
            new.append(text)
    return new


story = Stories()


@story(
    200.0,
    [(101.0, "GangWaiting g-0"), (110.1, "GangTimedOut g-0")],
    id="a gang that stays incomplete",
)
async def incomplete_gang(bench: Bench) -> None:
    bench.node("n")
    bench.pod("g-0", gang=("g", 2))


@story(
    200.0,
    [(101.0, "attempt"), (101.0, "p on n"), (101.0, "Scheduled p")],
    id="backoff after a failed bind",
)
async def backoff(bench: Bench) -> None:
    bench.node("n")
    bench.api.faults.append(errors.Refused("may not"))
    bench.pod("p")


@story(
    700.0,
    [
        (400.0, "attempt"),
        (400.0, "FailedScheduling p"),
        (700.0, "attempt"),
        (700.0, "FailedScheduling p"),
    ],
    id="an unschedulable pod is tried every five minutes",
)
async def unschedulable(bench: Bench) -> None:
    bench.node("n")
    bench.pod("p", cpu="9")


@story(
    470.0,
    [(400.0, "attempt"), (400.0, "FailedScheduling p"), (411.0, "StartDelayed p")],
    id="a unit is tried at its reserved start; it is late after the slack",
)
async def start_reservation(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n", gpus=2)
    running_pod(bench, "r", "n", "300s")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await bench.settle(1.0)


@story(
    400.0,
    [
        (101.0, "StartEstimated q"),
        (300.0, "attempt"),
        (300.0, "FailedScheduling p"),
        (311.0, "StartDelayed p"),
        (371.0, "attempt"),
        (371.0, "FailedScheduling p"),
        (382.0, "StartDelayed p"),
        (400.0, "attempt"),
        (400.0, "FailedScheduling q"),
    ],
    id="of two reserved starts each is tried at its own",
)
async def two_start_reservations(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    for name, seconds in (("n1", "300s"), ("n2", "200s")):
        bench.node(name, gpus=2)
        running_pod(bench, f"r-{name}", name, seconds)
    pending_pod(bench, "p", "1h", gpus=2)
    pending_pod(bench, "q", "1h", gpus=2)


@story(
    300.0,
    [(220.0, "StartEstimated p")],
    id="a start that could not be estimated is estimated again",
)
async def start_estimated_again(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n", gpus=2)
    running_pod(bench, "r", "n", "300s")
    running_pod(bench, "endless", "n")
    pending_pod(bench, "p", "1h", gpus=2)
    await bench.settle()
    await follow_timers(bench, 200.0)
    bench.delete("endless")


@story(
    200.0,
    [(101.0, "StartEstimated q")],
    id="a unit whose start cannot be estimated keeps no other waiting",
)
async def start_of_the_second_unit(bench: Bench) -> None:
    bench.scheduler.adopt(backfill())
    bench.node("n", gpus=2)
    running_pod(bench, "r", "n", "300s")
    pending_pod(bench, "p", "1h", gpus=4, priority=5, preemptionPolicy="Never")
    pending_pod(bench, "q", "1h", gpus=2)


@story(
    900.0,
    [
        (400.0, "attempt"),
        (400.0, "FailedScheduling new"),
        (400.0, "Preempted low"),
        (400.0, "Preempting new"),
        (400.0, "low evicted"),
        (700.0, "attempt"),
        (700.0, "FailedScheduling new"),
        (700.0, "Preempted low"),
        (700.0, "Preempting new"),
        (700.0, "low evicted"),
    ],
    id="a victim that does not terminate",
)
async def victim_does_not_terminate(bench: Bench) -> None:
    bench.node("n", gpus=1)
    tenant_pod(bench, "a", "low", node="n")
    tenant_pod(bench, "a", "new", priority=10)


@story(
    702.0,
    [
        (101.0, "attempt"),
        (101.0, "a-driver on n"),
        (101.0, "GangWaiting a-driver"),
        (101.0, "Scheduled a-driver"),
        (101.0, "GangScheduled a-driver"),
        (701.0, "ReservationEnded a-driver"),
    ],
    id="members that a leader does not create",
)
async def members_are_not_created(bench: Bench) -> None:
    bench.node("n", cpu="4")
    leader(bench, "a", 3)


@story(
    720.0,
    [
        (460.0, "attempt"),
        (460.0, "attempt"),
        (460.0, "small on a"),
        (460.0, "FailedScheduling g-0"),
        (460.0, "FailedScheduling g-1"),
        (460.0, "Scheduled small"),
    ],
    id="nodes are held for a starving gang until the hold expires",
)
async def node_hold_expires(bench: Bench) -> None:
    bench.node("a", cpu="2")
    bench.pod("old", node="a", schedulerName="other")
    for i in range(2):
        bench.pod(f"g-{i}", gang=("g", 2), created="2025-01-01T00:00:00Z")
    await bench.settle()
    await follow_timers(bench, 400.0)
    bench.pod("small")


@story(
    1100.0,
    [
        (600.0, "attempt"),
        (600.0, "FailedScheduling p"),
        (900.0, "attempt"),
        (900.0, "FailedScheduling p"),
        (1000.0, "ReservationEnded r"),
        (1000.0, "attempt"),
        (1000.0, "p on m"),
        (1000.0, "Scheduled p"),
    ],
    id="capacity that is reserved for another tenant",
)
async def tenant_reservation_ends(bench: Bench) -> None:
    scene = TenantReservationScene(bench=bench)
    scene.reserve(count=2, resources={"cpu": "4"}, **{"from": time_at(300.0)})
    scene.reserve(
        "q",
        tenant="u",
        count=1,
        resources={"cpu": "1"},
        **{"from": time_at(150.0)},
        until=time_at(200.0),
    )
    await bench.settle()
    await follow_timers(bench, 400.0)
    scene.pod("p", "4")


@story(
    111.0,
    [(110.1, "GangReleased g-0"), (110.1, "g-0 evicted")],
    id="a gang that stays partial is evicted",
)
async def partial_gang(bench: Bench) -> None:
    bench.node("a", cpu="2")
    bench.pod("old", node="a", schedulerName="other")
    bench.pod("g-0", gang=("g", 2), node="a", owner="job")
    bench.pod("g-1", gang=("g", 2), owner="job")
    await bench.settle()


@pytest.mark.parametrize(("story", "until", "want"), story.rows)
def test_stories(story: Callable[[Bench], Awaitable[None]], until: float, want: Happened) -> None:
    async def run() -> Happened:
        bench = Bench(reservations=FakeReservations())
        await story(bench)
        await bench.settle()
        return await follow_timers(bench, until)

    assert asyncio.run(run()) == want
