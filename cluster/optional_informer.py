"""
Informer of a kind that an API server may or may not serve, such as PodGroups.

    check ──not served──▶ wait a minute or until woken, check again
     │ served
     ▼
    watch ──in sync──▶ settled ──checked every minute: not served──▶ all objects DELETED

Kinds come and go with feature gates and CustomResourceDefinitions, while this process runs.
`settled` is set when the store is complete: the kind is not served, or its first list is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from cluster import discovery, errors, resources, verbs
from cluster.informer import EventKind, Informer, WatchEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0


class OptionalInformer(Generic[T]):
    """`make` builds the informer, which calls `on_event`; `on_served` hears whether the server has
    the kind, after each discovery."""

    def __init__(
        self,
        api: verbs.Sends,
        resource: resources.Resource,
        *,
        make: Callable[[resources.Resource], Informer[T]],
        on_event: Callable[[WatchEvent[T]], None],
        on_served: Callable[[bool], None] = lambda served: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.resource = resource
        self.settled = asyncio.Event()
        self._on_served = on_served
        self._api = api
        self._make = make
        self._on_event = on_event
        self._sleep = sleep
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Check now: the caller learned that the server has the kind."""
        self._woken.set()

    async def run(self) -> None:
        """Check and watch until cancelled."""
        while True:
            try:
                resource = await self.served()
            except errors.KubeError as error:
                logger.warning(
                    "discovery failed", extra={"kind": str(self.resource), "error": str(error)}
                )
                await self._sleep(RETRY_SECONDS)
                continue
            self._on_served(resource is not None)
            if resource is not None:
                await self._watch(resource)
            else:
                self.settled.set()
                await self._pause()

    async def served(self) -> resources.Resource | None:
        """The kind in the version that the server prefers; None: not served."""
        rows = await discovery.served(self._api, groups={self.resource.group})
        for row in rows:
            if row.name == self.resource.plural and "watch" in row.verbs:
                return row.resource
        return None

    async def _pause(self) -> None:
        pause = asyncio.ensure_future(self._sleep(CHECK_SECONDS))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait([pause, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            woken.cancel()
        self._woken.clear()

    async def _watch(self, resource: resources.Resource) -> None:
        """Watch while the kind is served; at the end all its objects are DELETED."""
        informer = self._make(resource)
        logger.info("watching kind", extra={"kind": str(resource), "version": resource.version})
        watching = asyncio.create_task(informer.run())
        synced = asyncio.create_task(self._settle(informer))
        try:
            while not watching.done():
                await self._sleep(CHECK_SECONDS)
                try:
                    if await self.served() != resource:
                        break
                except errors.KubeError:
                    continue  # the watch reports a server that does not answer
        finally:
            watching.cancel()
            synced.cancel()
            results = await asyncio.gather(watching, synced, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        for key, obj in list(informer.items()):
            self._on_event(WatchEvent(EventKind.DELETED, key, obj, obj))

    async def _settle(self, informer: Informer[T]) -> None:
        await informer.synced.wait()
        self.settled.set()
