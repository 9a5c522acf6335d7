"""
The queues of Kueue as the cluster has them: watched where they are served, asked for where not.

    facts ──known──▶ stores of both watches ──missing──▶ look: live reads ──fail──▶ KubeError
                                                           │ the kind is new: it is watched at once
    LocalQueues, ClusterQueues ──optional kinds──▶ stores

A cluster without Kueue has no such kinds: nothing is watched, and nothing is looked up for objects
that name no queue. What an object names and no store has is asked for, because somebody may have
applied the queue a moment before. Readiness waits for the first lists, though not for ever: Kueue
converts its objects itself, and where it does not answer, work that stands in queues is refused
and its own pods are let in, so that it can come back.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from cluster import errors, resources
from cluster.client import Client
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.optional_informer import OptionalInformer
from policies.engine import kueue
from policies.engine.kueue import ClusterQueue, Queue

logger = logging.getLogger(__name__)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

READY_SECONDS: Final = 10.0  # how long a start waits for the first lists
UNSERVED_SECONDS: Final = 2.0  # how long it is remembered that there is no such kind


class _QueueInformer(Generic[T]):
    """One kind, of which `read` is kept."""

    def __init__(
        self,
        client: Client,
        resource: resources.Resource,
        *,
        read: Callable[[resources.Obj], T],
        on_event: Callable[[WatchEvent[T]], None],
        sleep: Sleep,
    ) -> None:
        self._client, self._read, self._on_event = client, read, on_event
        self._informer: Informer[T] | None = None
        self._noticed = False  # seen to be served, and not yet watched
        self.kind = OptionalInformer(
            client, resource, make=self._make, on_event=on_event, sleep=sleep
        )
        self.kind.on_served = self._asked

    def _make(self, found: resources.Resource) -> Informer[T]:
        self._informer = Informer(self._client, found, keep=self._read, on_event=self._on_event)
        return self._informer

    def _asked(self, served: bool) -> None:
        self._noticed = False
        if not served:
            self._informer = None

    @property
    def is_complete(self) -> bool:
        """Whether what the store lacks does not exist, but for the last moment."""
        if self._noticed or not self.kind.settled.is_set():
            return False
        return self._informer is None or self._informer.synced.is_set()

    def get(self, name: str, namespace: str = "") -> T | None:
        informer = self._informer
        return None if informer is None else informer.get(name, namespace=namespace)

    async def served(self) -> resources.Resource | None:
        """The kind as the server has it now; a new one is watched from here on."""
        if self._informer is not None:
            return self._informer.resource
        found = await self.kind.served()
        if found is not None:
            self._noticed = True
            self.kind.wake()
        return found

    async def find(self, name: str, namespace: str | None = None) -> T | None:
        """What the store has, or else the server; None: there is none of the name."""
        known = self.get(name, namespace or "")
        if known is not None:
            return known
        resource = await self.served()
        if resource is None:
            return None
        try:
            return self._read(await self._client.get(resource, name, namespace=namespace))
        except errors.Gone:
            return None


class KueueQueues:
    """Follows both kinds of one API server; `known` and `may_hold` are for any thread."""

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._now = now
        self._held: Counter[str] = Counter()  # namespace -> its LocalQueues
        self._local = _QueueInformer(
            client,
            resources.LOCAL_QUEUES,
            read=kueue.leads_to,
            on_event=self._counted,
            sleep=sleep,
        )
        self._cluster = _QueueInformer(
            client,
            resources.CLUSTER_QUEUES,
            read=ClusterQueue.read,
            on_event=lambda event: None,
            sleep=sleep,
        )
        self._unserved_until = float("-inf")
        self.awaited = asyncio.Event()
        """The first lists are complete, or have been waited for long enough."""

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._local.kind.run())
            tasks.create_task(self._cluster.kind.run())
            tasks.create_task(self._wait())

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self._local.kind.settled.wait()
                await self._cluster.kind.settled.wait()
        if not (self._local.is_complete and self._cluster.is_complete):
            logger.warning("queues not read; work that stands in queues is refused until they are")
        self.awaited.set()

    def _counted(self, event: WatchEvent[str]) -> None:
        namespace, _ = event.key
        if event.kind is EventKind.ADDED:
            self._held[namespace] += 1
        elif event.kind is EventKind.DELETED:
            self._held[namespace] -= 1

    def may_hold(self, namespace: str) -> bool:
        """Whether work of the namespace may stand in a queue."""
        return self._held.get(namespace, 0) > 0 or not self._local.is_complete

    def known(self, namespace: str, name: str) -> Queue | None:
        """The queue, where it is all at hand."""
        leads_to = self._local.get(name, namespace)
        found = self._cluster.get(leads_to) if leads_to else None
        if found is not None:
            return Queue(name, leads_to, found)
        if self._now() < self._unserved_until:
            return Queue(name, served=False)
        return None

    async def look(self, namespace: str, name: str) -> Queue:
        """The queue, asked for where it is not at hand."""
        if await self._local.served() is None:
            self._unserved_until = self._now() + UNSERVED_SECONDS
            return Queue(name, served=False)
        leads_to = await self._local.find(name, namespace)
        return Queue(name, leads_to, await self._cluster.find(leads_to) if leads_to else None)
