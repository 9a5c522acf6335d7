"""Preemption in the whole cycle, against an API server in memory."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod
from tests.unit.scheduler.tenancy.preemption.preemption_cases import (
    NOTHING,
    one_node,
    outcome,
    remove_evicted,
    terminate_victims,
)

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


async def a_lower_priority_is_evicted(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "new", gpus=1, priority=10)
    await bench.settle()
    assert bench.api.nodes()["new"] == ""
    remove_evicted(bench)
    await bench.settle()


async def equal_priority_stays(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "new")
    await bench.settle()


async def a_lower_priority_beside_an_equal_one(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n")
    tenant_pod(bench, "a", "same", node="n", priority=10)
    tenant_pod(bench, "a", "new", gpus=2, priority=10)
    await bench.settle()


async def priority_of_another_tenant(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "b", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "new", priority=1000)
    await bench.settle()


async def preemptible_of_another_tenant(bench: Bench) -> None:
    await one_node(bench)
    mark = {"workload.kubenexus.io/preemptible": "true"}
    tenant_pod(bench, "b", "marked", node="n", labels=mark, priority=50)
    tenant_pod(bench, "b", "other", node="n")
    tenant_pod(bench, "a", "new")
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


async def reclaim_of_borrowed_quota(bench: Bench) -> None:
    await one_node(bench, tables(a={"guaranteed": {GPU: 1}}, b={"guaranteed": {GPU: 1}}))
    tenant_pod(bench, "b", "b0", node="n", status={"startTime": "1970-01-01T00:00:10Z"})
    tenant_pod(bench, "b", "b1", node="n", status={"startTime": "1970-01-01T00:01:10Z"})
    tenant_pod(bench, "a", "new")
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


async def a_guarantee_stays(bench: Bench) -> None:
    await one_node(bench, tables(a={"guaranteed": {GPU: 2}}, b={"guaranteed": {GPU: 2}}))
    tenant_pod(bench, "b", "b0", node="n", gpus=2)
    tenant_pod(bench, "a", "new")
    await bench.settle()


async def a_gang_for_a_gang(bench: Bench) -> None:
    await one_node(bench, gpus=4)
    for i in range(3):
        tenant_pod(bench, "a", f"old{i}", node="n", gang=("old", 3))
    for i in range(3):
        tenant_pod(bench, "a", f"new{i}", gang=("new", 3), priority=5)
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


async def never(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "new", priority=10, preemptionPolicy="Never")
    await bench.settle()


async def a_budget_refuses(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "kept", node="n")
    tenant_pod(bench, "a", "free", node="n", priority=1)
    budget = errors.Retry("budget", details={"causes": [{"reason": "DisruptionBudget"}]})
    bench.api.evict_faults["kept"] = budget
    tenant_pod(bench, "a", "new", priority=10)
    await bench.settle()
    remove_evicted(bench)
    await bench.settle()


async def freed_capacity_stays_reserved(bench: Bench) -> None:
    await one_node(bench)
    tenant_pod(bench, "a", "low", node="n", gpus=2)
    tenant_pod(bench, "a", "new", gpus=2, priority=10)
    await bench.settle()
    tenant_pod(bench, "a", "competitor", priority=20, preemptionPolicy="Never")
    remove_evicted(bench)
    await bench.settle()


@pytest.mark.parametrize(
    ("story", "evicted", "placed"),
    [
        pytest.param(a_lower_priority_is_evicted, ["low"], "new", id="a lower priority is evicted"),
        pytest.param(equal_priority_stays, [], "low", id="an equal priority stays"),
        pytest.param(
            a_lower_priority_beside_an_equal_one,
            [],
            "low same",
            id="an equal priority stays beside a lower one",
        ),
        pytest.param(priority_of_another_tenant, [], "low", id="priority stays within a tenant"),
        pytest.param(
            preemptible_of_another_tenant,
            ["marked"],
            "new other",
            id="a preemptible pod of another tenant",
        ),
        pytest.param(
            reclaim_of_borrowed_quota,
            ["b1"],
            "b0 new",
            id="reclaim of borrowed quota, where least work is lost",
        ),
        pytest.param(a_guarantee_stays, [], "b0", id="no reclaim below a guarantee"),
        pytest.param(
            a_gang_for_a_gang,
            ["old0", "old1", "old2"],
            "new0 new1 new2",
            id="a whole gang for a gang",
        ),
        pytest.param(never, [], "low", id="preemptionPolicy Never"),
        pytest.param(a_budget_refuses, ["free"], "kept new", id="a budget changes the plan"),
        pytest.param(
            freed_capacity_stays_reserved, ["low"], "new", id="freed capacity stays reserved"
        ),
    ],
)
def test_stories(story: Story, evicted: list[str], placed: str) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    bench = asyncio.run(run())
    found = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    drifted = bench.scheduler.cache_mismatches()
    assert (sorted(bench.api.evicted), found, len(drifted)) == (evicted, placed, 0)


@pytest.mark.parametrize(
    ("story", "victim", "reason"),
    [
        pytest.param(a_lower_priority_is_evicted, "low", "higher priority", id="priority"),
        pytest.param(
            preemptible_of_another_tenant, "marked", "this pod is preemptible", id="marked"
        ),
        pytest.param(
            reclaim_of_borrowed_quota,
            "b1",
            "reclaim of the preemptor's guarantee",
            id="reclaim",
        ),
    ],
)
def test_events_name_preemptor_reason_and_victims(story: Story, victim: str, reason: str) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    bench = asyncio.run(run())
    assert (bench.events("Preempted"), bench.events("Preempting")) == (
        [(victim, f"Preempted by pod ns/new of tenant a: {reason}")],
        [("new", f"pod ns/new of tenant a waits for 1 victim to terminate: ns/{victim}")],
    )


async def surplus_of_a_running_gang(
    bench: Bench, policy: PlacementTables, tenant: str, **more: Any
) -> None:
    """
    A victim of 2 GPUs terminates: one is reserved for the surplus of tenant b's gang, the other
    for a pod of tenant a. Then the preemptor is created.
    """
    await one_node(bench, policy, gpus=4)
    mark = {"workload.kubenexus.io/preemptible": "true"}
    tenant_pod(bench, "d", "marked", node="n", labels=mark, gpus=2)
    for number in range(2):
        tenant_pod(bench, "b", f"g{number}", node="n", gang=("g", 2))
    tenant_pod(bench, "b", "g2", gang=("g", 2))
    await bench.settle()
    bench.show_all()
    tenant_pod(bench, "a", "other")
    await bench.settle()
    assert (bench.api.evicted, len(bench.scheduler.cache.reserved)) == (["marked"], 2)
    tenant_pod(bench, tenant, "new", **more)
    await bench.settle()


def guarantees(**amounts: int) -> PlacementTables:
    return tables(**{tenant: {"guaranteed": {GPU: n}} for tenant, n in amounts.items()})


@pytest.mark.parametrize(
    ("policy", "preemptor", "evicted", "placed"),
    [
        pytest.param(
            guarantees(c=1),
            {"tenant": "c"},
            "marked",
            "g0 g1 new other",
            id="sufficient: no further pod is evicted",
        ),
        pytest.param(
            guarantees(c=3),
            {"tenant": "c", "gpus": 3},
            "g0 g1 marked",
            "new other",
            id="not sufficient: the gang is evicted, and its own preemption ends",
        ),
        pytest.param(
            guarantees(b=3, c=1),
            {"tenant": "c"},
            "marked",
            "g0 g1 g2 other",
            id="within the gang's guarantee",
        ),
        pytest.param(
            guarantees(),
            {"tenant": "b", "priority": 5},
            "marked",
            "g0 g1 new other",
            id="a higher priority of the same tenant",
        ),
        pytest.param(
            guarantees(),
            {"tenant": "b"},
            "marked",
            "g0 g1 g2 other",
            id="an equal priority of the same tenant",
        ),
    ],
)
def test_capacity_reserved_for_the_surplus_of_a_gang(
    policy: PlacementTables, preemptor: dict[str, Any], evicted: str, placed: str
) -> None:
    async def story(bench: Bench) -> None:
        await surplus_of_a_running_gang(bench, policy, **preemptor)
        await terminate_victims(bench)

    assert asyncio.run(outcome(story)) == (evicted, placed, 0, NOTHING)


def test_a_preemptor_that_takes_reserved_capacity_is_nominated() -> None:
    """A successor reserves the capacity for it, and no longer for the gang."""

    async def run() -> dict[str, str]:
        bench = Bench()
        await surplus_of_a_running_gang(bench, guarantees(c=1), "c")
        status = {name: pod.get("status", {}) for name, pod in bench.api.pods.items()}
        return {name: status[name].get("nominatedNodeName") or "" for name in ("g2", "new")}

    assert asyncio.run(run()) == {"g2": "", "new": "n"}


def test_reserved_capacity_ends_when_victims_never_terminate() -> None:
    async def run() -> Bench:
        bench = Bench()
        await one_node(bench)
        tenant_pod(bench, "a", "stuck", node="n", gpus=2)
        tenant_pod(bench, "a", "new", gpus=2, priority=10)
        await bench.settle()
        assert len(bench.scheduler.cache.reserved) == 1
        await bench.settle(200.0)
        return bench

    bench = asyncio.run(run())
    assert (len(bench.scheduler.cache.reserved), len(bench.scheduler.cache_mismatches())) == (0, 0)
