"""The report of the longest steps, and that the measurement sees a long one."""

import asyncio
import time
from typing import Any

from tests.bench import bench_steps
from tests.bench.step_situations import SITUATIONS, Steps, measure


def sample(name: str, nodes: int, longest: float, total: float) -> dict[str, Any]:
    return {
        "situation": name,
        "nodes": nodes,
        "longest": longest,
        "total": total,
        "forks": 0.0,
        "bound": 0,
    }


def test_a_situation_is_reported_by_its_longest_step_and_its_growth() -> None:
    samples = [sample("s", 1000, 0.02, 1.0), sample("s", 10_000, 0.15, 15.0)]
    rows = bench_steps.report(samples)
    assert [(row.figure, row.measured, row.reach, row.holds) for row in rows] == [
        ("s: longest step, ms CPU", 150.0, "≤ 100", False),
        ("s: growth of CPU time", 15.0, "≤ 12", False),
    ]


def test_the_longest_callback_of_the_loop_is_measured() -> None:
    steps = Steps()

    def busy() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass

    async def scene() -> None:
        with steps.hooked():
            steps.measuring = True
            asyncio.get_running_loop().call_soon(busy)
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert steps.longest >= 0.05
    assert "busy" in steps.step


def test_a_situation_runs_to_its_end() -> None:
    name = next(name for name in SITUATIONS if "tenants" in name)
    measured = measure(name, 300)
    assert (measured["bound"], measured["longest"] > 0) == (2000, True)
