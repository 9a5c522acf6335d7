"""ResourceReservations: created before a leader is bound, and restored by a new scheduler."""

import asyncio
from typing import Any

import pytest

from cluster import errors
from policies.documents.reservation import Place
from scheduler.tenancy.reservation import controller
from tests.unit.scheduler.bench import Bench, an_owner
from tests.unit.scheduler.faults import Bug
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import MEMBER_RESOURCES, leader, member, settle_gang
from tests.unit.scheduler.tenancy.fake_reservations import follow
from tests.unit.scheduler.tenancy.leader_gang import (
    ONE,
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

Json = dict[str, Any]


story = Stories()


@story("", 0, [], id="deletion fails and is retried")
async def a_deletion_fails(scene: Scene) -> None:
    scene.store.delete_faults.extend([errors.Retry("no answer"), errors.Retry("no answer")])
    await leader_is_deleted(scene)
    await follow(scene.bench)


@story("", 0, [], id="creation is denied: no pod is bound")
async def creation_is_denied(scene: Scene) -> None:
    scene.store.faults.append(errors.Refused("may not"))
    leader(scene.bench, "a", 3)
    await settle_gang(scene.bench)


@story("a-driver", 2, TWO, id="denied and retried")
async def denied_and_retried(scene: Scene) -> None:
    await creation_is_denied(scene)
    await scene.bench.settle(2.0)
    await scene.bench.settle(2.0)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a response is lost")
async def response_is_lost(scene: Scene) -> None:
    scene.store.faults.append(errors.Retry("no answer"))
    await leader_waits(scene)


@story("", 0, [], id="the bind fails: the capacity is released")
async def the_bind_fails(scene: Scene) -> None:
    scene.bench.api.faults.append(errors.Refused("may not"))
    leader(scene.bench, "a", 3)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="the former leader wrote during the takeover")
async def former_leader_wrote_during_the_takeover(scene: Scene) -> None:
    """The former leader created its object and bound the pod when this scheduler had started."""
    await leader_waits(scene)
    scene.bench = Bench(scene.bench.api, reservations=scene.store)
    for name, cpu in scene.nodes.items():
        scene.bench.node(name, cpu=cpu)
    await scene.bench.settle()
    scene.bench.show_all()
    scene.store.show(scene.bench)
    scene.bench.pod("thief", cpu="2")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="another scheduler takes over")
async def another_takes_over(scene: Scene) -> None:
    await leader_waits(scene)
    scene.take_over()
    scene.bench.pod("thief", cpu="2")
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="members are created after that")
async def members_are_created_after_a_takeover(scene: Scene) -> None:
    await another_takes_over(scene)
    member(scene.bench, "a", 1, 3)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)


@story("a-1 a-driver", 1, ONE, id="taken over with a member that no status shows")
async def taken_over_with_a_member_that_no_status_shows(scene: Scene) -> None:
    await leader_waits(scene)
    member(scene.bench, "a", 1, 3)
    await scene.bench.settle()
    scene.take_over()
    await follow(scene.bench)


@story("a-1 a-driver", 1, ONE, id="taken over with a member on one of two nodes")
async def taken_over_with_a_member_on_one_of_two_nodes(scene: Scene) -> None:
    scene.node("n", "2")
    scene.node("m", "1")
    await taken_over_with_a_member_that_no_status_shows(scene)


async def taken_over_before_the_leader_was_bound(scene: Scene) -> None:
    await leader_waits(scene)
    del scene.bench.api.pods["a-driver"]["spec"]["nodeName"]
    scene.take_over()
    await scene.bench.settle()


@story("a-driver", 2, TWO, id="taken over before the leader was bound")
async def planned_again_after_that(scene: Scene) -> None:
    await taken_over_before_the_leader_was_bound(scene)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story("a-driver", 0, [], id="taken over as the leader ends")
async def taken_over_while_the_leader_ends(scene: Scene) -> None:
    await leader_waits(scene)
    scene.bench.api.pods["a-driver"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    scene.take_over()
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="taken over, and the gang stays whole")
async def members_are_created_long_after_a_takeover(scene: Scene) -> None:
    await leader_waits(scene)
    scene.bench.api.pods["a-driver"]["metadata"]["ownerReferences"] = [an_owner()]
    scene.take_over()
    member(scene.bench, "a", 1, 3)
    await follow(scene.bench)
    await scene.bench.settle(120.0)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)


@story("a-driver", 0, [], id="taken over, and the reservation ends at its time")
async def a_restored_reservation_ends_at_its_time(scene: Scene) -> None:
    await leader_waits(scene)
    scene.take_over()
    await follow(scene.bench)
    await scene.bench.settle(650.0)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a status update fails and is retried")
async def a_status_fails(scene: Scene) -> None:
    scene.store.status_faults.append(errors.Retry("no answer"))
    await leader_waits(scene)


@story("a-driver", 0, TWO, id="a standby reserves nothing")
async def standby_reserves_nothing(scene: Scene) -> None:
    await leader_waits(scene)
    scene.take_over()
    scene.bench.leading = False
    await follow(scene.bench)


@story("", 0, [], id="the kind is missing")
async def the_kind_is_missing(scene: Scene) -> None:
    scene.bench.scheduler.tenancy.reservations_served(False)
    await leader_waits(scene)


@story("a-driver", 2, TWO, id="the kind is installed later")
async def the_kind_is_installed_later(scene: Scene) -> None:
    await the_kind_is_missing(scene)
    scene.bench.scheduler.tenancy.reservations_served(True)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@pytest.mark.parametrize(
    ("story", "placed", "reserved", "statuses"),
    [
        *story.rows,
        pytest.param(leader_waits, "a-driver", 2, TWO, id="created for a leader"),
        pytest.param(
            one_member_exists, "a-1 a-driver", 1, ONE, id="a member replaces a placeholder"
        ),
        pytest.param(all_members_exist, "a-1 a-2 a-driver", 0, [], id="all members exist"),
        pytest.param(leader_is_deleted, "", 0, [], id="the leader is deleted"),
        pytest.param(
            taken_over_after_the_leader_was_deleted,
            "next",
            0,
            [],
            id="the leader was deleted while no scheduler ran",
        ),
        pytest.param(no_member_is_created, "a-driver", 0, [], id="no member is created"),
        pytest.param(object_is_deleted, "a-driver", 0, [], id="the object is deleted"),
    ],
)
def test_stories(story: Story, placed: str, reserved: int, statuses: list[tuple[str, str]]) -> None:
    async def run() -> Scene:
        scene = Scene()
        await story(scene)
        return scene

    assert asyncio.run(run()).outcome() == (placed, reserved, statuses)


@pytest.mark.parametrize(
    ("places", "came", "most", "left"),
    [
        pytest.param("m n", {}, 2, "m n", id="no member exists"),
        pytest.param("m n", {"m": 1}, 1, "n", id="a member on the first"),
        pytest.param("m n", {"n": 1}, 1, "m", id="a member on the second"),
        pytest.param("m n", {"o": 1}, 1, "m", id="a member elsewhere"),
        pytest.param("m m n", {"m": 1}, 2, "m n", id="one of two on a node"),
        pytest.param("n", {"n": 1}, 1, "n", id="the status is up to date"),
        pytest.param("m n", {"m": 1, "n": 1}, 0, "", id="all members exist"),
    ],
)
def test_unused_places(places: str, came: dict[str, int], most: int, left: str) -> None:
    rows = [Place(node=name) for name in places.split()]
    assert " ".join(one.node for one in controller.unused_places(rows, came, most)) == left


def test_the_object_is_there_before_the_leader_is_bound() -> None:
    async def run() -> list[str]:
        scene, seen = Scene(), []
        scene.store.on_create = lambda what: seen.append(
            f"{what}, driver on {scene.bench.api.nodes()['a-driver'] or 'no node'}"
        )
        await leader_waits(scene)
        return seen

    assert asyncio.run(run()) == ["created, driver on no node"]


def test_content_of_the_object() -> None:
    async def run() -> Json:
        scene = Scene()
        labels = {"tenant.kubenexus.io/name": "t"}
        members = {MEMBER_RESOURCES: "cpu=1500m,memory=1Gi"}
        leader(scene.bench, "Job_A", 3, labels=labels, annotations=members)
        await settle_gang(scene.bench)
        await follow(scene.bench)
        (found,) = scene.store.objects.values()
        return found

    found = asyncio.run(run())
    assert found == {
        "apiVersion": "scheduling.kubenexus.io/v1alpha1",
        "kind": "ResourceReservation",
        "metadata": {
            "name": found["metadata"]["name"],
            "namespace": "ns",
            "uid": "object-1",
            "labels": {"app.kubernetes.io/managed-by": "kubenexus-scheduler"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "Job_A-driver",
                    "uid": found["spec"]["podGroup"]["leader"],
                }
            ],
        },
        "spec": {
            "tenant": "t",
            "podGroup": {
                "name": "Job_A",
                "leader": found["spec"]["podGroup"]["leader"],
                "members": 2,
                "resources": {"cpu": "1500m", "memory": "1Gi"},
                "places": [{"node": "n"}, {"node": "n"}],
            },
            "until": "1970-01-01T00:11:41Z",
        },
        "status": {
            "phase": "Active",
            "held": "2 x cpu 1500m, memory 1Gi",
            "message": "",
            "places": [{"node": "n"}, {"node": "n"}],
        },
    }
    assert found["metadata"]["name"].startswith("job-a-")


def test_a_gang_reports_that_the_kind_is_missing() -> None:
    async def run() -> list[tuple[str, str]]:
        scene = Scene()
        await the_kind_is_missing(scene)
        return scene.bench.events("GangWaiting")

    text = (
        "waiting for pod group a: 1/3 pods exist; its leader cannot go"
        " first: the kind ResourceReservation is not installed"
    )
    assert asyncio.run(run()) == [("a-driver", text)]


def test_explain_lists_what_is_reserved_for_others() -> None:
    async def run() -> list[list[str]]:
        scene = Scene()
        await another_takes_over(scene)
        scene.bench.pod("b-driver", gang=("b", 9))
        await scene.bench.settle()
        rows = (scene.bench.scheduler.explain("ns", name) for name in ("thief", "a-driver"))
        return [(row or {}).get("reserved", []) for row in rows]

    assert asyncio.run(run()) == [["cpu 2 on node n for pod group ns/a"], []]


def test_a_bug_while_writing_a_status_is_tried_again() -> None:
    async def run() -> int:
        scene = Scene()
        scene.store.status_faults.append(Bug())
        await leader_waits(scene)
        for _ in range(20):
            await scene.bench.settle(1.0)
        (obj,) = scene.store.objects.values()
        return len(obj["status"]["places"])

    assert asyncio.run(run()) > 0
