"""
An error at any point of the scheduler's code about one unit: all others are bound, nothing is left
half-done, and the unit is bound once the error is gone.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.queueing.entry import QueueState
from scheduler.report.metrics import Metrics
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import FakeApiServer
from tests.unit.scheduler.faults import MARK, Bug, FaultAtCall, Faults, broken_nodes
from tests.unit.scheduler.tenancy.builders import STARTED, leader, tables
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations

pytestmark = pytest.mark.timeout(600)


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
    """First calls of functions, at most `KUBENEXUS_FAULT_CALLS` of them, spread over the step."""
    first = sorted(calls[0] for calls in fault.functions.values())
    most = int(os.environ.get("KUBENEXUS_FAULT_CALLS", "40"))
    return first[:: -(-len(first) // most)]


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


# --- an error that stays, at each collaborator ---


@dataclass(frozen=True)
class Seam:
    """A collaborator's method that raises for the marked unit as long as the seam is armed."""

    name: str
    situation: Situation
    step: str
    owner: Callable[[Bench], object]
    method: str

    def install(self, faults: Faults, bench: Bench) -> None:
        owner = self.owner(bench)
        call = getattr(owner, self.method)

        def raising(*args: Any, **options: Any) -> Any:
            if any(map(about_marked, args)):
                faults.check(self.name, MARK)
            return call(*args, **options)

        setattr(owner, self.method, raising)


def about_marked(argument: object) -> bool:
    """Whether the argument names a marked pod, or holds one."""
    names = [argument]
    names += [getattr(argument, "key", None), *(getattr(argument, "pods", None) or ())]
    placements = getattr(argument, "placements", None) or argument
    if isinstance(placements, tuple | list):
        names += [placement.pod for placement in placements if hasattr(placement, "pod")]
    names += [getattr(argument, "pod", None)]
    texts = [str(getattr(name, "key", name)) for name in names if name is not None]
    return any(is_marked(text.rpartition("/")[2]) for text in texts)


def prebind(bench: Bench) -> object:
    return bench.scheduler.binding_cycles._prebind


def evictor(bench: Bench) -> object:
    return bench.scheduler.tenancy.preemption._evictor


SEAMS = [
    Seam("plan", FITS, "plan", lambda bench: bench.scheduler.tenancy, "plan"),
    Seam("quota", FITS, "plan", lambda bench: bench.scheduler.tenancy.quota, "constraint"),
    Seam("placed", FITS, "plan", lambda bench: bench.scheduler.tenancy, "placed"),
    Seam("assume", FITS, "plan", lambda bench: bench.scheduler.cache, "assume"),
    Seam("start", FITS, "plan", lambda bench: bench.scheduler.queue, "start_binding"),
    Seam("prebind", FITS, "bind", prebind, "waits_for_volumes"),
    Seam("claims", FITS, "bind", prebind, "allocate_claims"),
    Seam("reserve", LEADER, "bind", prebind, "write_reservation"),
    Seam("bind", FITS, "bind", lambda bench: bench.api, "bind"),
    Seam("misfit", LARGE, "plan", lambda bench: bench.scheduler.queue, "mark_unschedulable"),
    Seam("preempt", PREEMPTOR, "plan", lambda bench: bench.scheduler.tenancy.preemption, "preempt"),
    Seam("evict", PREEMPTOR, "preemption", evictor, "evict"),
    Seam(
        "estimate", LARGE, "backfill", lambda bench: bench.scheduler.tenancy.backfill, "_estimate"
    ),
    Seam("provision", LARGE, "plan", lambda bench: bench.scheduler.provisioning, "misfit"),
    Seam("hold", LARGE, "plan", lambda bench: bench.scheduler.recovery, "hold"),
    Seam("over quota", QUOTA, "plan", lambda bench: bench.scheduler.queue, "mark_over_quota"),
]


def marked_states(bench: Bench) -> set[QueueState | None]:
    queue = bench.scheduler.queue
    keys = {queue.key(f"uid-{name}") for name in bench.api.pods if is_marked(name)}
    return {None if key is None else queue.state(key) for key in keys}


def isolated(bench: Bench) -> set[str]:
    """Steps with isolated errors."""
    lines = bench.metrics.render().decode().splitlines()
    rows = [line for line in lines if line.startswith("kubenexus_scheduler_errors_total{")]
    return {row.split('"')[1] for row in rows if not row.endswith(" 0.0")}


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.name)
def test_an_error_that_stays(seam: Seam) -> None:
    async def meets(faults: Faults, api: FakeApiServer | None) -> Bench:
        reservations = FakeReservations() if seam.situation is LEADER else None
        bench = faults.bench(api, reservations=reservations)
        seam.install(faults, bench)
        arrive(bench, seam.situation)
        await pass_time(bench, 1.0, 4)
        check_others(bench)
        assert marked_states(bench) == {QueueState.QUARANTINED}
        assert isolated(bench) == {seam.step}
        assert {name for name, _ in bench.events("SchedulerError")} == {
            name for name in bench.api.pods if is_marked(name)
        }
        return bench

    async def story() -> None:
        faults = Faults(seam.name)
        bench = await meets(faults, None)
        for name in GOOD:
            bench.delete(name)
        bench = await meets(faults, bench.api)  # a restarted scheduler, and the same objects
        faults.armed.clear()
        seam.situation.free(bench)
        await pass_time(bench, 20.0, 4)
        check_end(bench)

    asyncio.run(story())


def test_an_error_of_a_writer_costs_its_write_alone() -> None:
    """The condition of the marked pod cannot be written: its scheduling goes on."""

    async def story() -> tuple[set[str], set[str], str]:
        faults = Faults("condition")
        bench = faults.bench()
        patch = bench.api.patch_status

        async def raising(resource: Any, name: str, *args: Any, **options: Any) -> Any:
            faults.check("condition", name)
            return await patch(resource, name, *args, **options)

        bench.api.patch_status = raising  # type: ignore[method-assign]  # no fake has such a bug
        for name in ("bad", "p", "q"):
            bench.pod(name)
        await bench.settle()
        written = {name for name, _, _ in await bench.write_conditions()}
        bench.node("a")
        await bench.settle(10.0)
        return written, isolated(bench), bench.api.nodes()["bad"]

    assert asyncio.run(story()) == ({"p", "q"}, {"condition"}, "a")


def test_an_explanation_that_fails_is_an_answer() -> None:
    async def story() -> dict[str, Any] | None:
        faults = Faults()
        bench = faults.bench()
        bench.node("a", cpu="1")
        bench.pod("bad", cpu="2")
        await bench.settle()
        faults.armed.add("filter")
        return bench.scheduler.explain("ns", "bad")

    assert asyncio.run(story()) == {
        "pod": "ns/bad",
        "state": "not explained: the scheduler failed to explain it",
        "message": "Bug: filter of bad",
    }


def test_a_gauge_that_fails_hides_no_other() -> None:
    metrics = Metrics()

    def broken() -> float:
        raise Bug

    metrics.watch("broken", "Fails.", broken)
    metrics.watch("sound", "Works.", lambda: 1.0)
    page = metrics.render().decode()
    assert "kubenexus_scheduler_broken NaN" in page
    assert "kubenexus_scheduler_sound 1.0" in page


def test_policies_that_cannot_be_adopted_leave_the_others_in_force() -> None:
    async def story() -> tuple[object, ...]:
        bench = Bench()
        good, bad = tables(t={"max": {"cpu": "1"}}), tables(t={"max": {"cpu": "9"}})
        bench.scheduler.adopt(good)
        adopt = bench.scheduler.accounts.adopt

        def raising(tables: Any) -> None:
            if tables is bad.policy:
                raise Bug
            adopt(tables)

        bench.scheduler.accounts.adopt = raising  # type: ignore[method-assign]  # no other way
        bench.scheduler.adopt(bad)
        remaining = bench.scheduler.accounts.ledger.remaining("t", "cpu")
        return bench.scheduler.cache.snapshot.tables is good, remaining, isolated(bench)

    assert asyncio.run(story()) == (True, 1000, {"policy"})
