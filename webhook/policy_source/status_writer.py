"""
Writes the status of policy objects: `status.conditions`, and an Event for each fault of a set.

Every worker of every replica computes the same status, and writes it only where it differs from
the object's, so that it is written once.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from cluster import errors, verbs
from cluster.events.correlator import Ref, report
from cluster.events.recorder import Recorder
from cluster.policy_objects import KINDS
from cluster.resources import Obj
from policies import vocabulary
from policies.engine import status as conditions
from policies.engine.status import Loaded
from policies.json_fields import Json, mapping

logger = logging.getLogger(__name__)

REFUSED: Final = "PoliciesRefused"


def written_part(obj: Obj) -> object:
    """The spec, and the part of the status that this module writes."""
    status = mapping(obj.get("status"))
    generation = mapping(obj.get("metadata")).get("generation")
    return generation, obj.get("spec"), status.get("conditions"), status.get("observedGeneration")


class PolicyStatusWriter:
    def __init__(
        self,
        client: verbs.PatchesStatus,
        recorder: Recorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._now = now

    async def write(self, objects: Sequence[Json], loaded: Loaded) -> None:
        """Write the outcome of a load; the next change of a policy repeats a failed write."""
        for obj in objects:
            status = conditions.status(obj, loaded, now=self._now())
            if status is None:
                continue
            kind = next(resource for resource in KINDS if resource.kind == obj["kind"])
            try:
                await self._client.patch_status(kind, obj["metadata"]["name"], {"status": status})
            except errors.KubeError as exc:
                logger.warning("policy status not written", extra={"error": str(exc)})
        self._record_faults(objects, loaded)

    def _record_faults(self, objects: Sequence[Json], loaded: Loaded) -> None:
        known = {conditions.source(obj): Ref.of(dict(obj)) for obj in objects}
        system = Ref("Namespace", vocabulary.SYSTEM_NAMESPACE)
        for fault in loaded.faults:
            regarding = known.get(fault.source, system)
            note = f"the last good policies stay in force: {fault}"
            self._recorder.record(report(regarding, REFUSED, note, action="Load", warning=True))
