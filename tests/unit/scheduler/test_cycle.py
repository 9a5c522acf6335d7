"""The cycle: a short way to the planner, and requeueing in slices that keep the order."""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import scheduler
from scheduler import cycle
from scheduler.columns.node_table import Bools
from scheduler.model.pod import Pod
from scheduler.plan import planner
from scheduler.plugins import registry
from scheduler.plugins.protocol import Plugin, Rejection
from scheduler.queueing.retry_line import AT_ONCE
from tests.unit.scheduler.bench import Bench

PACKAGE = str(Path(scheduler.__file__).parent)


def callers(frame: FrameType | None) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def frames_above_the_planner() -> list[str]:
    """The functions of the scheduler between the cycle and the planner, the outermost last."""
    own = [
        one.f_code for one in callers(sys._getframe()) if one.f_code.co_filename.startswith(PACKAGE)
    ]
    inner = next(i for i, code in enumerate(own) if code is planner.plan.__code__)
    outer = next(i for i, code in enumerate(own) if code is cycle.SchedulingCycle.schedule.__code__)
    return [code.co_name for code in own[inner + 1 : outer]]


def test_three_functions_stand_between_the_cycle_and_the_planner() -> None:
    seen: list[list[str]] = []

    class Probe(Plugin):
        """A filter that rejects no node and records its callers."""

        def filter(self, pod: Pod, rows: Bools) -> Iterable[Rejection]:
            seen.append(frames_above_the_planner())
            return ()

    async def story() -> None:
        bench = Bench(registry=(*registry.DEFAULT, Probe))
        bench.node("a")
        bench.pod("p")
        await bench.settle()

    asyncio.run(story())
    assert seen[0] == ["_attempt", "_within_limits", "plan"]


def requeues_one_class_a_slice(bench: Bench) -> None:
    vars(vars(bench.scheduler.cycle)["_requeueing"])["_budget"] = 1


def test_no_pod_overtakes_an_older_one_that_a_slice_has_not_tested_yet() -> None:
    async def story() -> list[str]:
        bench = Bench()
        requeues_one_class_a_slice(bench)
        bench.node("a", cpu="4")
        bench.pod("full", cpu="4", node="a", schedulerName="other")
        for i in range(9):
            bench.pod(f"w{i}", cpu=f"{3001 + i}m", created="2026-01-01T00:00:05Z")
        await bench.settle()  # so that its class is the last to be tested
        bench.pod("oldest", cpu="4", created="2026-01-01T00:00:01Z")
        await bench.settle()
        bench.now += 60.0
        bench.pod("fresh", cpu="2", created="2026-01-01T00:00:09Z")
        bench.delete("full")
        await bench.settle()
        return [name for name, pod in bench.api.pods.items() if pod["spec"].get("nodeName")]

    assert asyncio.run(story()) == ["oldest"]


def test_what_a_slice_leaves_is_due_at_once() -> None:
    bench = Bench()
    requeues_one_class_a_slice(bench)
    bench.node("a", cpu="4")
    for i in range(3):
        bench.pod(f"p{i}", cpu=f"{5 + i}")
    asyncio.run(bench.settle())
    bench.now += 60.0
    quiet = bench.scheduler.cycle.next_at()
    bench.node("b", cpu="8")
    due = []
    for _ in range(3):
        bench.scheduler.cycle.prepare()
        due.append(
            (
                bench.scheduler.cycle.next_at() == bench.now,
                bench.scheduler.cycle.requeueing,
                bench.scheduler.cycle.pop() is None,
            )
        )
    assert quiet is not None
    assert quiet > bench.now
    assert due == [(True, True, True), (True, True, True), (False, False, False)]


def test_thousands_of_speculative_retries_leave_arrivals_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every waiting pod fits by amounts, and its anti-affinity forbids the only node."""
    plans = 0
    plan = planner.plan

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal plans
        plans += 1
        return plan(*args, **more)

    monkeypatch.setattr(planner, "plan", counted)
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "foe"}},
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}

    async def story() -> tuple[list[int], set[str]]:
        nonlocal plans
        bench = Bench()
        bench.node("a", cpu="64", labels={"kubernetes.io/hostname": "a"}, pods="1000")
        bench.pod("foe", node="a", labels={"app": "foe"}, schedulerName="other")
        for i in range(400):
            bench.pod(f"w{i}", cpu=f"{1 + i}m", affinity={"podAntiAffinity": required})
        await bench.settle()
        bench.now += 60.0
        each, waiting = [], set()
        for i in range(100):
            plans = 0
            bench.pod(f"p{i}", cpu="10m")
            await bench.settle(0.05)
            each.append(plans)
            waiting |= {name for name, pod in bench.api.pods.items() if name == f"p{i}"} - {
                name for name, pod in bench.api.pods.items() if pod["spec"].get("nodeName")
            }
        return each, waiting

    each, waiting = asyncio.run(story())
    assert (max(each) <= 1 + AT_ONCE, waiting) == (True, set())
    # The retry line retried all of them within its time limit.
    assert sum(each) >= 100 + 400
