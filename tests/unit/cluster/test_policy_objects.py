"""Policy objects as one collection: announced when complete, then once per burst of changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from cluster import errors, policy_objects
from cluster.client import Client
from cluster.policy_objects import PolicyObjectWatch
from cluster.resources import PLATFORM_POLICIES, TENANT_POLICIES, Obj, Resource
from cluster.responses import Page
from webhook.policy_source.status_writer import written_part


def policy(name: str, version: int = 1, **parts: Any) -> Obj:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": name}, **parts}


class Cluster:
    """Serves policy objects where the kinds are installed; `send` streams one change."""

    def __init__(self, *objects: Obj, answers: list[errors.KubeError | None] | None = None) -> None:
        self._objects = objects
        self._answers = answers or []
        self._streams = {
            kind: asyncio.Queue[bytes]() for kind in (PLATFORM_POLICIES, TENANT_POLICIES)
        }

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        error = self._answers.pop(0) if self._answers else None
        if error is not None:
            raise error
        return b"{}"

    async def pages(self, resource: Resource, **options: Any) -> AsyncIterator[Page]:
        items = self._objects if resource == PLATFORM_POLICIES else ()
        yield Page([dict(obj) for obj in items], "1", first=True)

    @asynccontextmanager
    async def watch(
        self, resource: Resource, **options: Any
    ) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        async def lines() -> AsyncIterator[list[bytes]]:
            while True:
                yield [await self._streams[resource].get()]

        yield lines()

    def send(self, kind: str, obj: Obj, resource: Resource = PLATFORM_POLICIES) -> None:
        self._streams[resource].put_nowait(orjson.dumps({"type": kind, "object": obj}))


Script = Callable[[Cluster], Awaitable[None]]


async def announcements(
    cluster: Cluster, script: Script, relevant: Callable[[Obj], object]
) -> list[list[str]]:
    """The names in each announcement, from the start to the end of the script."""
    announced: list[list[str]] = []

    def on_change(objects: tuple[Obj, ...]) -> None:
        announced.append([obj["metadata"]["name"] for obj in objects])

    async def sleep(seconds: float) -> None:
        assert seconds == policy_objects.MISSING_SECONDS
        await asyncio.sleep(0)

    watch = PolicyObjectWatch(
        cast(Client, cluster), on_change=on_change, relevant=relevant, sleep=sleep
    )
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.02)
    await script(cluster)
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return announced


async def nothing(cluster: Cluster) -> None:
    """No change."""


async def a_burst(cluster: Cluster) -> None:
    cluster.send("ADDED", policy("c", 2))
    cluster.send("ADDED", policy("t", 3), TENANT_POLICIES)
    cluster.send("DELETED", policy("b", 4))


async def two_changes(cluster: Cluster) -> None:
    cluster.send("MODIFIED", policy("a", 2, spec={"x": 1}))
    await asyncio.sleep(0.05)
    cluster.send("MODIFIED", policy("a", 3, spec={"x": 2}))


async def usage_in_the_status(cluster: Cluster) -> None:
    cluster.send("MODIFIED", policy("a", 2, status={"usage": {"share": "0.5"}}))


async def a_foreign_condition(cluster: Cluster) -> None:
    cluster.send("MODIFIED", policy("a", 2, status={"conditions": []}))


INSTALLED = [["a", "b"]]


@pytest.mark.parametrize(
    ("script", "relevant", "want"),
    [
        pytest.param(nothing, policy_objects.spec_of, INSTALLED, id="all objects, by name"),
        pytest.param(
            a_burst, policy_objects.spec_of, [*INSTALLED, ["a", "c", "t"]], id="a burst once"
        ),
        pytest.param(
            two_changes, policy_objects.spec_of, [["a", "b"]] * 3, id="later changes again"
        ),
        pytest.param(
            usage_in_the_status, policy_objects.spec_of, INSTALLED, id="not a status alone"
        ),
        pytest.param(
            usage_in_the_status, written_part, INSTALLED, id="not another writer's status"
        ),
        pytest.param(
            a_foreign_condition, written_part, [["a", "b"]] * 2, id="conditions for their writer"
        ),
    ],
)
def test_changes_are_announced(
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    relevant: Callable[[Obj], object],
    want: list[list[str]],
) -> None:
    monkeypatch.setattr(policy_objects, "DEBOUNCE_SECONDS", 0.01)

    async def run() -> list[list[str]]:
        return await announcements(Cluster(policy("b"), policy("a")), script, relevant)

    assert asyncio.run(run()) == want


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param([errors.Gone("404")] * 2, [[], [], ["a"]], id="announced as none until then"),
        pytest.param(
            [None, errors.Gone("404")], [[], ["a"]], id="one kind of the two is not installed"
        ),
        pytest.param([errors.Retry("503")], [["a"]], id="no answer is no proof"),
    ],
)
def test_kinds_that_are_not_installed(
    answers: list[errors.KubeError | None], want: list[list[str]]
) -> None:
    async def run() -> list[list[str]]:
        cluster = Cluster(policy("a"), answers=answers)
        return await announcements(cluster, nothing, policy_objects.spec_of)

    assert asyncio.run(run()) == want
