"""
Run one strategy on a cluster in virtual time, until every job that can start has ended.

    arrivals, ends, timers ──▶ the clock jumps there ──▶ queue, planner, cache ──▶ starts

Queue, cache, planner and tenancy are the scheduler's own. There is no API server, and binds succeed
at once. Three strategies:

    fifo      strictly in the order of arrival: a unit that does not fit blocks all units behind it
    greedy    the plain queue: by priority and arrival, and every unit that fits starts
    ours      fair share between tenants, quotas, backfill, preemption
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
    """Until every job that can start has started, and every job that ends has ended."""
    return asyncio.run(
        _run(VirtualCluster(nodes, jobs, tables or PlacementTables(), cpu), strategy)
    )


async def _run(cluster: VirtualCluster, name: str) -> Run:
    strategy: QueueStrategy | KubeNexusStrategy
    strategy = (
        QueueStrategy(cluster)
        if name == FIFO
        else KubeNexusStrategy(cluster, fair=name == OURS, evicts=True)
    )
    while (at := cluster.next_at(strategy.next_at())) is not None:
        strategy.before(at)
        cluster.now = at
        passed = cluster.advance()
        begin = cluster.cpu()
        strategy.take(*passed)
        strategy.decide()
        while strategy.busy:
            await asyncio.sleep(0)
            strategy.decide()
        cluster.run.cpu += cluster.cpu() - begin
    return cluster.finish()
