"""
Keeps the tables in step with policy files and with the policy objects of the API server.

    files ──looked at now and then──┐
                                    ├──▶ read, compiled ──sound──▶ adopt(tables)
    objects ──watched, if served────┘            └──faulty──▶ the last good ones stay; refused(…)

Read with the webhook's own code, so that both sides go by the same policies. A faulty set never
stops the scheduler: before there was a sound one, the policies that ship are in force. Reading
and compiling happen in a thread, because planning must not wait for them; a burst of changes is
one. `settled` says that the first set has been judged, with all objects that the server holds.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from cluster import resources
from cluster.client import Client
from cluster.events.correlator import EventReport
from cluster.informer import EventKind, Informer, WatchEvent
from cluster.optional_informer import OptionalInformer
from policies.cel import engines
from policies.documents.faults import Fault
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.loader import LoadResult, Reading
from policies.engine.policyset import PolicySet
from policies.engine.store import FileWatch
from scheduler.model.policy import NO_POLICIES, PlacementTables
from scheduler.report import events

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.2  # a burst of changes, such as `kubectl apply` of a folder, is one
KINDS: Final = (resources.PLATFORM_POLICIES, resources.TENANT_POLICIES)

Obj = dict[str, Any]


class PolicyWatch:
    """
    `adopt` takes the tables in force, `refused` the faults of a set that is not; both are called
    in the event loop.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        adopt: Callable[[PlacementTables], None],
        refused: Callable[[Sequence[Fault]], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        engine: str | None = None,
    ) -> None:
        self.settled = asyncio.Event()
        self.tables = NO_POLICIES
        self.faults: tuple[Fault, ...] = ()
        self._adopt, self._refused, self._sleep = adopt, refused, sleep
        self._engine = engine
        self._files = FileWatch(paths)
        self._reading = Reading()
        self._objects: dict[tuple[str, str], Obj] = {}  # (kind, name) -> the object
        self._kinds: tuple[OptionalInformer[Obj], ...] = ()
        self._changed = asyncio.Event()
        self._judged = False

    def watch(self, client: Client) -> None:
        """Follow the policy objects too."""

        def make(found: resources.Resource) -> Informer[Obj]:
            return Informer(client, found, on_event=self.on_object)

        self._kinds = tuple(
            OptionalInformer(client, kind, make=make, on_event=self.on_object) for kind in KINDS
        )

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """What must run, until cancelled."""
        return [*(kind.run() for kind in self._kinds), self.run()]

    def on_object(self, event: WatchEvent[Obj]) -> None:
        obj = event.object
        key = (str(obj.get("kind")), str((obj.get("metadata") or {}).get("name")))
        old = self._objects.pop(key, None)
        if event.kind is not EventKind.DELETED:
            self._objects[key] = obj
            if old is not None and _said(old) == _said(obj):
                return  # its status alone is another
        self._changed.set()

    def objects(self) -> tuple[Obj, ...]:
        """The policy objects as the API server has them, status and all."""
        return tuple(self._objects[key] for key in sorted(self._objects))

    async def run(self) -> None:
        """Judge what is there, then what changes."""
        for kind in self._kinds:
            await kind.settled.wait()
        await self.look(force=True)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            if self._changed.is_set():
                await self._sleep(SETTLE_SECONDS)
            await self.look()

    async def look(self, *, force: bool = False) -> None:
        """Take what changed since the last look."""
        force = force or self._changed.is_set()
        self._changed.clear()
        objects = self.objects()
        result = await asyncio.to_thread(self._load, objects, force)
        if result is not None:
            await self._take(result)
        self.settled.set()

    def _load(self, objects: Sequence[Obj], force: bool) -> LoadResult | None:
        """In a thread; nothing but the files' state is kept."""
        reading = self._files.poll()
        if reading is None and not force:
            return None
        self._reading = reading or self._reading
        return self._compile(self._reading + loader.read_objects(objects))

    def _compile(self, reading: Reading) -> LoadResult:
        return loader.compile_all(reading, compiler=Compiler(engines.engine(self._engine)))

    async def _take(self, result: LoadResult) -> None:
        self.faults = result.problems
        if result.ok:
            self._put(result.policies)
            return
        if not self._judged:
            shipped = await asyncio.to_thread(
                lambda: self._compile(loader.read_files(loader.LIBRARY))
            )
            self._put(shipped.policies)
        for fault in result.problems:
            logger.error("policies refused", extra={"fault": str(fault)})
        self._refused(result.problems)

    def _put(self, policies: PolicySet) -> None:
        known, self._judged = self._judged, True
        if known and policies.digest == self.tables.digest:
            return
        self.tables = PlacementTables.of(policies)
        logger.info(
            "policies in force",
            extra={"policies": len(policies.policies), "digest": policies.digest},
        )
        self._adopt(self.tables)


def _said(obj: Obj) -> tuple[object, object]:
    return (obj.get("metadata") or {}).get("generation"), obj.get("spec")


def follow(
    client: Client,
    record: Callable[[EventReport], None],
    paths: Sequence[Path],
    *,
    objects: bool,
    adopt: Callable[[PlacementTables], None],
) -> PolicyWatch:
    """Wired to the API server; `record` takes the Events that tell of faults."""

    def refused(faults: Sequence[Fault]) -> None:
        for fault in faults:
            record(events.policies_refused(fault))

    following = PolicyWatch(paths, adopt=adopt, refused=refused)
    if objects:
        following.watch(client)
    return following
