"""A tick inspects units beyond their guarantee only when usage under that guarantee has fallen."""

import asyncio

from scheduler.tenancy.quota.entitlement import LOOKS
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import tables, tenant_pod

GUARANTEE = {"guaranteed": {"cpu": "2"}}


async def a_full_cluster(bench: Bench, of_a: int) -> None:
    """a and b use their guarantees, c borrows the rest; units of a and one of b wait."""
    bench.scheduler.adopt(tables(a=GUARANTEE, b=GUARANTEE))
    bench.node("n", cpu="8", pods="5000")
    for tenant, amount in (("a", 2), ("b", 2), ("c", 4)):
        for i in range(amount):
            labels = {"tenant.kubenexus.io/name": tenant}
            bench.pod(f"{tenant}-run{i}", node="n", cpu="1", labels=labels)
    for i in range(of_a):
        tenant_pod(bench, "a", f"a{i}", cpu="1", gpus=0)
    tenant_pod(bench, "b", "b", cpu="2", gpus=0, created="2027-01-01T00:00:00Z")
    await bench.settle()


def test_a_backlog_of_one_tenant_does_not_hide_the_unit_of_another() -> None:
    async def run() -> tuple[int, int, float | None]:
        bench = Bench()
        await a_full_cluster(bench, 300)
        tracker = bench.scheduler.tenancy.entitlement
        waiting, before = len(tracker), tracker.looked_at
        bench.delete("b-run0")
        bench.delete("b-run1")
        bench.scheduler.cycle.prepare()
        return waiting, tracker.looked_at - before, tracker.next_at()

    assert asyncio.run(run()) == (301, 1, None)


def test_a_large_backlog_is_inspected_in_slices() -> None:
    async def run() -> list[int]:
        bench = Bench()
        await a_full_cluster(bench, 2 * LOOKS + 10)
        tracker = bench.scheduler.tenancy.entitlement
        inspected: list[int] = []
        bench.scheduler.adopt(tables(a={"guaranteed": {"cpu": "1"}}, b=GUARANTEE))
        while not inspected or tracker.next_at() is not None:
            before = tracker.looked_at
            tracker.tick(bench.now)
            inspected.append(tracker.looked_at - before)
        return inspected

    assert asyncio.run(run()) == [LOOKS, LOOKS, 11]


def test_units_that_are_deleted_are_not_kept() -> None:
    async def run() -> int:
        bench = Bench()
        await a_full_cluster(bench, 10)
        for i in range(3_000):
            tenant_pod(bench, "a", f"x{i}", cpu="1", gpus=0)
            await bench.settle()
            bench.delete(f"x{i}")
        return len(bench.scheduler.tenancy.entitlement)

    assert asyncio.run(run()) < 1_100
