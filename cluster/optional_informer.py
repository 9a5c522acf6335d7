"""
Watching kinds that an API server may or may not serve, such as PodGroups.

    ask ──not served──▶ wait a minute or until woken, ask again
     │ served
     ▼
    watch ──in sync──▶ settled ──asked again now and then: served no more──▶ all of it is gone

Kinds come and go with feature gates and custom resource definitions, without this process being
restarted. `settled` says that nothing is missing from the picture: the kind is not served, or its
first list is complete.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Generic, TypeVar

from cluster import discovery, errors, resources, verbs
from cluster.informer import EventKind, Informer, WatchEvent

logger = logging.getLogger(__name__)

T = TypeVar("T")

ASK_AGAIN: Final = 60.0
AFTER_FAILURE: Final = 2.0


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
        self._api, self._make, self._on_event, self._sleep = api, make, on_event, sleep
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Ask again now: somebody saw that the server has the kind."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                found = await self.served()
            except errors.KubeError as error:
                logger.warning(
                    "kinds not read", extra={"kind": str(self.resource), "error": str(error)}
                )
                await self._sleep(AFTER_FAILURE)
                continue
            self._on_served(found is not None)
            if found is not None:
                await self._watch(found)
            else:
                self.settled.set()
                await self._pause()

    async def served(self) -> resources.Resource | None:
        """The kind in a version that the server has, the preferred one first."""
        rows = await discovery.served(self._api, groups=_only(self.resource.group))
        for row in rows:
            if row.name == self.resource.plural and "watch" in row.verbs:
                return row.resource
        return None

    async def _pause(self) -> None:
        waits = [asyncio.ensure_future(one) for one in (self._sleep(ASK_AGAIN), self._woken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._woken.clear()

    async def _watch(self, found: resources.Resource) -> None:
        """While it is served; what it was known by is reported gone at the end."""
        informer = self._make(found)
        logger.info("watching", extra={"kind": str(found), "version": found.version})
        watching = asyncio.create_task(informer.run())
        synced = asyncio.create_task(self._settle(informer))
        try:
            while not watching.done():
                await self._sleep(ASK_AGAIN)
                try:
                    if await self.served() != found:
                        break
                except errors.KubeError:
                    continue  # the watch itself says that the server does not answer
        finally:
            watching.cancel()
            synced.cancel()
            results = await asyncio.gather(watching, synced, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
        for key, kept in list(informer.items()):
            self._on_event(WatchEvent(EventKind.DELETED, key, kept, kept))

    async def _settle(self, informer: Informer[T]) -> None:
        await informer.synced.wait()
        self.settled.set()


def _only(group: str) -> Collection[str]:
    return frozenset({group})
