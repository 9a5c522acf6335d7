"""The way from the cycle to the planner is short."""

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import scheduler
from scheduler import cycle
from scheduler.columns.node_table import Bools
from scheduler.model.pod import Pod
from scheduler.plan import planner
from scheduler.plugins import registry
from scheduler.plugins.protocol import Plugin, Rejection
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
        """A filter that rejects no node and looks at its callers."""

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
