"""
Taking a half-bound gang apart, so that what it holds in vain is free and it can start whole.

    half bound past its timeout ──▶ found, not witnessed? read its members' bind times
          │                              every waiting member came after them: it was whole ──▶ left
          ▼
    each live member   of another scheduler ─────────────────────────────────▶ left
                       nobody would recreate it, or the policy is `hold` ────▶ reported, left
                       a controller recreates it ─────▶ DisruptionTarget, DELETE with its uid, told

A bare pod is never deleted: what nobody recreates would be lost. The condition lets a Job's failure
policy tell a release from a failure of the job's own. Times are those of the API server alone: a
member that was part of a plan existed before the plan's first bind, so a gang all of whose waiting
members were created after its last bind was whole and is being repaired.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from cluster import errors, resources, verbs
from cluster.events import correlator
from scheduler.model.pod import Pod
from scheduler.model.unit import PartialGang
from scheduler.options import StaleGangPolicy
from scheduler.report import events

logger = logging.getLogger(__name__)

_TRIES: Final = 5
_PAUSE: Final = 0.5
DISRUPTION_REASON: Final = "GangReleased"


class MemberFate(StrEnum):
    EVICTED = "evicted"
    BARE = "bare"
    HELD = "held"
    FOREIGN = "foreign"
    UNREACHED = "unreached"


@dataclass(frozen=True, slots=True)
class EvictionOutcome:
    """What became of the gang. `whole`: it had been whole once, and nothing was done."""

    whole: bool = False
    fates: tuple[tuple[str, MemberFate], ...] = ()
    """(pod uid, fate), in the order of the members"""

    @property
    def evicted(self) -> int:
        return sum(fate is MemberFate.EVICTED for _, fate in self.fates)


class GangEvictionClient(verbs.Gets, verbs.PatchesStatus, verbs.Deletes, Protocol):
    """The verbs that the evictor uses."""


def fate(pod: Pod, *, policy: StaleGangPolicy, scheduler: str) -> MemberFate:
    """What is to be done about one live member."""
    if pod.scheduler != scheduler:
        return MemberFate.FOREIGN
    if pod.owner is None:
        return MemberFate.BARE
    return MemberFate.HELD if policy is StaleGangPolicy.HOLD else MemberFate.EVICTED


def was_whole(bound: Sequence[float | None], waiting: Sequence[Pod]) -> bool:
    """Whether the waiting members came after the last bind; a time that is not known says no."""
    times = [at for at in bound if at is not None]
    if not waiting or len(times) < len(bound):
        return False
    return all(pod.created > max(times) for pod in waiting)


def bind_time(pod: Mapping[str, Any]) -> float | None:
    """When the API server gave the pod its node."""
    for row in (pod.get("status") or {}).get("conditions") or ():
        if row.get("type") == "PodScheduled" and row.get("status") == "True":
            try:
                return datetime.fromisoformat(str(row.get("lastTransitionTime"))).timestamp()
            except ValueError:
                return None
    return None


class StaleGangEvictor:
    """`may_write` is asked before each write; `clock` stamps conditions."""

    def __init__(
        self,
        api: GangEvictionClient,
        *,
        scheduler: str,
        policy: StaleGangPolicy,
        record: Callable[[correlator.EventReport], None],
        may_write: Callable[[], bool],
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api, self._scheduler, self._policy = api, scheduler, policy
        self._record, self._may_write = record, may_write
        self._clock, self._sleep = clock, sleep
        self._reported: set[str] = set()  # uids of pods that stay and were told about

    def forget(self, uid: str) -> None:
        self._reported.discard(uid)

    async def release(self, half: PartialGang, waiting: Sequence[Pod]) -> EvictionOutcome:
        if not half.witnessed and await self._found_whole(half, waiting):
            return EvictionOutcome(whole=True)
        fates = await asyncio.gather(*(self._settle(half, pod) for pod in half.live))
        outcome = EvictionOutcome(
            fates=tuple(zip((pod.uid for pod in half.live), fates, strict=True))
        )
        logger.warning(
            "gang half bound past its timeout",
            extra={
                "unit": str(half.key),
                "bound": len(half.live),
                "size": half.size,
                "evicted": outcome.evicted,
            },
        )
        return outcome

    async def _found_whole(self, half: PartialGang, waiting: Sequence[Pod]) -> bool:
        reads = (
            self._api.get(resources.PODS, pod.key.name, namespace=pod.key.namespace)
            for pod in half.live
        )
        try:
            found = await asyncio.gather(*reads)
        except errors.Gone:
            return False
        except errors.KubeError as error:
            logger.warning("gang not read", extra={"unit": str(half.key), "error": str(error)})
            return True  # without evidence nothing is deleted; the next timeout looks again
        return was_whole([bind_time(pod) for pod in found], waiting)

    async def _settle(self, half: PartialGang, pod: Pod) -> MemberFate:
        found = fate(pod, policy=self._policy, scheduler=self._scheduler)
        if found is MemberFate.EVICTED:
            return await self._evict(half, pod)
        if found is not MemberFate.FOREIGN and pod.uid not in self._reported:
            self._reported.add(pod.uid)
            self._record(events.gang_retained(pod, half, bare=found is MemberFate.BARE))
        return found

    async def _evict(self, half: PartialGang, pod: Pod) -> MemberFate:
        for attempt in range(_TRIES):
            if attempt:
                await self._sleep(_PAUSE * 2**attempt)
            if not self._may_write():
                return MemberFate.UNREACHED
            try:
                await self._delete(half, pod)
            except errors.Retry:
                continue
            except (errors.Gone, errors.Conflict):
                return MemberFate.EVICTED  # gone already, or a namesake has taken its place
            except errors.KubeError as error:
                logger.error("not released", extra={"pod": str(pod.key), "error": str(error)})
                return MemberFate.UNREACHED
            self._record(events.gang_released(pod, half))
            return MemberFate.EVICTED
        return MemberFate.UNREACHED

    async def _delete(self, half: PartialGang, pod: Pod) -> None:
        row = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": DISRUPTION_REASON,
            "message": events.released_note(half),
            "lastTransitionTime": self._clock().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        await self._api.patch_status(
            resources.PODS,
            pod.key.name,
            {"metadata": {"uid": pod.uid}, "status": {"conditions": [row]}},
            namespace=pod.key.namespace,
            kind=verbs.PatchKind.STRATEGIC,
        )
        await self._api.delete(
            resources.PODS, pod.key.name, namespace=pod.key.namespace, uid=pod.uid
        )
