"""
Evicts the members of a gang that stays partial, so that their capacity is free and the gang can
start complete.

    partial past its timeout ──▶ not witnessed? read the bind times of its members
          │                         all waiting members are younger: it was complete ──▶ nothing
          ▼
    each live member   of another scheduler ────────────────────▶ nothing
                       without a controller, or policy `hold` ──▶ retained, reported
                       with a controller ──▶ condition DisruptionTarget, DELETE with its uid, Event

A pod without a controller is never deleted: it would be lost. The condition lets a Job's failure
policy tell this eviction from a failure of the pod. Only times of the API server are compared: a
member of a plan exists before the first bind of the plan, so a gang whose waiting members were all
created after its last bind was complete and is being repaired.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from cluster import backoff, errors, resources, verbs
from cluster.events import correlator
from policies.text import timestamp
from scheduler.model.pod import Pod
from scheduler.model.unit import PartialGang
from scheduler.options import StaleGangPolicy
from scheduler.report import events

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 8.0
DISRUPTION_REASON: Final = "GangReleased"


class MemberFate(StrEnum):
    EVICTED = "evicted"
    BARE = "bare"
    RETAINED = "retained"
    FOREIGN = "foreign"
    UNREACHED = "unreached"


@dataclass(frozen=True, slots=True)
class EvictionOutcome:
    """`was_complete`: the gang had been complete, and no member was evicted."""

    was_complete: bool = False
    fates: tuple[tuple[str, MemberFate], ...] = ()
    """(pod uid, fate), in the order of the members"""

    @property
    def evicted(self) -> int:
        return sum(fate is MemberFate.EVICTED for _, fate in self.fates)


class GangEvictionClient(verbs.Gets, verbs.PatchesStatus, verbs.Deletes, Protocol):
    """The verbs that the evictor uses."""


def fate(pod: Pod, *, policy: StaleGangPolicy, scheduler: str) -> MemberFate:
    """The fate of one live member."""
    if pod.scheduler != scheduler:
        return MemberFate.FOREIGN
    if pod.owner is None:
        return MemberFate.BARE
    return MemberFate.RETAINED if policy is StaleGangPolicy.HOLD else MemberFate.EVICTED


def was_complete(bound: Sequence[float | None], waiting: Sequence[Pod]) -> bool:
    """Whether all waiting members were created after the last bind; False if a time is unknown."""
    times = [at for at in bound if at is not None]
    if not waiting or len(times) < len(bound):
        return False
    return all(pod.created > max(times) for pod in waiting)


def bind_time(pod: Mapping[str, Any]) -> float | None:
    """When the pod was bound, by the API server."""
    for row in (pod.get("status") or {}).get("conditions") or ():
        if row.get("type") == "PodScheduled" and row.get("status") == "True":
            try:
                return datetime.fromisoformat(str(row.get("lastTransitionTime"))).timestamp()
            except (ValueError, OverflowError):
                return None
    return None


class StaleGangEvictor:
    """`may_write` is checked before each write; `clock` stamps conditions."""

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
        self._api = api
        self._scheduler = scheduler
        self._policy = policy
        self._record = record
        self._may_write = may_write
        self._clock = clock
        self._sleep = sleep
        self._reported: set[str] = set()  # uids of retained pods that have their Event

    def forget(self, uid: str) -> None:
        self._reported.discard(uid)

    async def evict(self, gang: PartialGang, waiting: Sequence[Pod]) -> EvictionOutcome:
        if not gang.witnessed and await self._found_complete(gang, waiting):
            return EvictionOutcome(was_complete=True)
        fates = await asyncio.gather(*(self._settle(gang, pod) for pod in gang.live))
        outcome = EvictionOutcome(
            fates=tuple(zip((pod.uid for pod in gang.live), fates, strict=True))
        )
        logger.warning(
            "evicted members of a stale partial gang",
            extra={
                "unit": str(gang.key),
                "bound": len(gang.live),
                "size": gang.size,
                "evicted": outcome.evicted,
            },
        )
        return outcome

    async def _found_complete(self, gang: PartialGang, waiting: Sequence[Pod]) -> bool:
        reads = (
            self._api.get(resources.PODS, pod.key.name, namespace=pod.key.namespace)
            for pod in gang.live
        )
        try:
            members = await asyncio.gather(*reads)
        except errors.Gone:
            return False
        except errors.KubeError as error:
            logger.warning(
                "cannot read members of a partial gang",
                extra={"unit": str(gang.key), "error": str(error)},
            )
            return True  # no eviction without evidence; checked again at the next timeout
        return was_complete([bind_time(pod) for pod in members], waiting)

    async def _settle(self, gang: PartialGang, pod: Pod) -> MemberFate:
        member_fate = fate(pod, policy=self._policy, scheduler=self._scheduler)
        if member_fate is MemberFate.EVICTED:
            return await self._evict(gang, pod)
        if member_fate is not MemberFate.FOREIGN and pod.uid not in self._reported:
            self._reported.add(pod.uid)
            self._record(events.gang_retained(pod, gang, bare=member_fate is MemberFate.BARE))
        return member_fate

    async def _evict(self, gang: PartialGang, pod: Pod) -> MemberFate:
        pauses = backoff.Backoff(first=_FIRST_PAUSE, most=_LONGEST_PAUSE)
        try:
            await backoff.retry(
                lambda: self._delete(gang, pod),
                backoff=pauses,
                sleep=self._sleep,
                may_write=self._may_write,
                is_transient=lambda error: (
                    isinstance(error, errors.Retry) and pauses.failures < _ATTEMPTS - 1
                ),
            )
        except (errors.Gone, errors.Conflict):
            return MemberFate.EVICTED  # already gone, or another pod has its name
        except backoff.MayNotWrite:
            return MemberFate.UNREACHED
        except errors.KubeError as error:
            logger.error("cannot evict member", extra={"pod": str(pod.key), "error": str(error)})
            return MemberFate.UNREACHED
        self._record(events.gang_released(pod, gang))
        return MemberFate.EVICTED

    async def _delete(self, gang: PartialGang, pod: Pod) -> None:
        row = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": DISRUPTION_REASON,
            "message": events.released_note(gang),
            "lastTransitionTime": timestamp(self._clock()),
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
