"""Queues as a cluster has them: not installed, installed, installed later, unreadable, removed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest

from cluster import errors
from cluster.client import Client
from cluster.informer import EventKind, WatchEvent
from cluster.resources import Resource
from cluster.responses import Page
from policies.documents.rules import Selector
from policies.engine.kueue import ClusterQueue, Queue
from webhook.facts import kueue_queues
from webhook.facts.kueue_queues import UNSERVED_SECONDS, KueueQueues

Json = dict[str, Any]

GROUP = "kueue.x-k8s.io"
TIER = "tenant.kubenexus.io/tier"
GOLD = ClusterQueue("gold", Selector())


class Server:
    """Kueue's two kinds, in the versions that are served; the watches are silent."""

    def __init__(self) -> None:
        self.versions: list[str] = []
        self.objects: dict[tuple[str, str, str], Json] = {}  # plural, namespace, name
        self.down = False
        self.requests: list[str] = []
        self.minute = asyncio.Event()

    def add(self, plural: str, name: str, spec: Json, namespace: str = "", tier: str = "") -> None:
        metadata: Json = {"name": name, "uid": name, "resourceVersion": "1"}
        if namespace:
            metadata["namespace"] = namespace
        if tier:
            metadata["labels"] = {TIER: tier}
        self.objects[plural, namespace, name] = {"metadata": metadata, "spec": spec}

    async def sleep(self, _: float) -> None:
        await self.minute.wait()

    def install(self, *versions: str) -> None:
        self.versions = list(versions)
        self.add("localqueues", "gpu", {"clusterQueue": "research"}, "team-a")
        self.add("localqueues", "lost", {"clusterQueue": "nowhere"}, "team-a")
        self.add("clusterqueues", "research", {"namespaceSelector": {}}, tier="gold")

    async def raw(self, method: str, path: str, **options: Any) -> bytes:
        self.requests.append(path)
        rows = [{"version": version} for version in self.versions]
        if path == "/apis":
            group = {"name": GROUP, "versions": rows, "preferredVersion": (rows or [{}])[0]}
            return orjson.dumps({"groups": [group] if rows else []})
        kinds = [
            {"name": plural, "kind": kind, "verbs": ["get", "list", "watch"], "namespaced": own}
            for plural, kind, own in (
                ("localqueues", "LocalQueue", True),
                ("clusterqueues", "ClusterQueue", False),
            )
        ]
        return orjson.dumps({"resources": kinds})

    async def pages(self, resource: Resource, **_: Any) -> AsyncIterator[Page]:
        self.requests.append(f"list {resource.version} {resource.plural}")
        if self.down:
            raise errors.Retry("conversion webhook: no answer", status=500)
        found = [obj for key, obj in self.objects.items() if key[0] == resource.plural]
        yield Page(found, "1", first=True)

    @asynccontextmanager
    async def watch(self, resource: Resource, **_: Any) -> AsyncIterator[Any]:
        async def silent() -> AsyncIterator[list[bytes]]:
            await asyncio.Event().wait()
            yield []

        yield silent()

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, **options: Any
    ) -> Json:
        self.requests.append(f"get {resource.plural} {name}")
        if self.down:
            raise errors.Retry("conversion webhook: no answer", status=500)
        found = self.objects.get((resource.plural, namespace or "", name))
        if found is None:
            raise errors.Gone(f"{name}: not found", status=404)
        return found


Story = Callable[[Server, KueueQueues], Awaitable[Any]]


def run_story(story: Story, *, install: tuple[str, ...] = (), down: bool = False) -> Any:
    """What the story says of queues that are followed."""

    async def run() -> Any:
        server = Server()
        server.down = down
        if install:
            server.install(*install)
        queues = KueueQueues(cast(Client, server), sleep=server.sleep)
        following = asyncio.create_task(queues.run())
        await queues.awaited.wait()
        try:
            return await story(server, queues)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    return asyncio.run(run())


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("versions", [("v1beta2", "v1beta1"), ("v1beta1",)])
def test_where_kueue_is_installed_everything_is_at_hand(versions: tuple[str, ...]) -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        listed = sorted(row for row in server.requests if row.startswith("list"))
        server.requests.clear()
        found = queues.known("team-a", "gpu"), queues.known("team-a", "no"), queues.may_hold("b")
        return listed, found, queues.may_hold("team-a"), server.requests

    assert run_story(story, install=versions) == (
        [f"list {versions[0]} clusterqueues", f"list {versions[0]} localqueues"],
        (Queue("gpu", "research", GOLD), None, False),
        True,
        [],
    )


@pytest.mark.parametrize(
    ("name", "want", "want_requests"),
    [
        pytest.param("gpu", Queue("gpu", "research", GOLD), [], id="all of it is known"),
        pytest.param(
            "none", Queue("none"), ["get localqueues none"], id="no LocalQueue of the name"
        ),
        pytest.param(
            "lost",
            Queue("lost", "nowhere"),
            ["get clusterqueues nowhere"],
            id="no ClusterQueue of the name",
        ),
        pytest.param(
            "new",
            Queue("new", "newer", ClusterQueue("silver", Selector())),
            ["get localqueues new", "get clusterqueues newer"],
            id="applied a moment ago, and not yet seen by the watches",
        ),
    ],
)
def test_a_queue_outside_the_cache_is_read_from_the_api(
    name: str, want: Queue, want_requests: list[str]
) -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        server.add("localqueues", "new", {"clusterQueue": "newer"}, "team-a")
        server.add("clusterqueues", "newer", {"namespaceSelector": {}}, tier="silver")
        server.requests.clear()
        return await queues.read("team-a", name), server.requests

    assert run_story(story, install=("v1beta2",)) == (want, want_requests)


def test_without_kueue_discovery_repeats_and_no_watch_starts() -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        before = list(server.requests), queues.may_hold("team-a"), queues.known("team-a", "gpu")
        server.requests.clear()
        read = await queues.read("team-a", "gpu"), list(server.requests)
        return before, read, queues.known("team-a", "gpu")

    unserved = Queue("gpu", served=False)
    assert run_story(story) == (
        (["/apis", "/apis"], False, None),
        (unserved, ["/apis"]),
        unserved,
    )


def test_that_there_is_no_kueue_is_remembered_for_a_moment() -> None:
    async def run() -> list[Queue | None]:
        times = iter((0.0, 0.0, UNSERVED_SECONDS - 1, UNSERVED_SECONDS + 1))
        queues = KueueQueues(cast(Client, Server()), now=lambda: next(times))
        await queues.read("team-a", "gpu")
        return [queues.known("team-a", "gpu") for _ in range(3)]

    unserved = Queue("gpu", served=False)
    assert asyncio.run(run()) == [unserved, unserved, None]


def test_kueue_installed_later_is_noticed_by_the_first_that_names_a_queue() -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        server.install("v1beta2")
        first = queues.may_hold("team-a"), await queues.read("team-a", "gpu")
        # Pods without a label of their own come next; a controller above them may have one.
        unsure = queues.may_hold("team-a"), queues.may_hold("team-b")
        await settled()
        after = queues.may_hold("team-a"), queues.may_hold("team-b")
        return first, unsure, after, queues.known("team-a", "gpu")

    queue = Queue("gpu", "research", GOLD)
    assert run_story(story) == ((False, queue), (True, True), (True, False), queue)


def test_kueue_installed_later_may_hold_any_namespace_until_its_queues_are_read() -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        server.install("v1beta2")
        await queues.read("team-a", "gpu")
        server.down = True
        await settled()
        return queues.may_hold("team-b"), queues.known("team-a", "gpu")

    assert run_story(story) == (True, None)


def test_kueue_that_is_removed_is_forgotten() -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        before = queues.may_hold("team-a"), queues.known("team-a", "gpu")
        server.versions = []
        server.minute.set()
        await settled()
        return before, queues.may_hold("team-a"), queues.known("team-a", "gpu")

    queue = Queue("gpu", "research", GOLD)
    assert run_story(story, install=("v1beta2",)) == ((True, queue), False, None)


def test_while_queues_cannot_be_read_their_workloads_are_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(kueue_queues, "READY_SECONDS", 0.01)
    monkeypatch.setattr(kueue_queues.logger, "warning", said.append)

    async def story(server: Server, queues: KueueQueues) -> Any:
        may_hold = queues.may_hold("team-a")
        with pytest.raises(errors.Retry, match="conversion webhook"):
            await queues.read("team-a", "gpu")
        return may_hold, queues.known("team-a", "gpu")

    assert (run_story(story, install=("v1beta2",), down=True), said) == (
        (True, None),
        ["queues not listed; denying workloads in queues until they are"],
    )


def test_a_namespace_without_queues_is_not_remembered() -> None:
    async def story(server: Server, queues: KueueQueues) -> Any:
        for number in range(100):
            key = (f"team-{number}", "q")
            for kind in (EventKind.ADDED, EventKind.DELETED):
                queues._count(WatchEvent(kind, key, "research", None))
        return sorted(queues.__dict__["_local_counts"])

    assert run_story(story, install=("v1beta2",)) == ["team-a"]
