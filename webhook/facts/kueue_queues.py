"""
The Kueue queues of the cluster: watched where they are served, read where a store lacks one.

    known ──▶ stores of both watches ──missing──▶ read: live ──fails──▶ KubeError
                                                    │ a kind that is new is watched at once
    LocalQueues, ClusterQueues ──optional informers──▶ stores

A cluster without Kueue does not serve these kinds: nothing is watched, and nothing is read for
objects that name no queue. A queue that an object names and no store has is read live, because it
may have been applied a moment before. Readiness waits for the first lists, for a bounded time:
Kueue converts its objects itself. Where Kueue does not answer, the webhook denies workloads in
queues and admits the pods of Kueue, so that it can come back.
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
UNSERVED_SECONDS: Final = 2.0  # how long "the server has no such kind" is cached


class _QueueInformer(Generic[T]):
    """One kind; the store keeps what `read` returns."""

    def __init__(
        self,
        client: Client,
        resource: resources.Resource,
        *,
        read: Callable[[resources.Obj], T],
        on_event: Callable[[WatchEvent[T]], None],
        sleep: Sleep,
    ) -> None:
        self._client = client
        self._read = read
        self._on_event = on_event
        self._informer: Informer[T] | None = None
        self._is_new = False  # served, and not watched yet
        self.kind = OptionalInformer(
            client,
            resource,
            make=self._make,
            on_event=on_event,
            on_served=self._on_served,
            sleep=sleep,
        )

    def _make(self, resource: resources.Resource) -> Informer[T]:
        self._informer = Informer(self._client, resource, keep=self._read, on_event=self._on_event)
        return self._informer

    def _on_served(self, served: bool) -> None:
        self._is_new = False
        if not served:
            self._informer = None

    @property
    def is_complete(self) -> bool:
        """Whether a queue that the store lacks did not exist a moment ago."""
        if self._is_new or not self.kind.settled.is_set():
            return False
        return self._informer is None or self._informer.synced.is_set()

    def get(self, name: str, namespace: str = "") -> T | None:
        informer = self._informer
        return None if informer is None else informer.get(name, namespace=namespace)

    async def served(self) -> resources.Resource | None:
        """The kind as the server has it now; a new kind is watched from here on."""
        if self._informer is not None:
            return self._informer.resource
        resource = await self.kind.served()
        if resource is not None:
            self._is_new = True
            self.kind.wake()
        return resource

    async def find(self, name: str, namespace: str | None = None) -> T | None:
        """The object in the store, else on the server; None: it does not exist."""
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
    """Watches both kinds; `known` and `may_hold` are safe from any thread."""

    def __init__(
        self,
        client: Client,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._now = now
        self._local_counts: Counter[str] = Counter()  # namespace -> its LocalQueues
        self._local = _QueueInformer(
            client,
            resources.LOCAL_QUEUES,
            read=kueue.cluster_queue_of,
            on_event=self._count,
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
        """Set when the first lists are complete, or after `READY_SECONDS`."""

    async def run(self) -> None:
        """Watch until cancelled."""
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
            logger.warning("queues not listed; denying workloads in queues until they are")
        self.awaited.set()

    def _count(self, event: WatchEvent[str]) -> None:
        namespace, _ = event.key
        if event.kind is EventKind.ADDED:
            self._local_counts[namespace] += 1
        elif event.kind is EventKind.DELETED:
            self._local_counts[namespace] -= 1
            if not self._local_counts[namespace]:
                del self._local_counts[namespace]

    def may_hold(self, namespace: str) -> bool:
        """Whether workloads of the namespace may name a queue."""
        return self._local_counts.get(namespace, 0) > 0 or not self._local.is_complete

    def known(self, namespace: str, name: str) -> Queue | None:
        """The queue, where all of it is in memory."""
        cluster_queue = self._local.get(name, namespace)
        watched = self._cluster.get(cluster_queue) if cluster_queue else None
        if watched is not None:
            return Queue(name, cluster_queue, watched)
        if self._now() < self._unserved_until:
            return Queue(name, served=False)
        return None

    async def read(self, namespace: str, name: str) -> Queue:
        """The queue, read live where it is not in memory."""
        if await self._local.served() is None:
            self._unserved_until = self._now() + UNSERVED_SECONDS
            return Queue(name, served=False)
        cluster_queue = await self._local.find(name, namespace)
        return Queue(
            name, cluster_queue, await self._cluster.find(cluster_queue) if cluster_queue else None
        )
