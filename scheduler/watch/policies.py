"""
Keeps the placement tables in step with policy files and policy objects.

    files ────polled every 2 s──────┐
                                    ├──▶ PolicyLoader ──good set──▶ adopt(tables)
    objects ──watched, if enabled───┘          └──faulty set──▶ refused(faults)

The scheduler loads policies with the code of the webhook, so both go by the same set. A faulty
set never stops the scheduler: the last good set stays in force, and before the first good one the
policies that ship with the product. Loading runs in a thread, because planning must not wait for
it. `settled` is set when the first set has been loaded, with all objects of the API server.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from cluster.client import Client
from cluster.events.correlator import EventReport
from cluster.policy_objects import Objects, PolicyObjectWatch
from policies.documents.faults import Fault
from policies.engine import loader
from policies.engine.status import Loaded
from policies.engine.store import PolicyLoader
from scheduler.model.policy import NO_POLICIES, PlacementTables
from scheduler.report import events

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0


class PolicyWatch:
    """
    `adopt` takes the tables in force, `refused` the faults of a set that is not in force; both are
    called in the event loop.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        adopt: Callable[[PlacementTables], None],
        refused: Callable[[Sequence[Fault]], None],
        now: Callable[[], float] = time.time,
        engine: str | None = None,
    ) -> None:
        self.settled = asyncio.Event()
        self.tables = NO_POLICIES
        self._adopt = adopt
        self._refused = refused
        self._now = now
        self._loader = PolicyLoader(
            paths, wait_for_objects=True, fallback=(loader.LIBRARY,), engine=engine
        )
        self._object_watch: PolicyObjectWatch | None = None
        self._changed = asyncio.Event()
        self._generation = 0

    @property
    def faults(self) -> Sequence[Fault]:
        """The faults of the newest set; empty while it is in force."""
        return self._loader.store.status().faults

    def watch(self, client: Client) -> None:
        """Load the policy objects too."""
        self._object_watch = PolicyObjectWatch(client, on_change=self.put_objects)

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """Coroutines to run until cancelled."""
        watches = [] if self._object_watch is None else [self._object_watch.run()]
        return [*watches, self.run()]

    def put_objects(self, objects: Objects) -> None:
        """The policy objects of the API server as they are now."""
        self._loader.put_objects(objects)
        self._changed.set()

    def objects(self) -> Objects:
        """The policy objects of the API server, with their status."""
        return () if self._object_watch is None else self._object_watch.objects()

    async def run(self) -> None:
        """Load the first set, then each change."""
        if self._object_watch is None:
            self.put_objects(())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            await self.poll()

    async def poll(self) -> None:
        """Load what changed since the last poll."""
        loaded = await asyncio.to_thread(self._loader.load, at=self._now())
        if loaded is not None:
            self._take(loaded)
            self.settled.set()

    def _take(self, loaded: Loaded) -> None:
        store = self._loader.store
        status = store.status()
        if status.generation != self._generation:
            self._generation = status.generation
            self.tables = PlacementTables.of(store.current)
            logger.info(
                "policies in force", extra={"policies": status.policies, "digest": status.digest}
            )
            self._adopt(self.tables)
        for fault in loaded.faults:
            logger.error("policies refused", extra={"fault": str(fault)})
        if loaded.faults:
            self._refused(loaded.faults)


def follow(
    client: Client,
    record: Callable[[EventReport], None],
    paths: Sequence[Path],
    *,
    objects: bool,
    adopt: Callable[[PlacementTables], None],
) -> PolicyWatch:
    """A watch that writes faults as Events; with `objects` it loads policy objects too."""

    def refused(faults: Sequence[Fault]) -> None:
        for fault in faults:
            record(events.policies_refused(fault))

    policy_watch = PolicyWatch(paths, adopt=adopt, refused=refused)
    if objects:
        policy_watch.watch(client)
    return policy_watch
