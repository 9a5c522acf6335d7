"""
Stories in which room is made against odds, on a table: two nodes, whoever is on them, a gang that
wants both, and what is left in the end.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from cluster import errors
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.preemption.test_controller import gone, of, scene
from tests.unit.scheduler.tenancy.quota.test_enforcer import tables

Story = Callable[[Bench], Awaitable[Bench | None]]
Outcome = tuple[str, str, int, tuple[int, int, int]]

BUDGET = errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]})
BROKEN = errors.Retry("internal error", status=500)
BOTH = "new0 new1"
NOTHING = (0, 0, 0)


async def a_pair(bench: Bench, **more: Any) -> None:
    """Two nodes with a pod each, and a gang that needs both."""
    await scene(bench)
    bench.node("o", gpus=2)
    of(bench, "a", "low-n", node="n", gpus=2, **more)
    of(bench, "a", "low-o", node="o", gpus=2, **more)
    for number in range(2):
        of(bench, "a", f"new{number}", gpus=2, priority=10, gang=("new", 2))


def a_thief(bench: Bench) -> None:
    """Asks nobody to go, and takes whatever is free."""
    of(bench, "a", "thief", gpus=2, priority=20, preemptionPolicy="Never")


def an_heir(bench: Bench) -> Bench:
    """A scheduler that knows nothing but the API, the other being no more."""
    bench.leading = False
    heir = Bench(bench.api)
    heir.now = bench.now
    heir.scheduler.adopt(tables())
    for name in ("n", "o"):
        heir.node(name, gpus=2)
    heir.show_all()
    return heir


async def end(bench: Bench, *names: str) -> None:
    for name in names:
        bench.delete(name)
    await bench.settle(1.0)


async def end_all(bench: Bench) -> None:
    for _ in range(3):
        bench.show_all()
        gone(bench)
        await bench.settle(1.0)


async def outcome(story: Story) -> Outcome:
    """Who was evicted, who has a node, how many went in vain, and what is kept or miscounted."""
    bench = Bench()
    bench = await story(bench) or bench
    scheduler = bench.scheduler
    return (
        " ".join(sorted(set(bench.api.evicted))),
        " ".join(sorted(name for name, node in bench.api.nodes().items() if node)),
        int(bench.metrics.preemption.labels("wasted")._value.get()),
        (
            len(scheduler.tenancy.preempting),
            len(scheduler.cache.reserved),
            len(scheduler.cache_mismatches()),
        ),
    )
