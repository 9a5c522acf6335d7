"""
The lease is renewed while the scheduler does its longest work: elector and scheduler share a loop.

The elector's clock is the CPU time of that loop. A step that is too long loses the lease; a machine
that is busy with other work does not.
"""

import asyncio
import copy
import time
from typing import Any

import pytest

from cluster import errors
from cluster.leader_election import LeaderElector
from scheduler import fork
from scheduler.fork import ForkPolicy
from tests.bench.step_situations import SITUATIONS, Cluster

pytestmark = pytest.mark.timeout(300)

RENEW = 0.25  # seconds of CPU time
NODES = 300


class Leases:
    """A lease in memory."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.renewals = 0

    async def get(self, resource: object, name: str, **more: Any) -> dict[str, Any]:
        if self.lease is None:
            raise errors.Gone("no lease")
        return copy.deepcopy(self.lease)

    async def create(self, resource: object, obj: Any, **more: Any) -> dict[str, Any]:
        return self._put(obj)

    async def update(self, resource: object, obj: Any, **more: Any) -> dict[str, Any]:
        return self._put(obj)

    def _put(self, obj: Any) -> dict[str, Any]:
        self.renewals += 1
        self.lease = copy.deepcopy(dict(obj))
        self.lease["metadata"]["resourceVersion"] = str(self.renewals)
        return copy.deepcopy(self.lease)


async def play(situation: str, *, forks: bool = True) -> tuple[bool, int]:
    """Whether the lease was kept all the time, and how many searches and estimates there were."""
    lost: list[str] = []
    cluster = Cluster(NODES, ForkPolicy(fork.run) if forks else None)
    change = SITUATIONS[situation](cluster)
    await cluster.work()
    leading = asyncio.Event()
    elector = LeaderElector(
        Leases(),
        name="scheduler",
        namespace="ns",
        identity="me",
        on_started=leading.set,
        on_lost=lost.append,
        lease_seconds=2 * RENEW,
        renew_seconds=RENEW,
        retry_seconds=0.001,
        now=time.thread_time,
    )
    holding = asyncio.create_task(elector.run())
    await leading.wait()
    await change(cluster)
    await cluster.work()
    for _ in range(10):
        await asyncio.sleep(0.002)
    kept = elector.is_leader and not lost
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    searches = cluster.bench.metrics.preemption.labels("search")._value.get()
    return kept, int(searches) + len(cluster.bench.events("StartEstimated"))


@pytest.mark.parametrize(
    "situation",
    [
        "victim search under 1,000 budgets",
        "start estimates for 32 gangs",
    ],
)
def test_the_lease_is_kept_during(situation: str) -> None:
    kept, worked = asyncio.run(play(situation))
    assert (kept, worked > 0) == (True, True)


def test_a_search_in_the_loop_would_lose_it() -> None:
    kept, worked = asyncio.run(play("victim search under 1,000 budgets", forks=False))
    assert (kept, worked > 0) == (False, True)
