"""Quotas and fair share in the whole cycle, against an API server in memory."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.over_quota import OverQuota
from scheduler.queueing.entry import QueueState
from scheduler.tenancy.quota.enforcer import LOOKS
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.tenancy.builders import GPU, tables, tenant_pod

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


def play(story: Story) -> Bench:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    return asyncio.run(run())


async def a_limit_is_reached(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 2}}))
    bench.node("n", gpus=8)
    for i in range(3):
        tenant_pod(bench, "a", f"a{i}", created=f"2026-01-01T00:00:0{i}Z")
    tenant_pod(bench, "b", "b")
    await bench.settle()


async def usage_falls(bench: Bench) -> None:
    await a_limit_is_reached(bench)
    bench.delete("a0")
    await bench.settle(1.0)


async def a_gang_counts_as_a_whole(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 3}}))
    bench.node("n", gpus=8)
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


async def members_above_the_minimum_follow_within_the_quota(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {GPU: 3}}))
    bench.node("n", gpus=8)
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 2), created=f"2026-01-01T00:00:0{i}Z")
    await bench.settle()


async def a_limit_of_a_group(bench: Bench) -> None:
    tree = {
        "tenants": [
            {"name": "all", "quota": {"max": {"cpu": "2"}}},
            {"name": "a", "parent": "all"},
            {"name": "b", "parent": "all"},
        ]
    }
    bench.scheduler.adopt(tables(tree))
    bench.node("n", cpu="8")
    tenant_pod(bench, "a", "a", cpu="1", gpus=0)
    await bench.settle()
    tenant_pod(bench, "b", "b", cpu="2", gpus=0)
    await bench.settle()


async def the_limit_is_raised(bench: Bench) -> None:
    await a_limit_is_reached(bench)
    bench.scheduler.adopt(tables(a={"max": {GPU: 8}}))
    await bench.settle(1.0)


async def a_quota_of_a_gpu_kind(bench: Bench) -> None:
    bench.scheduler.adopt(tables(a={"max": {"gpu-model/H100": 1}}))
    bench.node("fast", gpus=1, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("fast2", gpus=1, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("slow", gpus=4, labels={"gpu.kubenexus.io/model": "L4"})
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


async def fair_share(bench: Bench) -> None:
    """Capacity for three more; a has two pods already, and its others were created first."""
    bench.scheduler.adopt(tables())
    bench.node("n", gpus=5)
    tenant_pod(bench, "a", "a0", node="n")
    tenant_pod(bench, "a", "a1", node="n")
    for i in range(3):
        tenant_pod(bench, "a", f"a{i + 2}", created="2026-01-01T00:00:00Z")
        tenant_pod(bench, "b", f"b{i}", created="2026-01-01T01:00:00Z")
    await bench.settle()


OVER_QUOTA = "tenant a requests nvidia.com/gpu 1: quota of tenant a exceeded (used 2, max 2)"


@pytest.mark.parametrize(
    ("story", "placed", "held"),
    [
        pytest.param(a_limit_is_reached, "a0 a1 b", {"a2": OVER_QUOTA}, id="a limit is reached"),
        pytest.param(usage_falls, "a1 a2 b", {"a2": OVER_QUOTA}, id="usage falls"),
        pytest.param(
            a_gang_counts_as_a_whole,
            "",
            {
                f"g{i}": "tenant a requests nvidia.com/gpu 4: quota of tenant a exceeded"
                " (used 0, max 3)"
                for i in range(4)
            },
            id="a gang counts as a whole",
        ),
        pytest.param(
            members_above_the_minimum_follow_within_the_quota,
            "g0 g1 g2",
            {
                "g3": "tenant a requests nvidia.com/gpu 1: quota of tenant a exceeded (used 3, max 3)"
            },
            id="members above the minimum follow within the quota",
        ),
        pytest.param(
            a_limit_of_a_group,
            "a",
            {
                "b": "tenant b requests cpu 2: quota of group all exceeded (used 1, max 2);"
                " tenants above their guarantee: a +1"
            },
            id="a group's limit, in CPUs",
        ),
        pytest.param(
            the_limit_is_raised, "a0 a1 a2 b", {"a2": OVER_QUOTA}, id="the limit is raised"
        ),
        pytest.param(a_quota_of_a_gpu_kind, "g0 g1 g2 g3", {}, id="GPUs of another kind"),
        pytest.param(fair_share, "a0 a1 a2 b0 b1", {}, id="the tenant with less usage comes first"),
    ],
)
def test_stories(story: Story, placed: str, held: dict[str, str]) -> None:
    bench = play(story)
    found = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    assert (found, dict(bench.events("QuotaExceeded"))) == (placed, held)


def test_the_condition_requests_no_other_node() -> None:
    async def run() -> list[tuple[str, str, str]]:
        bench = Bench()
        await a_limit_is_reached(bench)
        return await bench.write_conditions()

    assert asyncio.run(run()) == [("a2", "QuotaExceeded", OVER_QUOTA)]


def test_gangs_avoid_gpu_kinds_without_remaining_quota() -> None:
    nodes = play(a_quota_of_a_gpu_kind).api.nodes()
    assert set(nodes.values()) == {"slow"}


async def a_plan_that_exceeds_a_quota_of_a_gpu_kind(bench: Bench) -> None:
    """One H100 is within the quota, and the first plan takes four: only the plan shows it."""
    bench.scheduler.adopt(tables(a={"max": {"gpu-model/H100": 1}}))
    bench.node("fast", gpus=4, labels={"gpu.kubenexus.io/model": "H100"})
    bench.node("slow", gpus=2, labels={"gpu.kubenexus.io/model": "L4"})
    bench.node("slow2", gpus=2, labels={"gpu.kubenexus.io/model": "L4"})
    for i in range(4):
        tenant_pod(bench, "a", f"g{i}", gang=("g", 4))
    await bench.settle()


def test_a_plan_that_exceeds_a_quota_of_a_gpu_kind_is_made_again_without_that_kind() -> None:
    nodes = play(a_plan_that_exceeds_a_quota_of_a_gpu_kind).api.nodes()
    assert sorted(nodes.values()) == ["slow", "slow", "slow2", "slow2"]


async def backlog(bench: Bench, of_a: int) -> None:
    """Units of a wait for a's quota; b, whose quota is used up as well, has three waiting."""
    bench.scheduler.adopt(tables(a={"max": {"cpu": "1"}}, b={"max": {"cpu": "1"}}))
    bench.node("n", cpu="64")
    tenant_pod(bench, "a", "a-run", node="n", cpu="1", gpus=0)
    tenant_pod(bench, "b", "b0", node="n", cpu="1", gpus=0)
    for i in range(of_a):
        tenant_pod(bench, "a", f"a{i}", cpu="1", gpus=0, created="2026-01-01T00:00:00Z")
    for i in (1, 2, 3):
        tenant_pod(bench, "b", f"b{i}", cpu="1", gpus=0, created=f"2026-01-01T01:00:0{i}Z")
    await bench.settle()
    await bench.settle(1.0)


def test_quota_that_one_tenant_releases_does_not_wait_for_the_backlog_of_another() -> None:
    async def story(bench: Bench) -> None:
        await backlog(bench, 2_000)
        enforcer = bench.scheduler.tenancy.quota
        before = enforcer.looked_at
        for i in range(3):
            bench.delete(f"b{i}")
            await bench.settle()
            assert bench.api.nodes()[f"b{i + 1}"] == "n"
            bench.show(f"b{i + 1}")
        assert enforcer.looked_at - before == 3

    play(story)


def test_a_pod_that_ends_elsewhere_costs_nothing_for_the_units_over_quota() -> None:
    async def story(bench: Bench) -> None:
        await backlog(bench, 300)
        for i in range(20):
            tenant_pod(bench, "c", f"c{i}", node="n", cpu="1", gpus=0)
        before = bench.scheduler.tenancy.quota.looked_at
        for i in range(20):
            bench.delete(f"c{i}")
            await bench.settle()
        assert bench.scheduler.tenancy.quota.looked_at == before

    play(story)


def test_each_release_plans_one_unit_of_the_backlog() -> None:
    """Not all units that would fit alone: all but one would exceed the quota again."""

    async def story(bench: Bench) -> None:
        await backlog(bench, 500)
        enforcer, running = bench.scheduler.tenancy.quota, "a-run"
        before, exceeded = enforcer.looked_at, bench.metrics.attempts.labels("over_quota")
        wasted = exceeded._value.get()
        for _ in range(10):
            bench.delete(running)
            await bench.settle()
            (running,) = (
                name for name, node in bench.api.nodes().items() if node and name[0] == "a"
            )
            bench.show(running)
        assert (enforcer.looked_at - before, exceeded._value.get() - wasted) == (10, 0)

    play(story)


async def a_group_of_many(bench: Bench, tenants: int, limit: int) -> None:
    """Each tenant of the group waits with two pods; the younger of the oldest tenant last."""
    members = [{"name": f"t{i:03}", "parent": "all"} for i in range(tenants)]
    group = {"name": "all", "quota": {"max": {"cpu": str(limit)}}}
    bench.scheduler.adopt(tables({"tenants": [group, *members]}))
    bench.node("n", cpu="64")
    for i in range(limit):
        tenant_pod(bench, "t000", f"run{i}", node="n", cpu="1", gpus=0)
    for i in range(tenants):
        for k in range(2):
            created = f"2026-01-01T0{k}:00:00Z"
            tenant_pod(bench, f"t{i:03}", f"t{i:03}-{k}", cpu="1", gpus=0, created=created)
    await bench.settle()
    await bench.settle(1.0)


def test_quota_of_a_group_goes_to_the_tenant_that_fair_share_puts_first() -> None:
    """The oldest pods are those of t000, which has used the most."""

    async def story(bench: Bench) -> None:
        await a_group_of_many(bench, 100, 3)
        before = bench.scheduler.tenancy.quota.looked_at
        for i in range(3):
            bench.delete(f"run{i}")
        await bench.settle()
        assert sorted(name for name, node in bench.api.nodes().items() if node) == [
            "t001-0",
            "t002-0",
            "t003-0",
        ]
        assert bench.scheduler.tenancy.quota.looked_at - before == 3

    play(story)


def test_a_unit_that_fits_no_node_leaves_its_quota_to_the_next() -> None:
    async def story(bench: Bench) -> None:
        bench.scheduler.adopt(tables(a={"max": {"cpu": "2"}}))
        bench.node("n", cpu="64")
        tenant_pod(bench, "a", "run", node="n", cpu="2", gpus=0)
        for i in range(20):
            nowhere = {"nodeSelector": {"zone": "none"}} if i < 19 else {}
            created = f"2026-01-01T00:00:{i:02}Z"
            tenant_pod(bench, "a", f"a{i}", cpu="2", gpus=0, created=created, **nowhere)
        await bench.settle()
        bench.delete("run")
        await bench.settle()
        assert {name: node for name, node in bench.api.nodes().items() if node} == {"a19": "n"}

    play(story)


def test_a_large_pass_is_cut_into_slices_and_is_due_at_once() -> None:
    async def story(bench: Bench) -> None:
        """Each unit of the older kind requests more than is free, and one younger fits."""
        bench.scheduler.adopt(tables(a={"max": {"cpu": "8"}}))
        bench.node("n", cpu="64")
        for i in range(8):
            tenant_pod(bench, "a", f"run{i}", node="n", cpu="1", gpus=0)
        for i in range(3 * LOOKS):
            tenant_pod(bench, "a", f"big{i}", cpu="8", gpus=0)
        tenant_pod(bench, "a", "small", cpu="1", gpus=0, created="2027-01-01T00:00:00Z")
        await bench.settle()
        enforcer, cycle = bench.scheduler.tenancy.quota, bench.scheduler.cycle
        bench.delete("run0")
        inspected: list[int] = []
        while not inspected or enforcer.next_at() is not None:
            before = enforcer.looked_at
            cycle.prepare()
            inspected.append(enforcer.looked_at - before)
            assert (enforcer.next_at() is None) or cycle.next_at() == bench.now
        assert (inspected, bench.scheduler.queue.counts()[QueueState.ACTIVE]) == (
            [LOOKS] * 3 + [1],
            1,
        )

    play(story)


Change = tuple[str, int, int]
CHANGES = st.tuples(
    st.sampled_from(["end", "create", "limit", "time"]), st.integers(0, 2), st.integers(1, 3)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CHANGES, min_size=5, max_size=40))
def test_no_unit_waits_for_quota_that_is_free(changes: list[Change]) -> None:
    """Pods end and arrive, limits change: in the end no unit over quota would be within it."""

    async def run() -> None:
        bench, limits, names = Bench(), [2, 2, 2], itertools.count()

        def adopt() -> None:
            rows = [{"name": "all", "quota": {"max": {"cpu": "4"}}}]
            rows += [
                {"name": f"t{i}", "parent": "all", "quota": {"max": {"cpu": str(limit)}}}
                for i, limit in enumerate(limits)
            ]
            bench.scheduler.adopt(tables({"tenants": rows}))

        adopt()
        bench.node("n", cpu="64")
        for what, which, amount in changes:
            match what:
                case "create":
                    tenant_pod(bench, f"t{which}", f"p{next(names)}", cpu=str(amount), gpus=0)
                case "end":
                    bound = sorted(name for name, node in bench.api.nodes().items() if node)
                    if bound:
                        bench.delete(bound[which % len(bound)])
                case "limit":
                    limits[which] = amount
                    adopt()
            await bench.settle(1.0 if what == "time" else 0.0)
            bench.show_all()
        await bench.settle()
        scheduler = bench.scheduler
        for pod in bench.api.pods.values():
            key = scheduler.queue.key(pod["metadata"]["uid"])
            unit = key and scheduler.queue.unit(key)
            if unit and scheduler.queue.state(unit.key) is QueueState.OVER_QUOTA:
                assert isinstance(scheduler.accounts.within_quota(unit), OverQuota), unit.key
        assert len(scheduler.queue.over_quota) == scheduler.queue.counts()[QueueState.OVER_QUOTA]

    asyncio.run(run())


def test_a_quota_by_kind_of_gpu_counts_the_pods_that_ran_before_it() -> None:
    async def scene() -> list[str]:
        bench = Bench()
        bench.scheduler.adopt(tables(a={"max": {GPU: 8}}))
        bench.node("fast", gpus=4, labels={"gpu.kubenexus.io/model": "H100"})
        tenant_pod(bench, "a", "runs", gpus=1)
        await bench.settle()
        bench.scheduler.adopt(tables(a={"max": {"gpu-model/H100": 1}}))
        tenant_pod(bench, "a", "later", gpus=1)
        await bench.settle()
        return [bench.api.pods[name]["spec"].get("nodeName", "") for name in ("runs", "later")]

    assert asyncio.run(scene()) == ["fast", ""]
