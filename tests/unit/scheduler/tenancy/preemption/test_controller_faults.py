"""
Preemption under faults: refusals, lost answers, victims that do not terminate, failing binds, and
several preemptors at once. The whole cycle, against an API server in memory.

Every story ends with the evicted pods, the placed pods, wasted evictions, and what is left.
"""

import asyncio
from collections import deque
from typing import Any

import pytest

from cluster import errors
from scheduler.tenancy.preemption.pdb import DisruptionBudget
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.fake_api import LostResponse
from tests.unit.scheduler.tenancy.builders import tables, tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    BOTH,
    BROKEN,
    BUDGET,
    NOTHING,
    Story,
    a_competitor,
    delete_pods,
    one_node,
    outcome,
    remove_evicted,
    terminate_victims,
    two_victims_and_a_gang,
)

pytestmark = pytest.mark.timeout(60)

GPU = "nvidia.com/gpu"


# --- answers ---


async def the_second_is_refused_for_a_while(bench: Bench) -> None:
    bench.api.eviction_faults["low-o"] = deque([BUDGET] * 3)
    await two_victims_and_a_gang(bench)
    await bench.settle()
    await terminate_victims(bench)


async def the_second_stays_and_another_is_evicted(bench: Bench) -> None:
    bench.api.eviction_faults["low-o"] = deque([BUDGET] * 50)
    await two_victims_and_a_gang(bench)
    bench.node("p", gpus=2)
    tenant_pod(bench, "a", "other", node="p", gpus=2, priority=5)
    await bench.settle()
    a_competitor(bench)
    await terminate_victims(bench)


async def the_first_is_refused(bench: Bench) -> None:
    bench.api.eviction_faults["low-n"] = deque([BUDGET])
    bench.api.eviction_faults["low-o"] = deque([BUDGET])
    await two_victims_and_a_gang(bench)
    await bench.settle()
    await terminate_victims(bench)


async def victims_under_a_budget_are_evicted_first(bench: Bench) -> None:
    row = {
        "metadata": {"name": "one", "namespace": "ns", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
    }
    bench.scheduler.budgets.put(DisruptionBudget.read(row))
    bench.api.eviction_faults["kept"] = deque([BUDGET] * 50)
    await one_node(bench)
    tenant_pod(bench, "a", "free", node="n")
    tenant_pod(bench, "a", "kept", node="n", labels={"app": "x"})
    tenant_pod(bench, "a", "new", gpus=2, priority=10)
    await bench.settle()
    await terminate_victims(bench)


async def answers_are_lost(bench: Bench) -> None:
    bench.api.eviction_faults["low-n"] = deque([LostResponse("no answer"), BROKEN, BROKEN])
    bench.api.eviction_faults["low-o"] = deque([BROKEN, LostResponse("no answer")])
    await two_victims_and_a_gang(bench)
    await bench.settle()
    await terminate_victims(bench)


async def no_answer_until_it_is_too_late(bench: Bench) -> None:
    bench.api.eviction_faults["low-o"] = deque([BROKEN] * 500)
    await two_victims_and_a_gang(bench)
    await bench.settle()
    await delete_pods(bench, "low-n")
    await bench.settle(200.0)
    bench.api.eviction_faults.clear()


async def nominations_fail(bench: Bench) -> None:
    bench.api.patch_faults = deque([BROKEN] * 8)
    await two_victims_and_a_gang(bench)
    await bench.settle()


async def the_lease_ends_before_the_first_eviction(bench: Bench) -> None:
    api = bench.api
    patch_status = api.patch_status

    async def and_no_more(*args: Any, **more: Any) -> Any:
        bench.leading = False
        return await patch_status(*args, **more)

    api.patch_status = and_no_more  # type: ignore[method-assign] # the lease is lost just then
    await two_victims_and_a_gang(bench)
    await bench.settle()


# --- victims and binds ---


async def victims_outlive_their_grace_period(bench: Bench) -> None:
    await two_victims_and_a_gang(bench)
    await bench.settle()
    bench.show_all()
    await bench.settle(400.0)
    a_competitor(bench)
    await bench.settle(100.0)
    await terminate_victims(bench)


async def victims_never_terminate(bench: Bench) -> None:
    await two_victims_and_a_gang(bench)
    await bench.settle()
    bench.show_all()
    await bench.settle(1000.0)


async def a_bind_fails(bench: Bench) -> None:
    await two_victims_and_a_gang(bench)
    await bench.settle()
    bench.api.faults.extend([errors.Conflict("no")] * 8)
    remove_evicted(bench)
    await bench.settle()
    a_competitor(bench)
    bench.api.faults.clear()
    for _ in range(5):
        await bench.settle(5.0)
        bench.show_all()


async def the_preemptor_is_deleted(bench: Bench) -> None:
    await two_victims_and_a_gang(bench)
    await bench.settle()
    for name in ("new0", "new1"):
        bench.delete(name)
    await terminate_victims(bench)


# --- several at once ---


async def two_gangs_share_nodes(bench: Bench) -> None:
    """Victims of both have pods on both nodes: no third gang is evicted."""
    await one_node(bench, gpus=6)
    bench.node("o", gpus=6)
    for gang, priority in (("v", 0), ("w", 0), ("x", 5)):
        for number in range(4):
            node = "no"[number % 2]
            tenant_pod(bench, "a", f"{gang}{number}", node=node, gang=(gang, 4), priority=priority)
    for gang in ("new", "too"):
        for number in range(4):
            tenant_pod(bench, "a", f"{gang}{number}", gang=(gang, 4), priority=10)
        await bench.settle()
        bench.show_all()
    await terminate_victims(bench)


async def another_preemptor_of_the_same_victim_is_deleted(bench: Bench) -> None:
    """Meanwhile the eviction is retried: its victim counts as terminating, and no other follows."""
    bench.api.eviction_faults["low"] = deque([BROKEN] * 500)
    await one_node(bench, gpus=4)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "other", node="n", gpus=2, priority=1)
    tenant_pod(bench, "a", "new", priority=10)
    await bench.scheduler.drain()
    tenant_pod(bench, "a", "deleted", priority=10)
    await bench.scheduler.drain()
    assert len(bench.scheduler.tenancy.preemption) == 2
    bench.delete("deleted")
    await bench.scheduler.drain()
    bench.api.eviction_faults.clear()
    await bench.settle()
    await bench.settle(1.0)
    assert bench.api.evicted == ["low"]
    await terminate_victims(bench)


async def two_reclaims_from_one_borrower(bench: Bench) -> None:
    await one_node(bench, tables(a={"guaranteed": {GPU: 2}}, b={"guaranteed": {GPU: 1}}))
    tenant_pod(bench, "b", "b0", node="n")
    tenant_pod(bench, "b", "b1", node="n")
    tenant_pod(bench, "a", "new0")
    tenant_pod(bench, "a", "new1")
    await bench.settle()
    await terminate_victims(bench)


@pytest.mark.parametrize(
    ("story", "evicted", "placed", "wasted"),
    [
        pytest.param(
            the_second_is_refused_for_a_while,
            "low-n low-o",
            BOTH,
            0,
            id="a refusal after evictions is retried",
        ),
        pytest.param(
            the_second_stays_and_another_is_evicted,
            "low-n other",
            f"low-o {BOTH}",
            0,
            id="a refused victim is replaced, and freed capacity stays reserved",
        ),
        pytest.param(
            the_first_is_refused,
            "",
            "low-n low-o",
            0,
            id="a refusal before the first eviction: no pod is evicted",
        ),
        pytest.param(
            victims_under_a_budget_are_evicted_first,
            "",
            "free kept",
            0,
            id="victims under a budget are evicted first",
        ),
        pytest.param(
            answers_are_lost, "low-n low-o", BOTH, 0, id="evictions with lost answers are retried"
        ),
        pytest.param(
            no_answer_until_it_is_too_late,
            "low-n",
            "low-o",
            1,
            id="no answer at all: given up, and counted as wasted",
        ),
        pytest.param(
            nominations_fail,
            "",
            "low-n low-o",
            0,
            id="no eviction before the nomination is written",
        ),
        pytest.param(
            the_lease_ends_before_the_first_eviction,
            "",
            "low-n low-o",
            0,
            id="no eviction after the lease has ended",
        ),
        pytest.param(
            victims_outlive_their_grace_period,
            "low-n low-o",
            BOTH,
            0,
            id="victims outlive their grace period: the capacity stays reserved",
        ),
        pytest.param(
            victims_never_terminate,
            "low-n low-o",
            "low-n low-o",
            2,
            id="victims never terminate: given up, and counted as wasted",
        ),
        pytest.param(
            a_bind_fails, "low-n low-o", BOTH, 0, id="a bind fails: the capacity stays reserved"
        ),
        pytest.param(
            the_preemptor_is_deleted,
            "low-n low-o",
            "",
            2,
            id="the preemptor is deleted: counted as wasted",
        ),
        pytest.param(
            another_preemptor_of_the_same_victim_is_deleted,
            "low",
            "new other",
            0,
            id="another preemptor of the same victim is deleted",
        ),
        pytest.param(
            two_gangs_share_nodes,
            "v0 v1 v2 v3 w0 w1 w2 w3",
            "new0 new1 new2 new3 too0 too1 too2 too3 x0 x1 x2 x3",
            0,
            id="two gangs at once: no capacity is freed twice",
        ),
        pytest.param(
            two_reclaims_from_one_borrower,
            "b0",
            "b1 new0",
            0,
            id="two reclaims at once: together they respect the guarantee",
        ),
    ],
)
def test_stories(story: Story, evicted: str, placed: str, wasted: int) -> None:
    assert asyncio.run(outcome(story)) == (evicted, placed, wasted, NOTHING)


def test_a_victim_that_its_preemptor_no_longer_needs_is_evicted_for_another() -> None:
    """Both count on one victim; the first is placed elsewhere before the eviction succeeds."""

    async def run() -> tuple[list[str], dict[str, str]]:
        bench = Bench()
        await one_node(bench, gpus=4)
        bench.api.eviction_faults["victim"] = deque([BROKEN] * 10_000)
        tenant_pod(bench, "a", "victim", node="n", gpus=4)
        tenant_pod(bench, "a", "first", gpus=3, priority=10)
        await bench.scheduler.drain()
        await asyncio.sleep(0)
        tenant_pod(bench, "a", "second", gpus=1, priority=10)
        await bench.scheduler.drain()
        assert len(bench.scheduler.tenancy.preemption) == 2
        bench.node("o", gpus=3)
        bench.now += 2.0
        await bench.scheduler.drain()
        assert len(bench.scheduler.tenancy.preemption) == 1
        bench.api.eviction_faults.clear()
        await bench.settle(1.0)
        evicted = [*bench.api.evicted]
        await terminate_victims(bench)
        return evicted, bench.api.nodes()

    assert asyncio.run(run()) == (["victim"], {"first": "o", "second": "n"})


def test_nominations_are_written_before_the_first_eviction() -> None:
    async def run() -> list[tuple[str, str]]:
        bench = Bench()
        await two_victims_and_a_gang(bench)
        await bench.settle()
        return bench.api.made

    made = asyncio.run(run())
    assert (sorted(made[:2]), sorted(made[2:])) == (
        [("nominated", "new0"), ("nominated", "new1")],
        [("evicted", "low-n"), ("evicted", "low-o")],
    )
