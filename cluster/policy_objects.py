"""
The policy objects of an API server, watched as one collection.

    kinds installed? ──no──▶ on_change(()), look again every 30 s
       │ yes
       ▼
    informers of both kinds ──in sync, then each relevant change──▶ on_change(all objects)

A burst of changes, such as `kubectl apply` of a folder, is announced once. A change counts where
`relevant` differs between the two states of an object: most readers ignore parts of the status.
The meaning of the objects belongs to `policies`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from cluster.client import Client
from cluster.errors import Gone, KubeError
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.resources import PLATFORM_POLICIES, TENANT_POLICIES, Obj

logger = logging.getLogger(__name__)

KINDS: Final = (PLATFORM_POLICIES, TENANT_POLICIES)
DEBOUNCE_SECONDS: Final = 0.2
MISSING_SECONDS: Final = 30.0  # between two checks whether the kinds are installed

Objects = tuple[Obj, ...]


def spec_of(obj: Obj) -> object:
    """The part of an object that its author writes, without its status."""
    return (obj.get("metadata") or {}).get("generation"), obj.get("spec")


class PolicyObjectWatch:
    """Start `run()` as a task; `on_change` runs in its event loop and must not block."""

    def __init__(
        self,
        client: Client,
        *,
        on_change: Callable[[Objects], None],
        relevant: Callable[[Obj], object] = spec_of,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._relevant = relevant
        self._sleep = sleep
        self._informers = [Informer[Obj](client, kind, on_event=self._on_event) for kind in KINDS]
        self._pending: asyncio.TimerHandle | None = None

    def objects(self) -> Objects:
        """The objects with their status, by kind and name."""
        return tuple(
            obj for informer in self._informers for _, obj in sorted(informer.items(), key=_key)
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        while await self._missing():
            self._on_change(())
            await self._sleep(MISSING_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced.wait()
            self._announce()

    async def _missing(self) -> bool:
        """Whether a kind is not installed; a server that does not answer is no proof of that."""
        try:
            for kind in KINDS:
                await self._client.raw("GET", kind.path(), query={"limit": "1"})
        except Gone:
            return True
        except KubeError as error:
            logger.warning("policy objects not listed", extra={"error": str(error)})
        return False

    def _on_event(self, event: WatchEvent[Obj]) -> None:
        if event.old is not None and event.kind is EventKind.MODIFIED:
            before = self._relevant(event.old)
            if before == self._relevant(event.object):
                return
        if self._pending is None and all(informer.synced.is_set() for informer in self._informers):
            loop = asyncio.get_running_loop()
            self._pending = loop.call_later(DEBOUNCE_SECONDS, self._announce)

    def _announce(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._on_change(self.objects())


def _key(item: tuple[tuple[str, str], Obj]) -> tuple[str, str]:
    return item[0]
