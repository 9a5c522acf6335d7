"""ProvisioningRequests after restarts, under faults of the API server, and with late words."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from cluster import errors
from cluster.informer import EventKind, WatchEvent
from scheduler.provisioning import objects
from tests.unit.scheduler.bench import NAME
from tests.unit.scheduler.provisioning.fake_requests import Scene

pytestmark = pytest.mark.timeout(30)

Story = Callable[[], Coroutine[Any, Any, Any]]


def play(story: Story) -> Any:
    return asyncio.run(story())


def test_a_new_scheduler_makes_no_second_one() -> None:
    async def run() -> Any:
        old = Scene()
        old.gang(3)
        await old.passes(5)
        before = dict(old.shelf.requests)
        new = Scene(old.shelf)
        new.show()
        new.gang(3)
        await new.passes(30)
        return before == new.shelf.requests, new.told("ProvisioningRequested"), new.asked()

    assert play(run) == (True, [], [("1", [3])])


def test_a_scheduler_that_died_between_template_and_request_goes_on() -> None:
    async def run() -> Any:
        old = Scene()
        old.gang(3)
        await old.passes(5)
        old.shelf.requests.clear()
        new = Scene(old.shelf)
        new.gang(3)
        await new.passes(5)
        return new.asked(), len(new.shelf.templates)

    assert play(run) == ([("1", [3])], 1)


REFUSED = errors.Refused("forbidden", status=403)


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        pytest.param([REFUSED], 1, id="a template is refused once"),
        pytest.param([REFUSED] * 3, 3, id="three times"),
        pytest.param([errors.Retry("lost")], 1, id="an answer was lost"),
    ],
)
def test_what_cannot_be_written_is_told_and_tried_again(faults: list[Exception], told: int) -> None:
    async def run() -> Any:
        scene = Scene()
        scene.shelf.faults.extend(faults)
        scene.gang(2)
        await scene.passes(40)
        return scene.asked(), len(scene.told("ProvisioningFailed"))

    assert play(run) == ([("1", [2])], told)


def test_what_cannot_be_deleted_is_tried_again() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(5)
        scene.shelf.delete_faults.append(errors.Retry("busy"))
        await the_pair_goes(scene)
        await scene.passes(10)
        return scene.shelf.requests, scene.shelf.templates

    async def the_pair_goes(scene: Scene) -> None:
        for number in range(2):
            scene.bench.delete(f"g-{number}")

    assert play(run) == ({}, {})


def test_a_late_word_about_a_request_that_was_deleted_is_not_heard() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        await scene.passes(5)
        ((name, obj),) = scene.shelf.requests.items()
        one = objects.read(obj, scheduler=NAME)
        scene.bench.delete("g-0")
        scene.bench.delete("g-1")
        scene.bench.now += 1
        await scene.bench.settle(1.0)
        while scene.controller.writing:
            await asyncio.sleep(0)
        scene.controller.on_event(WatchEvent(EventKind.MODIFIED, ("ns", name), one, one))
        return scene.asked(), scene.controller.next_at()

    assert play(run) == ([], None)


def test_a_namesake_of_a_member_is_not_asked_for() -> None:
    async def run() -> Any:
        scene = Scene()
        scene.gang(2)
        scene.bench.api.pods["g-0"]["metadata"]["uid"] = "another"
        await scene.passes(5)
        return scene.asked(), scene.told("ProvisioningFailed")[0]

    said = "cannot create a ProvisioningRequest, retrying: "
    assert play(run) == ([], f"{said}pod ns/g-0 was replaced by another pod")


def test_what_is_refused_for_long_is_tried_ever_more_rarely() -> None:
    async def run() -> int:
        scene = Scene()
        scene.shelf.faults.extend([REFUSED] * 100)
        scene.gang(2)
        await scene.passes(70)
        return len(scene.told("ProvisioningFailed"))

    assert play(run) == 6  # at once, and after 2, 4, 8, 16 and 32 seconds


def test_a_bug_while_writing_a_request_ends_the_scheduler() -> None:
    class Bug(Exception):
        pass

    async def run() -> None:
        scene = Scene()
        scene.shelf.faults.append(Bug())
        scene.gang()
        await scene.passes(20)

    with pytest.raises(Bug):
        play(run)
