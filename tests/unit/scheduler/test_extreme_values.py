"""Pods that the API server stores with any number in them: the scheduler places the others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cluster.informer import EventKind, WatchEvent
from policies import vocabulary
from scheduler.model.gang import PodGroup, read_native_pod_group, read_x_k8s_pod_group
from scheduler.report import events
from scheduler.tenancy.reservation.members import MAX_SECONDS
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.stories import Stories
from tests.unit.scheduler.tenancy.builders import (
    backfill,
    leader,
    pending_pod,
    running_pod,
    settle_gang,
)
from tests.unit.scheduler.tenancy.fake_reservations import FakeReservations, follow

pytestmark = pytest.mark.timeout(60)

FAR = "99999999999h"
MOST = 2**63 - 1

story = Stories()


class Scene:
    """A cluster of two nodes with 4 CPUs and a GPU; `plain` waits besides what a story is about."""

    def __init__(self) -> None:
        self.store = FakeReservations()
        self.bench = Bench(reservations=self.store)
        for name in ("a", "b"):
            self.bench.node(name, cpu="4", gpus=1)

    def outcome(self) -> dict[str, str]:
        assert len(self.bench.scheduler.cache_mismatches()) == 0
        return {name: node for name, node in sorted(self.bench.api.nodes().items()) if node}


Story = Callable[[Scene], Awaitable[None]]


@story({"a-driver": "a", "plain": "b"}, id="a leader whose timeout is beyond every calendar")
async def timeout_of_a_leader(scene: Scene) -> None:
    notes = {vocabulary.GANG_TIMEOUT_ANNOTATION: FAR}
    leader(scene.bench, "a", 2, annotations=notes)
    await settle_gang(scene.bench)
    await follow(scene.bench)
    (reservation,) = scene.store.objects.values()
    assert reservation["spec"]["until"] == "1970-01-02T00:01:41Z"  # a day after the plan


@story(
    {"one": "a", "plain": "a", "two": "b"},
    id="a gang waits for a pod that runs longer than every calendar",
)
async def duration_of_a_running_pod(scene: Scene) -> None:
    scene.bench.scheduler.adopt(backfill())
    running_pod(scene.bench, "one", "a", FAR)
    running_pod(scene.bench, "two", "b", "1h")
    pending_pod(scene.bench, "next-0", gang=("next", 2))
    pending_pod(scene.bench, "next-1", gang=("next", 2))
    await scene.bench.settle()
    await scene.bench.settle(10)
    assert scene.bench.events(events.START_ESTIMATED) == []  # no end of `one` is in sight


@story(
    {"one": "a", "plain": "a", "two": "b"},
    id="a terminating pod has a grace period beyond every calendar",
)
async def grace_period_of_a_terminating_pod(scene: Scene) -> None:
    scene.bench.scheduler.adopt(backfill())
    running_pod(scene.bench, "one", "a", "1h", deleted=True, terminationGracePeriodSeconds=MOST)
    running_pod(scene.bench, "two", "b", "1h")
    pending_pod(scene.bench, "next-0", gang=("next", 2))
    pending_pod(scene.bench, "next-1", gang=("next", 2))
    await scene.bench.settle()
    await scene.bench.settle(10)
    assert scene.bench.events(events.START_ESTIMATED) == []


@story({"plain": "b", "x": "a"}, id="a bound pod requests all CPUs of the world, and no memory")
async def bound_pod_without_memory(scene: Scene) -> None:
    requests = {"requests": {"cpu": "9E"}}
    containers = [{"name": "c", "resources": requests}]
    scene.bench.pod("x", node="a", schedulerName="other", containers=containers)


@story({"plain": "a"}, id="a leader states members beyond every node")
async def members_of_any_size(scene: Scene) -> None:
    notes = {vocabulary.GANG_MEMBERS_ANNOTATION: "cpu=9E"}
    leader(scene.bench, "a", 3, annotations=notes)
    await settle_gang(scene.bench)


@story({"a-driver": "a", "plain": "b"}, id="a leader states members that request nothing")
async def members_of_no_size(scene: Scene) -> None:
    notes = {vocabulary.GANG_MEMBERS_ANNOTATION: "cpu=0"}
    leader(scene.bench, "a", 3, annotations=notes, cpu="3")
    await settle_gang(scene.bench)
    await follow(scene.bench)


@story({"plain": "a"}, id="a leader announces a million members")
async def members_without_number(scene: Scene) -> None:
    notes = {vocabulary.GANG_MEMBERS_ANNOTATION: "cpu=1m"}
    leader(scene.bench, "a", 999_999, annotations=notes)
    await settle_gang(scene.bench)
    assert [note for _, note in scene.bench.events(events.FAILED)] == [
        "0/2 nodes are available: its leader announces 99999 members that do not exist, and"
        " capacity is reserved for at most 10000. waiting for pod group a: 1/100000 pods exist"
    ]


@story({"plain": "a"}, id="a PodGroup object gives a leader's gang the largest size")
async def size_of_a_pod_group(scene: Scene) -> None:
    obj = {"metadata": {"namespace": "ns", "name": "a"}, "spec": {"minMember": 2**31 - 1}}
    group: PodGroup | None = read_x_k8s_pod_group(obj)
    scene.bench.scheduler.groups.on_x(WatchEvent(EventKind.ADDED, ("ns", "a"), group, None))
    labels = {
        vocabulary.X_K8S_POD_GROUP: "a",
        "pod-group.scheduling.kubenexus.io/role": "leader",
    }
    scene.bench.pod("a-driver", labels=labels)
    await settle_gang(scene.bench)
    assert len(scene.bench.events(events.FAILED)) == 1


@pytest.mark.parametrize(("steps", "placed"), story.rows)
def test_others_are_placed(steps: Story, placed: dict[str, str]) -> None:
    async def run() -> dict[str, str]:
        scene = Scene()
        await steps(scene)
        scene.bench.pod("plain")
        await follow(scene.bench)
        return scene.outcome()

    assert asyncio.run(run()) == placed


def test_a_reservation_for_members_ends_within_a_day() -> None:
    """Also the one that another scheduler wrote, with any time in it."""

    async def run() -> list[dict[str, str]]:
        scene, outcomes = Scene(), []
        notes = {vocabulary.GANG_TIMEOUT_ANNOTATION: "87600h"}
        leader(scene.bench, "a", 8, annotations=notes)
        await settle_gang(scene.bench)
        await follow(scene.bench)
        (reservation,) = scene.store.objects.values()
        reservation["spec"]["until"] = "9999-12-31T23:59:59Z"
        old, scene.bench = scene.bench, Bench(scene.bench.api, reservations=scene.store)
        scene.bench.now = old.now
        for name in ("a", "b"):
            scene.bench.node(name, cpu="4", gpus=1)
        scene.bench.show_all()
        scene.store.show(scene.bench)
        scene.bench.pod("plain")
        for seconds in (0.0, MAX_SECONDS - 1.0, 2.0):
            scene.bench.now += seconds
            await follow(scene.bench)
            outcomes.append(scene.outcome())
        return outcomes

    waits = {"a-driver": "a"}
    assert asyncio.run(run()) == [waits, waits, {**waits, "plain": "b"}]


def test_the_size_of_a_pod_group_is_bounded() -> None:
    about = {"metadata": {"namespace": "ns", "name": "a"}}
    native = {"schedulingPolicy": {"gang": {"minCount": MOST}}}
    assert read_native_pod_group({**about, "spec": native}) == PodGroup(100_000)
    x_k8s = {"minMember": MOST, "scheduleTimeoutSeconds": MOST}
    assert read_x_k8s_pod_group({**about, "spec": x_k8s}) == PodGroup(100_000, 87_600 * 3600.0)
