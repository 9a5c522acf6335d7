"""Gangs that request nodes through the whole cycle, an autoscaler played by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from cluster import resources
from policies import vocabulary
from tests.unit.scheduler.fake_api import FakeApiServer
from tests.unit.scheduler.provisioning.fake_requests import (
    CLASS,
    TENANT,
    FakeRequests,
    Scene,
    all_of,
    quota,
)
from tests.unit.scheduler.stories import Stories

pytestmark = pytest.mark.timeout(30)

Story = Callable[[], Coroutine[Any, Any, Any]]


def play(story: Story) -> Any:
    return asyncio.run(story())


def test_one_request_for_the_gang_then_nodes_then_nothing() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.gang(3)
        await scene.passes(10)
        requested = scene.requested()
        scene.answer("Provisioned", "nodes are coming")
        await scene.passes(2)
        waiting = scene.requested(), scene.bench.scheduler.explain("ns", "g-0")
        scene.bench.node("m", cpu="2")
        await scene.bench.settle(1.0)
        scene.bench.show_all()
        await scene.passes(3)
        return requested, waiting, scene

    requested, (still, why), scene = play(run)
    (name,) = {note.split()[1] for note in scene.event_notes("ProvisioningRequested")}
    assert (requested, still) == ([("1", [3])], [("1", [3])])
    assert why["provisioning"] == [
        f"ProvisioningRequest {name} is provisioned: Provisioned: nodes are coming"
    ]
    assert scene.bench.api.nodes() == {"g-0": "m", "g-1": "m", "g-2": "n"}
    assert (scene.store.requests, scene.store.templates) == ({}, {})
    assert [scene.event_notes(one) for one in ("ProvisioningRequested", "Provisioned")] == [
        [f"ProvisioningRequest {name} requests nodes for 3 pods, class {CLASS}"],
        [
            f"ProvisioningRequest {name} is provisioned: Provisioned: nodes are coming;"
            " retrying the pod group"
        ],
    ]


def test_a_provisioned_request_retries_the_gang_at_once() -> None:
    async def run() -> tuple[int, int]:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.gang(3)
        await scene.passes(30)
        before = scene.bench.scheduler.explain("ns", "g-0") or {}
        scene.answer("Provisioned", "found")
        await scene.passes(1)
        after = scene.bench.scheduler.explain("ns", "g-0") or {}
        return before["attempts"], after["attempts"]

    before, after = play(run)
    assert (before, after) == (1, 2)


def test_a_failed_request_is_reported_and_the_pause_doubles() -> None:
    async def run() -> Any:
        scene, seen = Scene(), []
        scene.gang(2)
        await scene.passes(5)
        for word in ("Failed", "CapacityRevoked"):
            scene.answer(word, "no such machines")
            await scene.passes(50)
            early = scene.requested()
            await scene.passes(75)
            seen.append((early, scene.requested(), len(scene.store.templates)))
        return seen, scene.event_notes("ProvisioningFailed"), await scene.reasons()

    seen, event_notes, reasons = play(run)
    assert seen == [
        ([("1", [2])], [("2", [2])], 1),
        ([("2", [2])], [("3", [2])], 1),
    ]
    assert [" ".join(note.split()[2:9]) for note in event_notes] == [
        "provides no nodes: Failed: no such machines;",
        "provides no nodes: CapacityRevoked: no such machines;",
    ]
    assert reasons == all_of(2, "WaitingForProvisioning")


story = Stories()


@story([], None, id="members are deleted and stay away")
async def members_are_deleted(scene: Scene) -> None:
    scene.bench.delete("g-0")


@story([("1", [3])], True, id="a member is made anew")
async def one_is_made_anew(scene: Scene) -> None:
    scene.bench.delete("g-0")
    await scene.passes(3)
    scene.bench.pod("h-0", gang=("g", 3), labels=TENANT)


@story([], None, id="the gang is deleted")
async def the_gang_is_deleted(scene: Scene) -> None:
    for number in range(3):
        scene.bench.delete(f"g-{number}")


@story([], None, id="a quota holds it back")
async def a_quota_comes(scene: Scene) -> None:
    scene.bench.scheduler.adopt(quota(cpu="1"))


@story([("1", [3])], False, id="the request is deleted")
async def another_client_deletes_it(scene: Scene) -> None:
    scene.store.requests.clear()
    scene.show()


@story([("1", [4])], False, id="it needs more")
async def the_gang_grows(scene: Scene) -> None:
    for number in range(3):
        scene.bench.delete(f"g-{number}")
        scene.bench.pod(f"h-{number}", gang=("g", 4))
    scene.bench.pod("h-3", gang=("g", 4))


@story([], None, id="no node would help any more")
async def no_node_could_help_a_member_that_it_needs(scene: Scene) -> None:
    scene.bench.delete("g-0")
    scene.bench.pod("h-0", gang=("g", 3), labels=TENANT, numa="sideways")


async def victims_are_evicted_for_it(scene: Scene) -> None:
    scene.bench.pod("low", cpu="3", node="m", owner="job", priority=-1)
    scene.bench.node("m", cpu="3")


@story([], None, id="capacity becomes free")
async def capacity_becomes_free(scene: Scene) -> None:
    scene.bench.node("m", cpu="3")
    await scene.bench.settle(1.0)
    scene.bench.show_all()


@story([], None, id="it is whole, and one more member waits")
async def capacity_for_its_minimum_becomes_free(scene: Scene) -> None:
    scene.bench.pod("g-3", gang=("g", 3), labels=TENANT)
    scene.bench.node("m", cpu="2")
    await scene.bench.settle(12.0)
    scene.bench.show_all()


@story([("1", [3])], True, id="a standby does nothing")
async def another_leads(scene: Scene) -> None:
    scene.bench.leading = False
    for number in range(3):
        scene.bench.delete(f"g-{number}")


@pytest.mark.parametrize(
    ("story", "want", "same"),
    story.rows,
)
def test_requests_follow_the_gang(
    story: Callable[[Scene], Awaitable[None]], want: list[Any], same: bool | None
) -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.gang(3, labels=TENANT)
        await scene.passes(5)
        first = {obj["metadata"]["uid"] for obj in scene.store.requests.values()}
        await story(scene)
        await scene.passes(30)
        last = {obj["metadata"]["uid"] for obj in scene.store.requests.values()}
        return scene.requested(), last and last == first, len(scene.store.templates)

    requested, is_same, templates = play(run)
    assert (requested, is_same or None, templates) == (want, same or None, len(want))


def test_no_request_while_victims_terminate_for_the_gang() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="2")
        scene.bench.pod("low", cpu="2", owner="job", priority=0)
        await scene.bench.settle()
        scene.bench.show_all()
        scene.gang(2, priority=10)
        await scene.passes(10)
        return scene.bench.api.evicted, scene.requested(), await scene.reasons()

    evicted, requested, reasons = play(run)
    assert (evicted, requested) == (["low"], [])
    assert reasons == all_of(2, "Unschedulable")


def test_an_existing_request_stays_while_victims_terminate_for_the_gang() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.gang(3)
        await scene.passes(5)
        await victims_are_evicted_for_it(scene)
        await scene.passes(70)
        return scene.bench.api.evicted, scene.requested(), await scene.reasons()

    assert play(run) == (["low"], [("1", [3])], all_of(3, "WaitingForProvisioning"))


def test_no_request_if_preemption_comes_first() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.gang(3)
        await scene.passes(1)
        await victims_are_evicted_for_it(scene)
        scene.bench.node("x", cpu="1")  # tries the gang once more
        await scene.passes(20)
        return scene.bench.api.evicted, scene.requested()

    assert play(run) == (["low"], [])


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(
            3, [], id="members may still come, victims be evicted, or a start be reserved"
        ),
        pytest.param(5, [("1", [2])], id="then the controller requests nodes"),
    ],
)
def test_the_controller_waits_before_it_requests_nodes(seconds: int, want: list[Any]) -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(seconds)
        return scene.requested()

    assert play(run) == want


@pytest.mark.parametrize(
    ("duration", "want"),
    [
        pytest.param("90s", [], id="a start reserved soon is waited for"),
        pytest.param("1h", [("1", [3])], id="one reserved late is not"),
    ],
)
def test_no_request_if_the_gang_starts_soon(duration: str, want: list[Any]) -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="3")
        notes = {"scheduling.kubenexus.io/expected-duration": duration}
        began = {"phase": "Running", "startTime": "1970-01-01T00:01:40Z"}
        scene.bench.pod("r", cpu="3", node="n", owner="job", status=began, annotations=notes)
        scene.gang(3)
        await scene.passes(10)
        return len(scene.event_notes("StartEstimated")), scene.requested()

    assert play(run) == (1, want)


class Slow(FakeApiServer):
    """Binds wait while `held`."""

    held = True

    async def bind(self, *args: Any, **more: Any) -> None:
        while self.held:
            await asyncio.sleep(0)
        await super().bind(*args, **more)


def test_a_request_exists_until_the_gang_is_bound() -> None:
    async def run() -> Any:
        api = Slow()
        scene = Scene(api=api)
        scene.gang(2)
        await scene.passes(5)
        scene.bench.node("n", cpu="2")
        for _ in range(5):
            scene.bench.now += 1
            await scene.bench.scheduler.drain()
            for _ in range(20):
                await asyncio.sleep(0)
        binding = scene.bench.scheduler.binding, scene.requested()
        api.held = False
        await scene.bench.settle(1.0)
        scene.bench.show_all()
        await scene.passes(2)
        return binding, scene.requested()

    assert play(run) == ((1, [("1", [2])]), [])


def test_pods_are_unschedulable_again_if_the_kind_is_removed() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(5)
        waiting = await scene.reasons()
        scene.store.requests.clear()
        scene.controller.served(False)
        scene.show()
        await scene.passes(2)
        alone = await scene.reasons()
        scene.controller.served(True)
        scene.controller.use(resources.PROVISIONING_REQUESTS)
        scene.bench.pod("g-2", gang=("g", 2))
        await scene.passes(20)
        return waiting, alone, scene.requested()

    assert play(run) == (
        all_of(2, "WaitingForProvisioning"),
        all_of(2, "Unschedulable"),
        [("1", [2])],
    )


def test_a_missing_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(FakeRequests(), served=False)
    for served in (False, False, True, False):
        scene.controller.served(served)
    logged = [
        row.getMessage() for row in caplog.records if "cannot request nodes" in row.getMessage()
    ]
    assert len(logged) == 2


def test_a_request_includes_members_that_a_leader_will_create() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.bench.node("n", cpu="1")
        scene.bench.pod(
            "g-0",
            gang=("g", 3),
            labels={vocabulary.GANG_ROLE_LABEL: "leader"},
            annotations={vocabulary.GANG_MEMBERS_ANNOTATION: "cpu=2,nvidia.com/gpu=1"},
        )
        await scene.passes(10)
        requested = scene.requests_in_full()
        owners = [row["metadata"]["ownerReferences"] for row in scene.store.requests.values()]
        reasons = await scene.reasons()
        scene.bench.node("m", cpu="4", gpus=2)
        await scene.bench.settle(1.0)
        scene.bench.show_all()
        await scene.passes(3)
        return requested, owners, reasons, scene.bench.api.nodes(), scene.requested()

    member = {"cpu": "2", "nvidia.com/gpu": "1"}
    assert play(run) == (
        [
            (1, {"requests": {"cpu": "1"}}),
            (2, {"requests": member, "limits": {"nvidia.com/gpu": "1"}}),
        ],
        [[{"apiVersion": "v1", "kind": "Pod", "name": "g-0", "uid": "uid-g-0"}]],
        {"g-0": "WaitingForProvisioning"},
        {"g-0": "n"},
        [],
    )
