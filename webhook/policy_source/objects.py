"""
Policies as objects of the API server: watched, and told how they fared.

    informers of both kinds --settled--> offer(all objects)
    loaded --> status.conditions of each object, and an Event where a set was refused

A cluster without the CustomResourceDefinitions has no such objects; they are looked for again
from time to time. Every worker of every replica writes the same status, and only where it differs
from what is there, so that it is written once.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from cluster import errors, resources
from cluster.client import Client
from cluster.events.correlator import Ref, report
from cluster.events.recorder import Recorder
from cluster.informer import EventKind, Informer, WatchEvent
from policies import vocabulary
from policies.engine import status as conditions
from policies.engine.status import Loaded
from policies.json_fields import mapping
from webhook.policy_source.reloader import Objects

logger = logging.getLogger(__name__)

KINDS: Final = (resources.PLATFORM_POLICIES, resources.TENANT_POLICIES)
SETTLE_SECONDS: Final = 0.2  # a burst of changes, such as `kubectl apply` of a folder, is one
MISSING_SECONDS: Final = 30.0  # how often kinds that are not installed are looked for
REFUSED: Final = "PoliciesRefused"


class PolicyObjects:
    """Follows the policy objects of one API server."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        *,
        offer: Callable[[Objects], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._recorder, self._offer, self._now = client, recorder, offer, now
        self._informers = [
            Informer[resources.Obj](client, kind, on_event=self._changed) for kind in KINDS
        ]
        self._pending: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        while await self._missing():
            self._offer(())
            await asyncio.sleep(MISSING_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            for informer in self._informers:
                await informer.synced.wait()
            self._changed()

    async def _missing(self) -> bool:
        """Whether the kinds are not installed; an API server that does not answer says nothing."""
        try:
            for kind in KINDS:
                await self._client.raw("GET", kind.path(), query={"limit": "1"})
        except errors.Gone:
            return True
        except errors.KubeError as exc:
            logger.warning("policy objects cannot be listed", extra={"error": str(exc)})
        return False

    def _changed(self, event: WatchEvent[resources.Obj] | None = None) -> None:
        if event is not None and not _matters(event):
            return
        if self._pending is None and all(one.synced.is_set() for one in self._informers):
            loop = asyncio.get_running_loop()
            self._pending = loop.call_later(SETTLE_SECONDS, self._settled)

    def _settled(self) -> None:
        self._pending = None
        found = [obj for informer in self._informers for obj in informer.values()]
        self._offer(tuple(sorted(found, key=conditions.source)))

    async def report(self, objects: Objects, loaded: Loaded) -> None:
        """Write what became of the objects; what cannot be written is tried at the next change."""
        for obj in objects:
            status = conditions.status(obj, loaded, now=self._now())
            if status is None:
                continue
            kind = next(one for one in KINDS if one.kind == obj["kind"])
            try:
                await self._client.patch_status(kind, obj["metadata"]["name"], {"status": status})
            except errors.KubeError as exc:
                logger.warning("status not written", extra={"error": str(exc)})
        self._record_faults(objects, loaded)

    def _record_faults(self, objects: Objects, loaded: Loaded) -> None:
        known = {conditions.source(obj): Ref.of(dict(obj)) for obj in objects}
        system = Ref("Namespace", vocabulary.SYSTEM_NAMESPACE)
        for fault in loaded.faults:
            about = known.get(fault.source, system)
            note = f"the last good policies stay in force: {fault}"
            self._recorder.record(report(about, REFUSED, note, action="Load", warning=True))


def _matters(event: WatchEvent[resources.Obj]) -> bool:
    """Not where somebody else's part of the status is all that changed."""
    if event.kind is not EventKind.MODIFIED or event.old is None:
        return True
    return _judged(event.old) != _judged(event.object)


def _judged(obj: resources.Obj) -> tuple[object, ...]:
    status = mapping(obj.get("status"))
    generation = mapping(obj.get("metadata")).get("generation")
    return generation, obj.get("spec"), status.get("conditions"), status.get("observedGeneration")
