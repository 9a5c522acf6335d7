"""An informer on a real API server that changes, restarts and forgets."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster import resources
from cluster.client import Client
from cluster.connection import connection
from cluster.errors import KubeError
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.loop_thread import BackgroundLoop
from cluster.responses import Page
from kubenexus.dev.plane.control_plane import ControlPlane

CONFIG_MAPS = resources.Resource("", "v1", "configmaps", "ConfigMap")

pytestmark = pytest.mark.cluster

OBJECTS = 500
SEED = 20260102


@dataclass
class Ledger:
    """The picture that events alone give, and every event that contradicts it."""

    picture: dict[str, str] = field(default_factory=dict)  # name -> resourceVersion
    contradictions: list[str] = field(default_factory=list)
    deletes: int = 0
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, event: WatchEvent[str]) -> None:
        name = event.key[1]
        known = self.picture.get(name)
        if event.old != known or (event.kind is EventKind.ADDED) != (known is None):
            self.contradictions.append(f"{event.kind} {name}: {event.old} but {known} was known")
        if event.kind is EventKind.DELETED:
            self.deletes += 1
            self.picture.pop(name, None)
        else:
            self.picture[name] = event.object
        if name == "finished":
            self.finished.set()


def version_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def a_config_map(name: str, value: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"value": str(value)}}


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.synced.wait(), 30)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def insist(client: Client, name: str, namespace: str) -> None:
    """Create the object, however long the API server is away."""
    while True:
        try:
            await client.create(CONFIG_MAPS, a_config_map(name), namespace=namespace)
            return
        except KubeError as error:
            if error.reason == "AlreadyExists":
                return
            await asyncio.sleep(0.05)


async def churn(client: Client, namespace: str, chance: random.Random, stop: asyncio.Event) -> int:
    """Create, change and delete at random until `stop` is set; returns how many writes arrived."""
    done = 0
    while not stop.is_set():
        name = f"o-{chance.randrange(OBJECTS)}"
        act = chance.choice(("create", "change", "delete"))
        try:
            if act == "create":
                fresh = a_config_map(name)
                await client.create(CONFIG_MAPS, fresh, namespace=namespace, timeout=5)
            elif act == "change":
                data = {"data": {"value": str(chance.random())}}
                await client.patch(CONFIG_MAPS, name, data, namespace=namespace, timeout=5)
            else:
                await client.delete(CONFIG_MAPS, name, namespace=namespace, timeout=5)
            done += 1
        except KubeError as error:
            if error.status not in (404, 409):
                await asyncio.sleep(0.05)  # the API server is away
    return done


async def follow_churn(
    plane: ControlPlane, namespace: str, started: threading.Event, stop: asyncio.Event
) -> dict[str, Any]:
    """Watch what four writers do until `stop`, and compare with what the server has then."""
    ledger, chance = Ledger(), random.Random(SEED)
    async with Client(connection.load(plane.kubeconfig()), component="test") as client:
        for start in range(0, OBJECTS, 50):
            names = [f"o-{n}" for n in range(start, start + 50)]
            await asyncio.gather(*(insist(client, name, namespace) for name in names))
        informer = Informer(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            keep=version_of,
            on_event=ledger,
            page=100,
        )
        async with running(informer):
            writers = [
                asyncio.create_task(churn(client, namespace, random.Random(chance.random()), stop))
                for _ in range(4)
            ]
            started.set()
            writes = await asyncio.gather(*writers)
            # Events of one collection arrive in order: a client that sees the last saw all.
            await insist(client, "finished", namespace)
            await asyncio.wait_for(ledger.finished.wait(), 60)
            listing = await client.list(CONFIG_MAPS, namespace=namespace)
        truth = {item["metadata"]["name"]: version_of(item) for item in listing.items}
        return {
            "contradictions": ledger.contradictions,
            "reported": ledger.picture == truth,
            "kept": {key[1]: kept for key, kept in informer.items()} == truth,
            "busy": min(writes) > 0 and ledger.deletes > 0,
            "resumed": informer.stats.restarts >= 2,
        }


async def set_event(event: asyncio.Event) -> None:
    event.set()


def test_nothing_is_lost_while_the_api_server_restarts(
    control_plane: ControlPlane, namespace: str
) -> None:
    started, stop = threading.Event(), asyncio.Event()
    with BackgroundLoop() as loop:
        outcome = loop.submit(follow_churn(control_plane, namespace, started, stop))
        while not started.wait(0.1):
            assert not outcome.done(), outcome.result()
        control_plane.restart_apiserver(crash=True)
        control_plane.restart_apiserver(crash=False)
        loop.run(set_event(stop))
        assert outcome.result(120) == {
            "contradictions": [],
            "reported": True,
            "kept": True,
            "busy": True,
            "resumed": True,
        }


class Outdated(Client):
    """A client whose first watch starts at a version that the server has long forgotten."""

    watches = 0
    lists = 0

    def pages(self, resource: resources.Resource, **options: Any) -> AsyncIterator[Page]:
        self.lists += 1
        return super().pages(resource, **options)

    def watch(
        self, resource: resources.Resource, *, resource_version: str, **options: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[Sequence[bytes]]]:
        self.watches += 1
        version = "1" if self.watches == 1 else resource_version
        return super().watch(resource, resource_version=version, **options)


async def forget_and_list_again(plane: ControlPlane, namespace: str) -> tuple[object, ...]:
    ledger = Ledger()
    async with Outdated(connection.load(plane.kubeconfig()), component="test") as client:
        await insist(client, "before", namespace)
        informer = Informer(
            client, CONFIG_MAPS, namespace=namespace, keep=version_of, on_event=ledger
        )
        async with running(informer):
            await insist(client, "finished", namespace)
            await asyncio.wait_for(ledger.finished.wait(), 60)
        return (
            client.lists,
            ledger.contradictions,
            {"before", "finished"} - set(ledger.picture),
        )


def test_a_forgotten_moment_leads_to_a_new_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    got = asyncio.run(forget_and_list_again(control_plane, namespace))
    assert got == (2, [], set())
