"""Kinds that an API server serves or does not: when they are watched, and when they are gone."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest

from cluster import errors, resources
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.optional_informer import OptionalInformer

GROUP = "scheduling.x-k8s.io"


class Server:
    """Discovery of one group, with what it serves set by hand."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.fault: Exception | None = None

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        rows = [{"version": version} for version in self.versions]
        if path == "/apis":
            found = {"name": GROUP, "versions": rows, "preferredVersion": (rows or [{}])[0]}
            return orjson.dumps({"groups": [found] if rows else []})
        verbs = ["get", "list", "watch"]
        kind = {"name": "podgroups", "kind": "PodGroup", "namespaced": True, "verbs": verbs}
        return orjson.dumps({"resources": [kind]})


class Watching:
    """Stands for an informer that has one object."""

    def __init__(self, resource: resources.Resource) -> None:
        self.resource = resource
        self.synced = asyncio.Event()

    async def run(self) -> None:
        self.synced.set()
        await asyncio.Event().wait()

    def items(self) -> list[tuple[tuple[str, str], str]]:
        return [(("ns", "g"), "kept")]


Step = Callable[[Server], None]


def serve(*versions: str) -> Step:
    def step(server: Server) -> None:
        server.versions = list(versions)

    return step


def stumble(server: Server) -> None:
    server.fault = errors.Retry("503")


def play(*steps: Step) -> list[tuple[bool, list[str], list[str]]]:
    """After each minute: settled, versions watched so far, events so far."""

    async def run() -> list[tuple[bool, list[str], list[str]]]:
        server, left = Server(), list(steps)
        made: list[str] = []
        heard: list[str] = []
        seen: list[tuple[bool, list[str], list[str]]] = []
        done = asyncio.Event()

        def make(resource: resources.Resource) -> Informer[str]:
            made.append(resource.version)
            return cast(Informer[str], Watching(resource))

        def on_event(event: WatchEvent[str]) -> None:
            assert event.kind is EventKind.DELETED
            heard.append(f"{event.key[1]} gone")

        async def sleep(_: float) -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            seen.append((kind.settled.is_set(), list(made), list(heard)))
            if not left:
                done.set()
                await asyncio.Event().wait()
            left.pop(0)(server)

        kind: OptionalInformer[str] = OptionalInformer(
            server, resources.X_POD_GROUPS, make=make, on_event=on_event, sleep=sleep
        )
        left.pop(0)(server)
        task = asyncio.create_task(kind.run())
        await done.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        pytest.param([serve()], [(True, [], [])], id="not served: nothing is missing"),
        pytest.param([serve("v1alpha1")], [(True, ["v1alpha1"], [])], id="served"),
        pytest.param(
            [serve(), serve("v1alpha1")],
            [(True, [], []), (True, ["v1alpha1"], [])],
            id="served later",
        ),
        pytest.param(
            [serve("v1alpha1"), serve()],
            [(True, ["v1alpha1"], []), (True, ["v1alpha1"], ["g gone"])],
            id="served no more",
        ),
        pytest.param(
            [serve("v1alpha1"), serve("v1beta1", "v1alpha1")],
            [(True, ["v1alpha1"], []), (True, ["v1alpha1", "v1beta1"], ["g gone"])],
            id="another version is preferred",
        ),
        pytest.param(
            [stumble, serve("v1alpha1")],
            [(False, [], []), (True, ["v1alpha1"], [])],
            id="no answer at first",
        ),
        pytest.param(
            [serve("v1alpha1"), stumble, serve("v1alpha1")],
            [(True, ["v1alpha1"], [])] * 3,
            id="no answer later: the watch continues",
        ),
    ],
)
def test_watching(steps: list[Step], want: list[Any]) -> None:
    assert play(*steps) == want


def test_a_kind_that_another_watch_sees_first_is_watched_at_once() -> None:
    async def run() -> list[bool]:
        server, made = Server(), asyncio.Event()

        def make(resource: resources.Resource) -> Informer[str]:
            made.set()
            return cast(Informer[str], Watching(resource))

        async def never(_: float) -> None:
            await asyncio.Event().wait()

        kind: OptionalInformer[str] = OptionalInformer(
            server, resources.X_POD_GROUPS, make=make, on_event=lambda event: None, sleep=never
        )
        task = asyncio.create_task(kind.run())
        await kind.settled.wait()
        serve("v1alpha1")(server)
        seen = [made.is_set()]
        kind.wake()
        async with asyncio.timeout(10):
            await made.wait()
        seen.append(made.is_set())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    assert asyncio.run(run()) == [False, True]
