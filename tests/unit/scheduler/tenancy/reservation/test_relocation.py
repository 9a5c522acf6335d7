"""Capacity reserved for pending members: lost with a bind or a node, moved, and reported."""

import asyncio

import pytest

from cluster import errors
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import MEMBER_RESOURCES, leader, member, settle_gang
from tests.unit.scheduler.tenancy.fake_reservations import follow
from tests.unit.scheduler.tenancy.leader_gang import (
    ONE,
    SHORT,
    TWO,
    Scene,
    Story,
    all_members_exist,
    leader_is_deleted,
    leader_waits,
    no_member_is_created,
    object_is_deleted,
    one_member_exists,
    taken_over_after_the_leader_was_deleted,
)

pytestmark = pytest.mark.timeout(30)


ENDED = "released the capacity reserved for pending members of pod group a: "

MOVED = "moved the capacity reserved for pending members of pod group a to"

INCOMPLETE = "reserved capacity for 1 of 2 pending members of pod group a; searching for the rest"
story = Stories()
reports = Stories()


@story("a-driver", 2, TWO, id="a member's bind fails: its capacity stays reserved")
async def a_members_bind_fails(scene: Scene) -> None:
    """Another pod waits for the capacity, which no bound pod uses."""
    await leader_waits(scene)
    scene.bench.api.faults.append(errors.Conflict("try again"))
    member(scene.bench, "a", 1, 3)
    scene.bench.pod("thief", cpu="2", created="2025-01-01T00:00:00Z")
    await follow(scene.bench)


@story("a-1 a-driver", 1, ONE, id="the last member's bind fails: its capacity stays reserved")
async def the_last_members_bind_fails(scene: Scene) -> None:
    await one_member_exists(scene)
    scene.bench.api.faults.append(errors.Conflict("try again"))
    member(scene.bench, "a", 2, 3)
    scene.bench.pod("thief", cpu="2", created="2025-01-01T00:00:00Z")
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="it is bound later")
@reports(
    ["ReservationEnded a-driver", f"{ENDED}all members exist"],
    id="all members exist, the last one after a failed bind",
)
async def it_is_bound_later(scene: Scene) -> None:
    await the_last_members_bind_fails(scene)
    await scene.bench.settle(2.0)
    await follow(scene.bench)


@story("a-1 a-3 a-driver", 0, [], id="its pod is deleted and recreated")
async def member_is_recreated(scene: Scene) -> None:
    await the_last_members_bind_fails(scene)
    scene.bench.delete("a-2")
    await follow(scene.bench)
    member(scene.bench, "a", 3, 3)
    await follow(scene.bench)
    await scene.bench.settle(2.0)
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="a member above the size fails: nothing is reserved")
async def one_more_than_needed_fails(scene: Scene) -> None:
    """Bound one after the other in their order: the last bind fails."""
    await leader_waits(scene)
    scene.bench.api.faults.extend([None, None, errors.Conflict("try again")])
    for number in (1, 2, 3):
        member(scene.bench, "a", number, 3)
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="taken over after a member's bind failed")
async def taken_over_after_a_members_bind_failed(scene: Scene) -> None:
    await the_last_members_bind_fails(scene)
    scene.take_over()
    await follow(scene.bench)


async def a_driver_and_two_nodes(scene: Scene, cpu: str = "3") -> None:
    """The leader on n, capacity for one of its members on each of n and m."""
    scene.node("n", cpu)
    scene.node("m", "1")
    leader(scene.bench, "a", 3, cpu="2", annotations={MEMBER_RESOURCES: "cpu=1"})
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story("a-driver", 1, SHORT, id="a node is deleted, no capacity elsewhere")
@reports(
    ["ReservationIncomplete a-driver", f"{INCOMPLETE}: node m was deleted"],
    id="a node is deleted, no capacity elsewhere",
)
async def node_is_deleted(scene: Scene) -> None:
    await a_driver_and_two_nodes(scene)
    scene.drop_node("m")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a node is deleted, another has capacity")
@reports(
    ["ReservationMoved a-driver", f"{MOVED} n, o: node m was deleted"],
    id="a node is deleted, another has capacity",
)
async def node_is_deleted_and_another_has_capacity(scene: Scene) -> None:
    await a_driver_and_two_nodes(scene)
    scene.node("o", "1")
    scene.drop_node("m")
    scene.bench.pod("thief", cpu="1")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a node is deleted, another is added")
@reports(
    [
        "ReservationIncomplete a-driver",
        f"{INCOMPLETE}: node m was deleted",
        "ReservationMoved a-driver",
        f"{MOVED} n, o: capacity became free",
    ],
    id="capacity is added later",
)
async def node_is_added_later(scene: Scene) -> None:
    await node_is_deleted(scene)
    scene.bench.pod("thief", cpu="1", created="2025-01-01T00:00:00Z")
    await follow(scene.bench)
    scene.node("o", "1")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a node is deleted, capacity becomes free later")
async def capacity_becomes_free_later(scene: Scene) -> None:
    scene.bench.pod("before", cpu="1", node="n")
    await a_driver_and_two_nodes(scene, "4")
    scene.drop_node("m")
    scene.bench.pod("thief", cpu="1", created="2025-01-01T00:00:00Z")
    await follow(scene.bench)
    scene.bench.delete("before")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a node is cordoned")
@reports(
    ["ReservationMoved a-driver", f"{MOVED} n, o: node m no longer accepts such pods"],
    id="a node is cordoned",
)
async def a_node_is_cordoned(scene: Scene) -> None:
    await a_driver_and_two_nodes(scene)
    scene.node("o", "1")
    scene.node("m", "1", unschedulable=True)
    await follow(scene.bench)


@story("a-driver", 1, SHORT, id="a node is not ready")
async def a_node_is_not_ready(scene: Scene) -> None:
    await a_driver_and_two_nodes(scene)
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    scene.node("m", "1", taints=[taint])
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="the node is ready again")
async def the_node_is_ready_again(scene: Scene) -> None:
    await a_node_is_not_ready(scene)
    scene.bench.pod("thief", cpu="1", created="2025-01-01T00:00:00Z")
    scene.node("m", "1")
    await follow(scene.bench)


@story("a-driver", 1, SHORT, id="members are created while incomplete")
async def members_are_created_while_incomplete(scene: Scene) -> None:
    """None of them starts before capacity is reserved for all."""
    await node_is_deleted(scene)
    member(scene.bench, "a", 1, 3)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)
    await scene.bench.settle(120.0)
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="then a node is added")
async def then_a_node_is_added(scene: Scene) -> None:
    await members_are_created_while_incomplete(scene)
    scene.node("o", "1")
    await follow(scene.bench)
    await scene.bench.settle(10.0)
    await follow(scene.bench)


@story("a-1 a-driver", 1, ONE, id="one member, and then a node")
async def one_member_and_then_a_node(scene: Scene) -> None:
    await node_is_deleted(scene)
    member(scene.bench, "a", 1, 3)
    await follow(scene.bench)
    scene.node("o", "1")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="taken over while incomplete")
async def taken_over_while_incomplete(scene: Scene) -> None:
    await node_is_deleted(scene)
    scene.take_over()
    await follow(scene.bench)
    scene.node("o", "1")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a node was deleted while no scheduler ran")
async def node_deleted_while_no_scheduler_ran(scene: Scene) -> None:
    await a_driver_and_two_nodes(scene)
    del scene.nodes["m"]
    scene.node("o", "1")
    scene.take_over()
    await follow(scene.bench)


@story("", 0, [], id="the leader is deleted while incomplete")
async def leader_is_deleted_while_incomplete(scene: Scene) -> None:
    await node_is_deleted(scene)
    scene.bench.delete("a-driver")
    await follow(scene.bench)


@pytest.mark.parametrize(
    ("story", "placed", "reserved", "statuses"),
    story.rows,
)
def test_stories(story: Story, placed: str, reserved: int, statuses: list[tuple[str, str]]) -> None:
    async def run() -> Scene:
        scene = Scene()
        await story(scene)
        return scene

    assert asyncio.run(run()).outcome() == (placed, reserved, statuses)


def test_the_status_lists_a_place_until_its_member_is_bound() -> None:
    """A scheduler that takes over in between finds it."""

    async def run() -> list[tuple[int, str]]:
        scene, seen = Scene(), []
        await leader_waits(scene)
        scene.store.on_status = lambda status: seen.append(
            (len(status["places"]), scene.bench.api.nodes()["a-1"])
        )
        scene.bench.api.faults.extend([errors.Retry("no answer")] * 4)
        member(scene.bench, "a", 1, 3)
        await follow(scene.bench)
        return seen

    found = asyncio.run(run())
    assert (found[0], found[-1]) == ((2, ""), (1, "n"))


GONE = "its leader ended, or is not bound and is planned again"


@pytest.mark.parametrize(
    ("story", "reported"),
    [
        *reports.rows,
        pytest.param(
            all_members_exist,
            ["ReservationEnded a-driver", f"{ENDED}all members exist"],
            id="all members exist",
        ),
        pytest.param(
            object_is_deleted,
            ["ReservationEnded a-driver", f"{ENDED}its ResourceReservation was deleted"],
            id="the object is deleted",
        ),
        pytest.param(
            no_member_is_created,
            [
                "ReservationEnded a-driver",
                f"{ENDED}its members were not created within 600s or the gang's timeout",
            ],
            id="it expired",
        ),
        pytest.param(
            leader_is_deleted, ["ReservationEnded OBJECT", f"{ENDED}its leader ended"], id="leader"
        ),
        pytest.param(
            taken_over_after_the_leader_was_deleted,
            ["ReservationEnded OBJECT", f"{ENDED}{GONE}"],
            id="the leader was deleted while no scheduler ran",
        ),
    ],
)
def test_events_report_each_change(story: Story, reported: list[str]) -> None:
    async def run() -> list[str]:
        scene = Scene()
        await story(scene)
        rows = [one for one in scene.bench.reports if one.reason.startswith("Reservation")]
        return [
            text
            for one in rows
            for text in (
                f"{one.reason} {_holder(one.regarding.kind, one.regarding.name)}",
                one.note,
            )
        ]

    def _holder(kind: str, name: str) -> str:
        return "OBJECT" if kind == "ResourceReservation" else name

    assert asyncio.run(run()) == reported


def test_each_gang_that_loses_a_node_is_reported_beside_one_that_waits_already() -> None:
    """The nodes are labelled by gang: what one of them loses, the other cannot use."""

    async def run() -> list[list[str]]:
        scene = Scene()
        for gang in ("a", "b"):
            for name, cpu in (("n", "3"), ("m", "1")):
                scene.node(f"{name}-{gang}", cpu, labels={"for": gang})
            annotations = {MEMBER_RESOURCES: "cpu=1"}
            selector = {"for": gang}
            leader(scene.bench, gang, 3, cpu="2", annotations=annotations, nodeSelector=selector)
            await settle_gang(scene.bench)
            await follow(scene.bench)
        found = []
        for gang in ("a", "b"):
            del scene.bench.reports[:]
            scene.drop_node(f"m-{gang}")
            await follow(scene.bench)
            found.append([f"{one.reason} {one.regarding.name}" for one in scene.bench.reports])
        return found

    assert asyncio.run(run()) == [
        ["ReservationIncomplete a-driver"],
        ["ReservationIncomplete b-driver"],
    ]
