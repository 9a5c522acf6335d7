"""Capacity that an administrator reserves for a tenant, in the whole cycle."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster import errors
from tests.unit.scheduler.faults import Faults
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.fake_reservations import follow
from tests.unit.scheduler.tenancy.reservation.tenant_scene import TenantReservationScene, at

pytestmark = pytest.mark.timeout(30)

Json = dict[str, Any]


Story = Callable[[TenantReservationScene], Awaitable[None]]


story = Stories()


@story("small", ["Active 3 x cpu 2 (cpu 6 free)"], id="an amount is reserved")
async def amount_is_reserved(scene: TenantReservationScene) -> None:
    scene.reserve(count=3, resources={"cpu": "2"})
    await scene.bench.settle()
    scene.pod("large", "3")
    scene.pod("small", "2")
    await follow(scene.bench)


@story("", ["Active 3 x cpu 2 (cpu 6 free)"], id="a status update fails and is retried")
async def a_status_fails(scene: TenantReservationScene) -> None:
    scene.store.status_faults.append(errors.Retry("no answer"))
    scene.reserve(count=3, resources={"cpu": "2"})
    await follow(scene.bench)


@story("mine small", ["Active 3 x cpu 2 (cpu 3 free)"], id="the tenant uses it")
async def the_tenant_uses_it(scene: TenantReservationScene) -> None:
    await amount_is_reserved(scene)
    scene.pod("mine", "3", tenant="t")
    await follow(scene.bench)


@story("small", ["Active 3 x cpu 2 (cpu 6 free)"], id="a pod ends: its places are reserved again")
async def capacity_is_reserved_again(scene: TenantReservationScene) -> None:
    await the_tenant_uses_it(scene)
    scene.bench.delete("mine")
    await follow(scene.bench)
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story(
    "",
    [
        "Active 2 x cpu 3 (cpu 6 free) reserved capacity for 2 of 5; the rest follows as it becomes free"
    ],
    id="more than the cluster has",
)
async def more_than_the_cluster_has(scene: TenantReservationScene) -> None:
    scene.reserve(count=5, resources={"cpu": "3"})
    await follow(scene.bench)


@story("", ["Active 5 x cpu 3 (cpu 15 free)"], id="places found later")
async def places_found_later(scene: TenantReservationScene) -> None:
    await more_than_the_cluster_has(scene)
    scene.bench.node("o", cpu="9")
    await scene.bench.settle(6.0)
    await follow(scene.bench)


@story("a b mine", ["Active 1 node (cpu 1, memory 16Gi free)"], id="whole nodes by label")
async def whole_nodes_by_label(scene: TenantReservationScene) -> None:
    scene.reserve(nodeSelector={"disk": "fast"})
    await scene.bench.settle()
    for name in ("a", "b", "c"):
        scene.pod(name, "2")
    scene.pod("mine", "3", tenant="t")
    await follow(scene.bench)


@story("a b c mine", ["Active 0 nodes no node matches"], id="a node no longer matches")
async def node_no_longer_matches(scene: TenantReservationScene) -> None:
    await whole_nodes_by_label(scene)
    scene.bench.node("m", cpu="6")
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story("before", ["Active 1 x cpu 2 (cpu 2 free)"], id="a pod of the tenant started before")
async def pod_of_the_tenant_started_before(scene: TenantReservationScene) -> None:
    started = {"startTime": at(10.0)}
    scene.pod("before", "2", tenant="t", node="m", status=started)
    scene.reserve(nodes=["m"], resources={"cpu": "2"})
    await follow(scene.bench)


@story(
    "mine",
    ["Active 1 x cpu 2 (nothing free)", "Active 1 x cpu 2 (cpu 1 free)"],
    id="two for one tenant",
)
async def two_for_one_tenant(scene: TenantReservationScene) -> None:
    scene.reserve("q", nodes=["m"], resources={"cpu": "2"})
    scene.reserve("r", nodes=["m"], resources={"cpu": "2"})
    await scene.bench.settle()
    scene.bench.drop_node("n")
    scene.pod("mine", "3", tenant="t")
    await follow(scene.bench)


@story("", ["Active 1 node (cpu 4, memory 16Gi free)"], id="a named node with a pod that ends")
async def named_node_with_a_pod_that_ends(scene: TenantReservationScene) -> None:
    scene.bench.drop_node("n")
    scene.pod("before", "2")
    await scene.bench.settle()
    scene.reserve(nodes=["m"])
    await scene.bench.settle()
    scene.pod("late", "1")
    await follow(scene.bench)
    scene.bench.delete("before")
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story("early", ["Pending waits for ns/early (no known end)"], id="before it begins")
async def before_it_begins(scene: TenantReservationScene) -> None:
    scene.reserve(nodes=["m", "n"], **{"from": at(500.0)})
    scene.pod("early", "4")
    await follow(scene.bench)
    await scene.bench.settle(6.0)
    await follow(scene.bench)


@story(
    "early",
    ["Active 2 nodes (cpu 4, memory 32Gi free) waits for ns/early (no known end)"],
    id="it begins",
)
async def it_begins(scene: TenantReservationScene) -> None:
    await before_it_begins(scene)
    await scene.bench.settle(500.0)
    scene.pod("late", "1")
    await follow(scene.bench)


@story("early late", ["Expired"], id="it ends")
async def it_ends(scene: TenantReservationScene) -> None:
    await it_begins(scene)
    await scene.bench.settle(500.0)
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story("large small", [], id="it is deleted")
async def it_is_deleted(scene: TenantReservationScene) -> None:
    await amount_is_reserved(scene)
    scene.delete()
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story("mine small", ["Active 3 x cpu 2 (cpu 3 free)"], id="another scheduler takes over")
async def another_scheduler_takes_over(scene: TenantReservationScene) -> None:
    await the_tenant_uses_it(scene)
    scene.take_over()
    scene.pod("more", "1")
    await follow(scene.bench)


@pytest.mark.parametrize(
    ("story", "placed", "statuses"),
    story.rows,
)
def test_stories(story: Story, placed: str, statuses: list[str]) -> None:
    async def run() -> TenantReservationScene:
        scene = TenantReservationScene()
        await story(scene)
        return scene

    assert asyncio.run(run()).outcome() == (placed, statuses)


def test_explain_lists_what_is_reserved_for_others() -> None:
    async def run() -> list[list[str]]:
        scene = TenantReservationScene()
        await amount_is_reserved(scene)
        scene.pod("mine", "9", tenant="t")
        await scene.bench.settle()
        rows = (scene.bench.scheduler.explain("ns", name) for name in ("large", "mine"))
        return [(row or {}).get("reserved", []) for row in rows]

    want = "cpu 6 on 2 nodes for tenant t (ResourceReservation ns/r)"
    assert asyncio.run(run()) == [[want], []]


def test_begin_and_end_are_reported() -> None:
    async def run() -> list[tuple[str, str]]:
        scene = TenantReservationScene()
        await it_ends(scene)
        return [*scene.bench.events("ReservationStarted"), *scene.bench.events("ReservationEnded")]

    assert asyncio.run(run()) == [
        ("r", "reserved for tenant t: 2 nodes"),
        ("r", "released the capacity reserved for tenant t: its time has ended"),
    ]


@pytest.mark.parametrize("seam", ["filter", "charge"])
def test_an_error_about_one_reservation_leaves_the_others(seam: str) -> None:
    """Reservation bad meets errors at first, and is tried again after a pause."""

    async def story() -> list[list[str]]:
        faults = Faults(seam)
        scene = TenantReservationScene(make=faults.bench)
        for name in ("bad", "good"):
            scene.reserve(name, count=1, resources={"cpu": "1"})
        found = []
        for seconds in (0.0, 4.0, 2.0):
            await scene.bench.settle(seconds)
            await follow(scene.bench)
            reserved = scene.bench.scheduler.cache.reserved
            found.append(sorted(key.name.rstrip("/") for key in reserved if reserved.of(key)))
            faults.armed.clear()
        return found

    assert asyncio.run(story()) == [["good"], ["good"], ["bad", "good"]]
