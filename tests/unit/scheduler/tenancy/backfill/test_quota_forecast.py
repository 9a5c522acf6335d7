"""
A start reservation includes quota: a pod that would use it up waits, even where a node has capacity.

A running pod and a pod with a start reservation share one node; the other node has capacity for one
more pod, which is created last.
"""

import asyncio
from typing import Any

import pytest

from scheduler.report import events
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, pending_pod, running_pod, tables

pytestmark = pytest.mark.timeout(30)

WAITS = (
    f"tenant t requests {GPU} 1: quota of tenant t exceeded (used 0, reserved for ns/p 2, max 2)"
)


def of(tenant: str) -> dict[str, Any]:
    return {"labels": {"tenant.kubenexus.io/name": tenant}}


async def one_more(
    limit: int, ends: str, tenant: str, duration: str | None, priority: int
) -> Bench:
    """`ends` is the tenant of the pod that ends at the reserved start, `tenant` that of the new pod."""
    bench = Bench()
    bench.scheduler.adopt(tables(t={"max": {GPU: limit}}))
    bench.node("n1", gpus=2)
    bench.node("n2", gpus=1)
    running_pod(bench, "r", "n1", "300s", **of(ends))
    pending_pod(bench, "p", "1h", gpus=2, **of("t"))
    await bench.settle()
    await bench.settle(1.5)
    pending_pod(bench, "more", duration, priority=priority, preemptionPolicy="Never", **of(tenant))
    await bench.settle()
    return bench


@pytest.mark.parametrize(
    ("limit", "ends", "tenant", "duration", "priority", "waits"),
    [
        pytest.param(2, "u", "t", "400s", 0, True, id="it would use up reserved quota"),
        pytest.param(2, "u", "t", None, 0, True, id="its duration is unknown"),
        pytest.param(2, "u", "t", "250s", 0, False, id="it has ended by then"),
        pytest.param(2, "u", "u", "400s", 0, False, id="the quota of another tenant"),
        pytest.param(2, "u", "t", "400s", 10, False, id="it has higher priority"),
        pytest.param(3, "u", "t", "400s", 0, False, id="the quota is enough for both"),
        pytest.param(
            3, "t", "t", "400s", 0, False, id="enough for both when the other pod has ended"
        ),
    ],
)
def test_quota_of_a_start_reservation(
    limit: int, ends: str, tenant: str, duration: str | None, priority: int, waits: bool
) -> None:
    bench = asyncio.run(one_more(limit, ends, tenant, duration, priority))
    exceeded = [row for row in bench.events(events.QUOTA_EXCEEDED) if row[0] == "more"]
    estimated = [name for name, _ in bench.events(events.START_ESTIMATED)]
    found = (estimated, bool(bench.api.nodes()["more"]), exceeded)
    assert found == (["p"], not waits, [("more", WAITS)] if waits else [])


GROUP_WAITS = (
    f"tenant v requests {GPU} 1: quota of group g exceeded (used 0, reserved for ns/p 2, max 2)"
)


async def after_new_quota(own: int, tenant: str) -> Bench:
    """Tenants t and v share the quota of group g; the quota of t becomes `own` after p has a start."""
    bench = Bench()
    tree = {
        "tenants": [
            {"name": "g", "quota": {"max": {GPU: 2}}},
            {"name": "t", "parent": "g"},
            {"name": "v", "parent": "g"},
        ]
    }
    bench.scheduler.adopt(tables(tree))
    bench.node("n1", gpus=2)
    bench.node("n2", gpus=1)
    running_pod(bench, "r", "n1", "300s", **of("u"))
    pending_pod(bench, "p", "1h", gpus=2, **of("t"))
    await bench.settle()
    await bench.settle(1.5)
    bench.scheduler.adopt(tables(tree, t={"max": {GPU: own}}))
    pending_pod(bench, "more", "400s", preemptionPolicy="Never", **of(tenant))
    await bench.settle()
    return bench


@pytest.mark.parametrize(
    ("own", "tenant", "text"),
    [
        pytest.param(2, "v", GROUP_WAITS, id="a tenant of the same group waits for its quota"),
        pytest.param(1, "v", GROUP_WAITS, id="also where the reserved start exceeds its own quota"),
        pytest.param(1, "u", "", id="a start over the quota of its tenant keeps no other waiting"),
        pytest.param(2, "u", "", id="a tenant outside the group starts"),
    ],
)
def test_only_limits_that_apply_to_a_pod_keep_it_waiting(own: int, tenant: str, text: str) -> None:
    bench = asyncio.run(after_new_quota(own, tenant))
    over_quota = [row for row in bench.events(events.QUOTA_EXCEEDED) if row[0] == "more"]
    found = (bench.api.nodes()["more"], over_quota)
    assert found == ("" if text else "n2", [("more", text)] if text else [])


def test_a_deleted_unit_with_a_start_reservation_hides_no_other() -> None:
    """The reservation of a deleted pod stays until the next check."""

    async def story() -> Bench:
        bench = Bench()
        bench.scheduler.adopt(tables(t={"max": {GPU: 2}}))
        for name in ("n1", "n2"):
            bench.node(name, gpus=2)
            running_pod(bench, f"r-{name}", name, "300s", **of("u"))
        bench.node("n3", gpus=1)
        pending_pod(bench, "gone", "1h", gpus=2, priority=5, preemptionPolicy="Never", **of("u"))
        await bench.settle()
        await bench.settle(1.5)
        pending_pod(bench, "p", "1h", gpus=2, **of("t"))
        await bench.settle()
        await bench.settle(1.5)
        bench.delete("gone")
        pending_pod(bench, "more", "400s", preemptionPolicy="Never", **of("t"))
        await bench.settle()
        return bench

    bench = asyncio.run(story())
    estimated = [name for name, _ in bench.events(events.START_ESTIMATED)]
    waits = [row for row in bench.events(events.QUOTA_EXCEEDED) if row[0] == "more"]
    assert (estimated, bench.api.nodes()["more"], waits) == (["gone", "p"], "", [("more", WAITS)])
