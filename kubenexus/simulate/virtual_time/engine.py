"""
A cluster in virtual time: work arrives, is placed, runs as long as it runs, and goes.

    arrivals, endings, what is due ──▶ the clock jumps there ──▶ queue, planner, cache ──▶ starts

The parts that decide are the scheduler's own: queue, cache, planner, tenancy. There is no API
server, and binds succeed at once. Three ways of deciding:

    fifo      strictly in the order of arrival: whoever does not fit holds up everybody behind it
    greedy    the plain queue: by priority and arrival, and whatever fits goes
    ours      turns between tenants, quotas, promises to those that wait, preemption
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kubenexus.simulate.virtual_time.cluster import VirtualCluster
from kubenexus.simulate.virtual_time.strategies import KubeNexusStrategy, QueueStrategy
from kubenexus.simulate.virtual_time.timeline import Job, Run
from scheduler.model.node import Node
from scheduler.model.policy import PlacementTables

__all__ = [
    "FIFO",
    "GREEDY",
    "OURS",
    "STRATEGIES",
    "Job",
    "KubeNexusStrategy",
    "Run",
    "VirtualCluster",
    "run",
]

FIFO, GREEDY, OURS = "fifo", "greedy", "ours"
STRATEGIES: Final = (FIFO, GREEDY, OURS)


def run(
    nodes: Iterable[Node],
    jobs: Sequence[Job],
    strategy: str,
    *,
    tables: PlacementTables | None = None,
    cpu: Callable[[], float] = time.process_time,
) -> Run:
    """Until everything has started that ever can, and ended that ever does."""
    return asyncio.run(
        _run(VirtualCluster(nodes, jobs, tables or PlacementTables(), cpu), strategy)
    )


async def _run(world: VirtualCluster, strategy: str) -> Run:
    deciding: QueueStrategy | KubeNexusStrategy
    deciding = (
        QueueStrategy(world)
        if strategy == FIFO
        else KubeNexusStrategy(world, fair=strategy == OURS, evicts=True)
    )
    while (at := world.next_at(deciding.next_at())) is not None:
        deciding.before(at)
        world.now = at
        passed = world.pass_by()
        begin = world.cpu()
        deciding.take(*passed)
        deciding.decide()
        while deciding.busy:
            await asyncio.sleep(0)
            deciding.decide()
        world.run.cpu += world.cpu() - begin
    return world.finish()
