"""Reservations as objects: written before a leader is bound, and read again by a new scheduler."""

import asyncio
from typing import Any

import pytest

from cluster import errors
from policies.documents.reservation import Place
from scheduler.tenancy.reservation import controller
from tests.unit.scheduler.bench import Bench, an_owner
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import MEMBER_RESOURCES, leader, member, settle_gang
from tests.unit.scheduler.tenancy.fake_reservations import follow
from tests.unit.scheduler.tenancy.leader_gang import (
    ONE,
    TWO,
    Scene,
    Story,
    a_driver_waits,
    a_member_comes,
    all_members_come,
    nobody_comes,
    somebody_deletes_the_object,
    taken_over_when_the_leader_is_gone,
    the_leader_goes,
)

pytestmark = pytest.mark.timeout(30)

Json = dict[str, Any]


story = Stories()


@story("", 0, [], id="a deletion fails and is tried again")
async def a_deletion_fails(scene: Scene) -> None:
    scene.shelf.delete_faults.extend([errors.Retry("no answer"), errors.Retry("no answer")])
    await the_leader_goes(scene)
    await follow(scene.bench)


@story("", 0, [], id="creation is refused: nobody is bound")
async def creation_is_refused(scene: Scene) -> None:
    scene.shelf.faults.append(errors.Refused("may not"))
    leader(scene.bench, "a", 3)
    await settle_gang(scene.bench)


@story("a-driver", 2, TWO, id="refused and tried again")
async def refused_and_tried_again(scene: Scene) -> None:
    await creation_is_refused(scene)
    await scene.bench.settle(2.0)
    await scene.bench.settle(2.0)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="an answer is lost")
async def an_answer_is_lost(scene: Scene) -> None:
    scene.shelf.faults.append(errors.Retry("no answer"))
    await a_driver_waits(scene)


@story("", 0, [], id="the bind fails: the room is open")
async def the_bind_fails(scene: Scene) -> None:
    scene.bench.api.faults.append(errors.Refused("may not"))
    leader(scene.bench, "a", 3)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="another scheduler wrote while this one took over")
async def another_wrote_while_this_one_took_over(scene: Scene) -> None:
    """The one that led wrote its object and bound the leader when this one had begun."""
    await a_driver_waits(scene)
    scene.bench = Bench(scene.bench.api, reservations=scene.shelf)
    for name, cpu in scene.nodes.items():
        scene.bench.node(name, cpu=cpu)
    await scene.bench.settle()
    scene.bench.show_all()
    scene.shelf.show(scene.bench)
    scene.bench.pod("thief", cpu="2")
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="another scheduler takes over")
async def another_takes_over(scene: Scene) -> None:
    await a_driver_waits(scene)
    scene.take_over()
    scene.bench.pod("thief", cpu="2")
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="members come after that")
async def members_come_after_a_take_over(scene: Scene) -> None:
    await another_takes_over(scene)
    member(scene.bench, "a", 1, 3)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)


@story("a-1 a-driver", 1, ONE, id="taken over with a member that no status shows")
async def taken_over_with_a_member_that_no_status_shows(scene: Scene) -> None:
    await a_driver_waits(scene)
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
    await a_driver_waits(scene)
    del scene.bench.api.pods["a-driver"]["spec"]["nodeName"]
    scene.take_over()
    await scene.bench.settle()


@story("a-driver", 2, TWO, id="taken over before the leader was bound")
async def planned_anew_after_that(scene: Scene) -> None:
    await taken_over_before_the_leader_was_bound(scene)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story("a-driver", 0, [], id="taken over as the leader ends")
async def taken_over_while_the_leader_ends(scene: Scene) -> None:
    await a_driver_waits(scene)
    scene.bench.api.pods["a-driver"]["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    scene.take_over()
    await follow(scene.bench)


@story("a-1 a-2 a-driver", 0, [], id="taken over, and nothing is taken apart")
async def members_come_long_after_a_take_over(scene: Scene) -> None:
    await a_driver_waits(scene)
    scene.bench.api.pods["a-driver"]["metadata"]["ownerReferences"] = [an_owner()]
    scene.take_over()
    member(scene.bench, "a", 1, 3)
    await follow(scene.bench)
    await scene.bench.settle(120.0)
    member(scene.bench, "a", 2, 3)
    await follow(scene.bench)


@story("a-driver", 2, TWO, id="a status fails and is tried again")
async def a_status_fails(scene: Scene) -> None:
    scene.shelf.status_faults.append(errors.Retry("no answer"))
    await a_driver_waits(scene)


@story("a-driver", 0, TWO, id="a standby keeps nothing")
async def a_standby_keeps_nothing(scene: Scene) -> None:
    await a_driver_waits(scene)
    scene.take_over()
    scene.bench.leading = False
    await follow(scene.bench)


@story("", 0, [], id="the kind is missing")
async def the_kind_is_missing(scene: Scene) -> None:
    scene.bench.scheduler.tenancy.reservations_served(False)
    await a_driver_waits(scene)


@story("a-driver", 2, TWO, id="the kind is installed later")
async def the_kind_is_installed_later(scene: Scene) -> None:
    await the_kind_is_missing(scene)
    scene.bench.scheduler.tenancy.reservations_served(True)
    await settle_gang(scene.bench)
    await follow(scene.bench)


@pytest.mark.parametrize(
    ("story", "placed", "kept", "told"),
    [
        *story.rows,
        pytest.param(a_driver_waits, "a-driver", 2, TWO, id="written for a driver"),
        pytest.param(a_member_comes, "a-1 a-driver", 1, ONE, id="a member takes over"),
        pytest.param(all_members_come, "a-1 a-2 a-driver", 0, [], id="all members have come"),
        pytest.param(the_leader_goes, "", 0, [], id="the leader goes"),
        pytest.param(
            taken_over_when_the_leader_is_gone, "next", 0, [], id="the leader went, nobody led"
        ),
        pytest.param(nobody_comes, "a-driver", 0, [], id="nobody comes"),
        pytest.param(
            somebody_deletes_the_object, "a-driver", 0, [], id="somebody deletes the object"
        ),
    ],
)
def test_stories(story: Story, placed: str, kept: int, told: list[tuple[str, str]]) -> None:
    async def run() -> Scene:
        scene = Scene()
        await story(scene)
        return scene

    assert asyncio.run(run()).outcome() == (placed, kept, told)


@pytest.mark.parametrize(
    ("places", "came", "most", "left"),
    [
        pytest.param("m n", {}, 2, "m n", id="nobody came"),
        pytest.param("m n", {"m": 1}, 1, "n", id="one came to the first"),
        pytest.param("m n", {"n": 1}, 1, "m", id="one came to the second"),
        pytest.param("m n", {"o": 1}, 1, "m", id="one came elsewhere"),
        pytest.param("m m n", {"m": 1}, 2, "m n", id="one of two on a node"),
        pytest.param("n", {"n": 1}, 1, "n", id="the status knows already"),
        pytest.param("m n", {"m": 1, "n": 1}, 0, "", id="all came"),
    ],
)
def test_places_that_nobody_has_taken(
    places: str, came: dict[str, int], most: int, left: str
) -> None:
    rows = [Place(node=name) for name in places.split()]
    assert " ".join(one.node for one in controller.unused_places(rows, came, most)) == left


def test_the_object_is_there_before_the_leader_is_bound() -> None:
    async def run() -> list[str]:
        scene, seen = Scene(), []
        scene.shelf.seen = lambda what: seen.append(
            f"{what}, driver on {scene.bench.api.nodes()['a-driver'] or 'no node'}"
        )
        await a_driver_waits(scene)
        return seen

    assert asyncio.run(run()) == ["created, driver on no node"]


def test_what_the_object_says() -> None:
    async def run() -> Json:
        scene = Scene()
        labels = {"tenant.kubenexus.io/name": "t"}
        members = {MEMBER_RESOURCES: "cpu=1500m,memory=1Gi"}
        leader(scene.bench, "Job_A", 3, labels=labels, annotations=members)
        await settle_gang(scene.bench)
        await follow(scene.bench)
        (found,) = scene.shelf.objects.values()
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


def test_a_gang_that_waits_for_want_of_the_kind_says_so() -> None:
    async def run() -> list[tuple[str, str]]:
        scene = Scene()
        await the_kind_is_missing(scene)
        return scene.bench.events("GangWaiting")

    text = (
        "waiting for pod group a: 1/3 pods exist; its leader cannot go"
        " first: the kind ResourceReservation is not installed"
    )
    assert asyncio.run(run()) == [("a-driver", text)]


def test_who_waits_is_told_what_is_kept_for_others() -> None:
    async def run() -> list[list[str]]:
        scene = Scene()
        await another_takes_over(scene)
        scene.bench.pod("b-driver", gang=("b", 9))
        await scene.bench.settle()
        rows = (scene.bench.scheduler.explain("ns", name) for name in ("thief", "a-driver"))
        return [(row or {}).get("reserved", []) for row in rows]

    assert asyncio.run(run()) == [["cpu 2 on node n for pod group ns/a"], []]
