"""
Of a quota, too, a start is promised: whoever would use it up by then waits, wherever there is room.

One node is shared by work that ends and a pod that waits for it with a promise; on the other there
is room for one more pod, and it comes.
"""

import asyncio
from typing import Any

import pytest

from scheduler.report import events
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.backfill.test_controller import comes, runs
from tests.unit.scheduler.tenancy.quota.test_enforcer import GPU, tables

pytestmark = pytest.mark.timeout(30)

WAITS = (
    f"tenant t requests {GPU} 1: quota of tenant t exceeded (used 0, reserved for ns/p 2, max 2)"
)


def of(tenant: str) -> dict[str, Any]:
    return {"labels": {"tenant.kubenexus.io/name": tenant}}


async def one_more(limit: int, ends: str, tenant: str, lasts: str | None, priority: int) -> Bench:
    """`ends` is whose work ends when the promised time comes, `tenant` whose pod comes."""
    bench = Bench()
    bench.scheduler.adopt(tables(t={"max": {GPU: limit}}))
    bench.node("n1", gpus=2)
    bench.node("n2", gpus=1)
    runs(bench, "r", "n1", "300s", **of(ends))
    comes(bench, "p", "1h", gpus=2, **of("t"))
    await bench.settle()
    await bench.settle(1.5)
    comes(bench, "more", lasts, priority=priority, preemptionPolicy="Never", **of(tenant))
    await bench.settle()
    return bench


@pytest.mark.parametrize(
    ("limit", "ends", "tenant", "lasts", "priority", "waits"),
    [
        pytest.param(2, "u", "t", "400s", 0, True, id="it would use up what was promised"),
        pytest.param(2, "u", "t", None, 0, True, id="nobody knows how long it runs"),
        pytest.param(2, "u", "t", "250s", 0, False, id="it has ended by then"),
        pytest.param(2, "u", "u", "400s", 0, False, id="the quota of another tenant"),
        pytest.param(2, "u", "t", "400s", 10, False, id="a higher priority goes first"),
        pytest.param(3, "u", "t", "400s", 0, False, id="the quota is enough for both"),
        pytest.param(3, "t", "t", "400s", 0, False, id="enough for both when others have ended"),
    ],
)
def test_who_takes_of_a_promised_quota(
    limit: int, ends: str, tenant: str, lasts: str | None, priority: int, waits: bool
) -> None:
    bench = asyncio.run(one_more(limit, ends, tenant, lasts, priority))
    said = [row for row in bench.told(events.QUOTA_EXCEEDED) if row[0] == "more"]
    promised = [name for name, _ in bench.told(events.START_ESTIMATED)]
    found = (promised, bool(bench.api.nodes()["more"]), said)
    assert found == (["p"], not waits, [("more", WAITS)] if waits else [])
