"""
Scenes of preemption: nodes, victims on them, a gang that needs both nodes, and the outcome.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from cluster import errors
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables, tenant_pod

Story = Callable[[Bench], Awaitable[Bench | None]]
Outcome = tuple[str, str, int, tuple[int, int, int]]

BUDGET = errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]})
BROKEN = errors.Retry("internal error", status=500)
BOTH = "new0 new1"
NOTHING = (0, 0, 0)


def remove_evicted(bench: Bench) -> None:
    """The evicted pods have terminated."""
    for name in [*bench.api.evicted]:
        if name in bench.api.pods:
            bench.delete(name)


async def one_node(bench: Bench, policy: PlacementTables | None = None, gpus: int = 2) -> None:
    bench.scheduler.adopt(policy or tables())
    bench.node("n", gpus=gpus)


async def two_victims_and_a_gang(bench: Bench, **more: Any) -> None:
    """Two nodes with a pod each, and a gang that needs both."""
    await one_node(bench)
    bench.node("o", gpus=2)
    tenant_pod(bench, "a", "low-n", node="n", gpus=2, **more)
    tenant_pod(bench, "a", "low-o", node="o", gpus=2, **more)
    for number in range(2):
        tenant_pod(bench, "a", f"new{number}", gpus=2, priority=10, gang=("new", 2))


def a_competitor(bench: Bench) -> None:
    """Never preempts, and takes free capacity."""
    tenant_pod(bench, "a", "competitor", gpus=2, priority=20, preemptionPolicy="Never")


def a_successor(bench: Bench) -> Bench:
    """A new leader, which knows nothing but the API."""
    bench.leading = False
    successor = Bench(bench.api)
    successor.now = bench.now
    successor.scheduler.adopt(tables())
    for name in ("n", "o"):
        successor.node(name, gpus=2)
    successor.show_all()
    return successor


async def delete_pods(bench: Bench, *names: str) -> None:
    for name in names:
        bench.delete(name)
    await bench.settle(1.0)


async def terminate_victims(bench: Bench) -> None:
    for _ in range(3):
        bench.show_all()
        remove_evicted(bench)
        await bench.settle(1.0)


async def outcome(story: Story) -> Outcome:
    """Evicted pods, placed pods, wasted evictions; attempts, reserved capacity, mismatches left."""
    bench = Bench()
    bench = await story(bench) or bench
    scheduler = bench.scheduler
    return (
        " ".join(sorted(set(bench.api.evicted))),
        " ".join(sorted(name for name, node in bench.api.nodes().items() if node)),
        int(bench.metrics.preemption.labels("wasted")._value.get()),
        (
            len(scheduler.tenancy.preemption),
            len(scheduler.cache.reserved),
            len(scheduler.cache_mismatches()),
        ),
    )
