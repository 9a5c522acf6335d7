"""Gangs whose leader creates the members, in the whole cycle."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from policies import vocabulary
from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.cache.snapshot import Snapshot
from scheduler.model.gang import GangKey
from scheduler.model.unit import Unit
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.reservation.members import MemberReservations
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_pod
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import (
    MEMBER_RESOURCES,
    leader,
    member,
    settle_gang,
    tables,
)

pytestmark = pytest.mark.timeout(30)

Story = Callable[[Bench], Awaitable[None]]


story = Stories()


@story("a-driver", 2, id="the leader is bound first")
async def leader_is_bound_first(bench: Bench) -> None:
    bench.node("n", cpu="4")
    leader(bench, "a", 3)
    await settle_gang(bench)


@story("a-driver small", 2, id="reserved capacity stays free")
async def reserved_capacity_stays_free(bench: Bench) -> None:
    await leader_is_bound_first(bench)
    bench.pod("thief", cpu="2")
    bench.pod("small", cpu="1")
    await bench.settle(1.0)


@story("a-1 a-2 a-driver small", 0, id="members replace placeholders")
async def members_take_over_one_by_one(bench: Bench) -> None:
    await reserved_capacity_stays_free(bench)
    member(bench, "a", 1, 3)
    await bench.settle()
    member(bench, "a", 2, 3)
    await bench.settle()


@story("a-1 a-2 a-driver", 0, id="two jobs, capacity for one: one runs, the other waits")
async def two_jobs_and_capacity_for_one(bench: Bench) -> None:
    bench.node("n", cpu="5")
    leader(bench, "a", 3)
    leader(bench, "b", 3, created="2026-01-01T00:00:01Z")
    await settle_gang(bench)
    member(bench, "a", 1, 3)
    member(bench, "a", 2, 3)
    await bench.settle()
    await bench.settle(5.0)


@story("b-driver", 2, id="the first job ends")
async def the_first_job_ends(bench: Bench) -> None:
    await two_jobs_and_capacity_for_one(bench)
    for name in ("a-driver", "a-1", "a-2"):
        bench.delete(name)
    await bench.settle(10.0)
    await bench.settle()


@story("small thief", 0, id="the leader is deleted")
async def leader_is_deleted(bench: Bench) -> None:
    await reserved_capacity_stays_free(bench)
    bench.delete("a-driver")
    await bench.settle(1.0)
    await bench.settle(10.0)


@story("a-driver small thief", 0, id="no member is created")
async def no_member_is_created(bench: Bench) -> None:
    await reserved_capacity_stays_free(bench)
    await bench.settle(601.0)
    await bench.settle(10.0)


@story("", 0, id="members larger than their leader")
async def members_are_larger_than_their_leader(bench: Bench) -> None:
    bench.node("n", cpu="5")
    leader(bench, "a", 3, annotations={MEMBER_RESOURCES: "cpu=3,memory=1Gi"})
    await settle_gang(bench)


@story("a-driver", 2, id="quota counts placeholders")
async def quota_counts_placeholders(bench: Bench) -> None:
    bench.scheduler.adopt(tables(t={"max": {"cpu": "3"}}))
    tenant = {"tenant.kubenexus.io/name": "t"}
    bench.node("n", cpu="8")
    leader(bench, "a", 3, labels=tenant)
    await settle_gang(bench)
    bench.pod("other", labels=tenant)
    await bench.settle(1.0)


@story("next", 0, id="a deleted node returns quota")
async def node_with_reserved_capacity_is_deleted(bench: Bench) -> None:
    bench.scheduler.adopt(tables(t={"max": {"cpu": "3"}}))
    tenant = {"tenant.kubenexus.io/name": "t"}
    bench.node("n", cpu="3")
    leader(bench, "a", 3, labels=tenant)
    await settle_gang(bench)
    bench.drop_node("n")
    bench.delete("a-driver")
    await bench.settle(1.0)
    bench.node("m", cpu="3")
    bench.pod("next", cpu="3", labels=tenant)
    await bench.settle()


@story("a-1 a-2 a-driver", 0, id="all members are created at once")
async def all_members_are_created_at_once(bench: Bench) -> None:
    bench.node("n", cpu="4")
    leader(bench, "a", 3)
    member(bench, "a", 1, 3)
    member(bench, "a", 2, 3)
    await bench.settle()


@story("a-driver low-3", 2, id="victims for the whole gang")
async def victims_for_the_whole_gang(bench: Bench) -> None:
    bench.node("n", cpu="4")
    for number in range(4):
        bench.pod(f"low-{number}", owner="job", node="n")
    leader(bench, "a", 3, priority=10)
    await settle_gang(bench)
    assert len(bench.api.evicted) == 3
    for name in bench.api.evicted:
        bench.delete(name)
    await settle_gang(bench)


@story("high-0 high-1 high-2 low", 0, id="no victims for a leader alone")
async def no_victims_for_a_leader_alone(bench: Bench) -> None:
    bench.node("n", cpu="4")
    for number in range(3):
        bench.pod(f"high-{number}", owner="job", node="n", priority=10)
    bench.pod("low", owner="job", node="n")
    leader(bench, "a", 3, priority=10)
    await settle_gang(bench)
    assert bench.api.evicted == []


@pytest.mark.parametrize(
    ("story", "placed", "reserved"),
    story.rows,
)
def test_stories(story: Story, placed: str, reserved: int) -> None:
    async def run() -> Bench:
        bench = Bench()
        await story(bench)
        return bench

    bench = asyncio.run(run())
    found = " ".join(sorted(name for name, node in bench.api.nodes().items() if node))
    holds = sum(
        len(bench.scheduler.cache.reserved.of(key)) for key in bench.scheduler.cache.reserved
    )
    assert (found, holds, len(bench.scheduler.cache_mismatches())) == (placed, reserved, 0)


@pytest.mark.parametrize(
    ("announced", "placeholders", "fits"),
    [
        pytest.param(2_000, 2_000, True, id="a large gang"),
        pytest.param(10_000, 10_000, True, id="as many as a reservation has places"),
        pytest.param(10_001, 0, False, id="one more: none is made"),
        pytest.param(99_999, 0, False, id="the largest gang: none is made"),
    ],
)
def test_members_that_a_leader_announces(announced: int, placeholders: int, fits: bool) -> None:
    pod = a_pod("d", gang=("g", announced + 1), labels={vocabulary.GANG_ROLE_LABEL: "leader"})
    unit = Unit(GangKey("ns", "g"), (pod,), leader_first=True)
    reservations = MemberReservations(ReservedCapacity(Snapshot()), QuotaAccounts())
    assert (reservations.too_many(unit) is None) == fits
    extended = reservations.with_placeholders(unit)
    assert len(extended.pods) == 1 + placeholders
    assert extended.forming == (not fits)
    assert len({pod.uid for pod in extended.pods}) == len(extended.pods)
