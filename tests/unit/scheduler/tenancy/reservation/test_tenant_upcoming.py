"""Capacity that an administrator reserves for a tenant from a later time on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.fake_reservations import follow
from tests.unit.scheduler.tenancy.reservation.tenant_scene import TenantReservationScene, at

pytestmark = pytest.mark.timeout(30)

Story = Callable[[TenantReservationScene], Awaitable[None]]

BEGINS = 500.0  # the scene begins at 100


def with_duration(seconds: int | None) -> dict[str, Any]:
    if seconds is None:
        return {}
    return {"annotations": {"scheduling.kubenexus.io/expected-duration": f"{seconds}s"}}


async def pending(
    scene: TenantReservationScene,
    name: str,
    cpu: str,
    seconds: int | None,
    *,
    tenant: str = "other",
) -> None:
    scene.pod(name, cpu, tenant=tenant, **with_duration(seconds))
    await scene.bench.settle()


async def running(
    scene: TenantReservationScene, name: str, cpu: str, node: str, seconds: int | None
) -> None:
    started = {"phase": "Running", "startTime": at(100.0)}
    scene.pod(name, cpu, node=node, status=started, **with_duration(seconds))
    await scene.bench.settle()


async def reserve_later(scene: TenantReservationScene, **spec: Any) -> None:
    scene.reserve(**{"from": at(BEGINS), **spec})
    await scene.bench.settle()


async def settle_status(scene: TenantReservationScene) -> None:
    await follow(scene.bench)
    await scene.bench.settle(6.0)
    await follow(scene.bench)


async def it_begins(scene: TenantReservationScene) -> None:
    await scene.bench.settle(BEGINS - scene.bench.now)
    await settle_status(scene)


# --- whole nodes ---


story = Stories()


@story("", "Pending", id="a long pod stays away")
async def long_pod_stays_away(scene: TenantReservationScene) -> None:
    await reserve_later(scene, nodes=["m", "n"])
    await pending(scene, "long", "1", 3600)
    await settle_status(scene)


@story("short", "Pending", id="a pod that ends before may use it")
async def short_pod_uses_it(scene: TenantReservationScene) -> None:
    await reserve_later(scene, nodes=["m", "n"])
    await pending(scene, "short", "4", 300)
    await settle_status(scene)


@story("mine", "Pending", id="the tenant may use it")
async def tenant_uses_it(scene: TenantReservationScene) -> None:
    await reserve_later(scene, nodes=["m", "n"])
    await pending(scene, "mine", "4", 3600, tenant="t")
    await settle_status(scene)


@story("first second", "Pending", id="a pod without a duration is placed elsewhere")
async def pod_without_a_duration_is_placed_elsewhere(scene: TenantReservationScene) -> None:
    """Each leaves one node free while the other has capacity."""
    await reserve_later(scene, nodes=["m"])
    await pending(scene, "first", "2", None)
    await pending(scene, "second", "2", None)
    await settle_status(scene)


@story(
    "first second third",
    "Pending waits for ns/third (no known end)",
    id="a pod without a duration fits nowhere else",
)
async def pod_without_a_duration_fits_nowhere_else(scene: TenantReservationScene) -> None:
    await pod_without_a_duration_is_placed_elsewhere(scene)
    await pending(scene, "third", "2", None)
    await settle_status(scene)


@story(
    "endless long short",
    "Pending waits for ns/long (until 1970-01-01T01:01:40Z), ns/endless (no known end)",
    id="it waits for running pods",
)
async def reservation_waits_for_running_pods(scene: TenantReservationScene) -> None:
    await running(scene, "long", "1", "m", 3600)
    await running(scene, "short", "1", "m", 60)
    await running(scene, "endless", "1", "n", None)
    await reserve_later(scene, nodes=["m", "n"])
    await settle_status(scene)


@story(
    "endless long",
    "Active 2 nodes (cpu 6, memory 32Gi free)"
    " waits for ns/long (until 1970-01-01T01:01:40Z), ns/endless (no known end)",
    id="it begins with other pods on its nodes",
)
async def it_begins_with_other_pods_on_its_nodes(scene: TenantReservationScene) -> None:
    await reservation_waits_for_running_pods(scene)
    scene.bench.delete("short")
    await it_begins(scene)


@story(
    "long mine",
    "Active 2 nodes (cpu 3, memory 32Gi free) waits for ns/long (until 1970-01-01T01:01:40Z)",
    id="the tenant uses it as they end",
)
async def other_pods_end_one_by_one(scene: TenantReservationScene) -> None:
    await it_begins_with_other_pods_on_its_nodes(scene)
    scene.bench.delete("endless")
    await pending(scene, "thief", "4", None)
    await pending(scene, "mine", "4", None, tenant="t")
    await settle_status(scene)


@story("long", "", id="it is deleted before")
async def it_is_deleted_before(scene: TenantReservationScene) -> None:
    await long_pod_stays_away(scene)
    scene.delete()
    await scene.bench.settle(10.0)


@story("", "Pending", id="another scheduler takes over")
async def another_takes_over_before(scene: TenantReservationScene) -> None:
    await reserve_later(scene, nodes=["m", "n"])
    await settle_status(scene)
    scene.take_over()
    await pending(scene, "long", "1", 3600)
    await settle_status(scene)


# --- amounts ---


@story("long-0 long-1", "Pending", id="long pods leave an amount")
async def long_pods_leave_an_amount(scene: TenantReservationScene) -> None:
    await reserve_later(scene, count=2, resources={"cpu": "2"})
    for number in range(4):
        await pending(scene, f"long-{number}", "2", 3600)
    await settle_status(scene)


@story("long-0 long-1", "Active 2 x cpu 2 (cpu 4 free)", id="the amount is free when it begins")
async def the_amount_is_free_when_it_begins(scene: TenantReservationScene) -> None:
    await long_pods_leave_an_amount(scene)
    await it_begins(scene)


@story("long short", "Pending", id="capacity becomes free in time")
async def capacity_becomes_free_in_time(scene: TenantReservationScene) -> None:
    """The place is on the node of the short pod; the long pod is placed on the other node."""
    await running(scene, "short", "4", "m", 300)
    await reserve_later(scene, resources={"cpu": "3"}, nodes=["m"])
    await pending(scene, "long", "4", 3600)
    await settle_status(scene)


@story("long", "Active 1 x cpu 3 (cpu 3 free)", id="no long pod takes it before")
async def it_is_free_when_it_begins(scene: TenantReservationScene) -> None:
    await capacity_becomes_free_in_time(scene)
    scene.bench.delete("short")
    await scene.bench.settle(2.0)
    await pending(scene, "more", "2", 3600)
    await it_begins(scene)


@story("endless", "Pending capacity for 1 of 3 by then", id="not all of it will be free")
async def not_all_of_it_will_be_free(scene: TenantReservationScene) -> None:
    await running(scene, "endless", "2", "m", None)
    await reserve_later(scene, count=3, resources={"cpu": "3"})
    await settle_status(scene)


@story(
    "long-0 long-1",
    "Active 2 x cpu 2 (cpu 4 free)",
    id="another scheduler takes over with an amount",
)
async def another_takes_over_with_an_amount(scene: TenantReservationScene) -> None:
    await long_pods_leave_an_amount(scene)
    scene.take_over()
    await pending(scene, "long", "1", 3600)
    await it_begins(scene)


# --- other times ---


@story(
    "endless",
    "Active 1 x cpu 3 (cpu 3 free) reserved capacity for 1 of 3; the rest follows as it becomes free",
    id="it begins sooner",
)
async def it_begins_sooner(scene: TenantReservationScene) -> None:
    await not_all_of_it_will_be_free(scene)
    await reserve_later(scene, count=3, resources={"cpu": "3"}, **{"from": at(100.0)})
    await settle_status(scene)


@story("", "Active 2 x cpu 3 (cpu 6 free)", id="it lasts longer")
async def it_lasts_longer(scene: TenantReservationScene) -> None:
    """The reserved capacity stays where it is, and no other pod takes it meanwhile."""
    scene.reserve(count=2, resources={"cpu": "3"})
    await settle_status(scene)
    scene.reserve(count=2, resources={"cpu": "3"}, until=at(2000.0))
    await pending(scene, "thief", "4", None)
    await scene.bench.settle(1000.0)
    await settle_status(scene)


@story(
    "long short",
    "Active 0 x cpu 3 reserved capacity for 0 of 1; the rest follows as it becomes free",
    id="a pod overruns its duration",
)
async def pod_overruns_its_duration(scene: TenantReservationScene) -> None:
    """Another scheduler estimates the same."""
    await capacity_becomes_free_in_time(scene)
    scene.take_over()
    await it_begins(scene)


@story("short", "Pending", id="it begins later")
async def it_begins_later(scene: TenantReservationScene) -> None:
    scene.reserve(nodes=["m", "n"])
    await settle_status(scene)
    await pending(scene, "short", "4", 60)
    await reserve_later(scene, nodes=["m", "n"])
    await settle_status(scene)


# --- nodes that are lost ---


@story("", "Active 2 x cpu 2 (cpu 4 free)", id="a node with places is deleted")
async def node_is_deleted(scene: TenantReservationScene) -> None:
    scene.reserve(count=2, resources={"cpu": "2"})
    await settle_status(scene)
    places = scene.store.objects["r"]["status"]["places"]
    scene.bench.drop_node(places[0]["node"])
    await settle_status(scene)


@story("", "Pending", id="a place is lost before it begins: replaced at once")
async def place_is_lost_before_it_begins(scene: TenantReservationScene) -> None:
    """The first status already lists the other node: a search 30 s later would be too late."""
    await reserve_later(scene, count=1, resources={"cpu": "3"})
    await settle_status(scene)
    [place] = scene.store.objects["r"]["status"]["places"]
    scene.bench.drop_node(place["node"])
    await pending(scene, "long", "2", 3600)
    await settle_status(scene)


@story("mine", "Active 2 x cpu 2 (cpu 3 free)", id="a node is cordoned that the tenant uses")
async def node_in_use_is_cordoned(scene: TenantReservationScene) -> None:
    """Places in use stay; the scheduler searches for others elsewhere."""
    scene.bench.drop_node("n")
    scene.reserve(count=2, resources={"cpu": "2"})
    await pending(scene, "mine", "1", None, tenant="t")
    await settle_status(scene)
    scene.bench.node("m", cpu="4", labels={"disk": "fast"}, unschedulable=True)
    scene.bench.node("n", cpu="4")
    await settle_status(scene)


@pytest.mark.parametrize(
    ("story", "placed", "status"),
    story.rows,
)
def test_stories(story: Story, placed: str, status: str) -> None:
    async def run() -> TenantReservationScene:
        scene = TenantReservationScene()
        await story(scene)
        return scene

    assert asyncio.run(run()).outcome() == (placed, [status] if status else [])


def test_a_rejected_pod_names_the_reservation() -> None:
    async def run() -> list[Any]:
        scene = TenantReservationScene()
        await long_pod_stays_away(scene)
        scene.pod("mine", "9", tenant="t")
        await scene.bench.settle()
        rows = (scene.bench.scheduler.explain("ns", name) or {} for name in ("long", "mine"))
        return [*scene.bench.events("FailedScheduling")[:1], *(row.get("reserved") for row in rows)]

    text = "0/2 nodes are available: 2 node(s) will be reserved for another tenant before it ends."
    kept = "2 nodes from 1970-01-01T00:08:20Z on for tenant t (ResourceReservation ns/r)"
    assert asyncio.run(run()) == [("long", text), [kept], None]


def test_lost_places_are_reported() -> None:
    async def run() -> list[tuple[str, str]]:
        scene = TenantReservationScene()
        await node_in_use_is_cordoned(scene)
        return scene.bench.events("ReservationIncomplete")

    text = (
        "searching for other capacity to reserve for tenant t: node m no longer accepts such pods"
    )
    assert asyncio.run(run()) == [("r", text)]


def test_a_reservation_that_lasts_longer_stays_active() -> None:
    async def run() -> list[str]:
        scene = TenantReservationScene()
        await it_lasts_longer(scene)
        return [one.reason for one in scene.bench.reports if one.reason.startswith("Reservation")]

    assert asyncio.run(run()) == ["ReservationStarted"]
