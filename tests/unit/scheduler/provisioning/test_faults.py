"""ProvisioningRequests after restarts, under faults of the API server, and with late words."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster import errors
from cluster.informer import EventKind, WatchEvent
from scheduler.model.gang import GangKey
from scheduler.provisioning import objects
from scheduler.queueing.entry import QueueState
from tests.unit.scheduler.bench import NAME
from tests.unit.scheduler.faults import Bug
from tests.unit.scheduler.provisioning.fake_requests import Scene

pytestmark = pytest.mark.timeout(30)

Story = Callable[[], Coroutine[Any, Any, Any]]


def play(story: Story) -> Any:
    return asyncio.run(story())


def test_a_new_scheduler_creates_no_second_request() -> None:
    async def run() -> Any:
        old = Scene()
        old.gang(3)
        await old.passes(5)
        before = dict(old.store.requests)
        new = Scene(old.store)
        new.show()
        new.gang(3)
        await new.passes(30)
        return (
            before == new.store.requests,
            new.event_notes("ProvisioningRequested"),
            new.requested(),
        )

    assert play(run) == (True, [], [("1", [3])])


def test_a_scheduler_that_died_between_template_and_request_continues() -> None:
    async def run() -> Any:
        old = Scene()
        old.gang(3)
        await old.passes(5)
        old.store.requests.clear()
        new = Scene(old.store)
        new.gang(3)
        await new.passes(5)
        return new.requested(), len(new.store.templates)

    assert play(run) == ([("1", [3])], 1)


REFUSED = errors.Refused("forbidden", status=403)


@pytest.mark.parametrize(
    ("faults", "failures"),
    [
        pytest.param([REFUSED], 1, id="a template is refused once"),
        pytest.param([REFUSED] * 3, 3, id="three times"),
        pytest.param([errors.Retry("lost")], 1, id="an answer was lost"),
    ],
)
def test_a_failed_write_is_reported_and_retried(faults: list[Exception], failures: int) -> None:
    async def run() -> Any:
        scene = Scene()
        scene.store.faults.extend(faults)
        scene.gang(2)
        await scene.passes(40)
        return scene.requested(), len(scene.event_notes("ProvisioningFailed"))

    assert play(run) == ([("1", [2])], failures)


def test_a_failed_delete_is_retried() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(5)
        scene.store.delete_faults.append(errors.Retry("busy"))
        await the_pair_is_deleted(scene)
        await scene.passes(10)
        return scene.store.requests, scene.store.templates

    async def the_pair_is_deleted(scene: Scene) -> None:
        for number in range(2):
            scene.bench.delete(f"g-{number}")

    assert play(run) == ({}, {})


def test_a_late_event_of_a_deleted_request_is_ignored() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(5)
        ((name, obj),) = scene.store.requests.items()
        one = objects.read(obj, scheduler=NAME)
        scene.bench.delete("g-0")
        scene.bench.delete("g-1")
        scene.bench.now += 1
        await scene.bench.settle(1.0)
        while scene.controller.writing:
            await asyncio.sleep(0)
        scene.controller.on_event(WatchEvent(EventKind.MODIFIED, ("ns", name), one, one))
        return scene.requested(), scene.controller.next_at()

    assert play(run) == ([], None)


def test_no_request_for_a_recreated_member_with_another_uid() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        scene.bench.api.pods["g-0"]["metadata"]["uid"] = "another"
        await scene.passes(5)
        return scene.requested(), scene.event_notes("ProvisioningFailed")[0]

    prefix = "cannot create a ProvisioningRequest, retrying: "
    assert play(run) == ([], f"{prefix}pod ns/g-0 was replaced by another pod")


def test_retries_of_a_denied_request_back_off() -> None:
    async def run() -> int:
        scene = Scene()
        scene.store.faults.extend([REFUSED] * 100)
        scene.gang(2)
        await scene.passes(70)
        return len(scene.event_notes("ProvisioningFailed"))

    assert play(run) == 6  # at once, and after 2, 4, 8, 16 and 32 seconds


def test_a_bug_while_writing_a_request_quarantines_its_gang_alone() -> None:
    async def run() -> tuple[object, ...]:
        scene = Scene()
        scene.store.faults.append(Bug())
        scene.gang()
        await scene.passes(4)
        key = GangKey("ns", "g")
        state = scene.bench.scheduler.queue.state(key)
        await scene.passes(20)
        return state, scene.bench.scheduler.queue.state(key), len(scene.store.requests)

    assert play(run) == (QueueState.QUARANTINED, QueueState.UNSCHEDULABLE, 1)
