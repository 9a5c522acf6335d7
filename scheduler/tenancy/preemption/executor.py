"""
Evicts victims through the API server, so that a preemptor can be placed.

    dry_run     every eviction as a dry run; if one is refused, no pod is evicted
    nominate    writes the preemptor's nodes, so that a successor knows for whom pods terminate
    evict       victims under a disruption budget first, one by one, then one of the others, then
                all others at once; each eviction is retried. Before the first eviction a refusal
                is final at once, later after several refusals

Evictions respect grace periods and disruption budgets. They name the pod's uid, so that a new pod
of the same name is never evicted. The API server sets the condition `DisruptionTarget`. After a
lost answer the pod may terminate all the same, so the watch is read before each retry. A refusal
after other evictions is returned to the caller, which searches again.

`status.nominatedNodeName` has kube-scheduler's meaning: autoscalers read it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from cluster import backoff, errors, resources, verbs
from cluster.events import correlator
from scheduler.background import BackgroundTasks
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.report import events

logger = logging.getLogger(__name__)

_TRIES: Final = 4
_REFUSALS: Final = 6  # of one victim, after other evictions
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 6.0
_LONGEST_RETRY_AFTER: Final = 30.0  # seconds
_NOMINATIONS_AT_ONCE: Final = 16
_CALL_SECONDS: Final = 5.0  # shorter than a lease outlasts the last permission to write


class EvictionClient(verbs.Evicts, verbs.PatchesStatus, Protocol):
    """The verbs that the evictor uses."""


@dataclass(frozen=True, slots=True)
class EvictionProgress:
    """What the evictor reads and reports between two calls."""

    is_needed: Callable[[], bool]
    """Whether the preemptor still needs its victims evicted."""
    is_leaving: Callable[[Pod], bool]
    """Whether the watch shows the pod as terminating or gone."""
    has_budget: Callable[[Pod], bool] = lambda pod: False
    """Whether a disruption budget selects the pod."""
    evicted: Callable[[Pod], None] = lambda pod: None
    """Called for each pod that terminates."""
    any_evicted: Callable[[], bool] = lambda: False


class Evictor:
    """Calls `may_write` before each write."""

    def __init__(
        self,
        api: EvictionClient,
        *,
        record: Callable[[correlator.EventReport], None],
        may_write: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self.record = record
        self._may_write = may_write
        self._sleep = sleep

    async def dry_run(self, victims: Sequence[Pod]) -> tuple[Pod, ...]:
        """The first victim that the API server refuses to evict; empty: it refuses none."""
        for pod in victims:
            refusal = ""
            for attempt in range(_TRIES):
                refusal, final, pause = await self._try(pod, attempt, dry_run=True)
                if final or attempt + 1 == _TRIES:
                    break
                await self._sleep(pause)
            if refusal:
                logger.info("eviction refused", extra={"pod": str(pod.key), "why": refusal})
                return (pod,)
        return ()

    async def evict(
        self,
        preemptor: Unit,
        victims: Sequence[Pod],
        progress: EvictionProgress,
        *,
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Pod, ...]:
        """The victims that stay. `reasons`: why each is evicted, by uid."""
        order = sorted(victims, key=lambda pod: not progress.has_budget(pod))
        alone = max(1, sum(map(progress.has_budget, order)))
        staying: tuple[Pod, ...] = ()
        evicted: list[Pod] = []
        for batch in (*((pod,) for pod in order[:alone]), order[alone:]):
            refusals = await asyncio.gather(
                *(
                    self._evict_one(preemptor, pod, progress, reasons.get(pod.uid, ""))
                    for pod in batch
                )
            )
            evicted += [pod for pod, why in zip(batch, refusals, strict=True) if not why]
            staying = tuple(pod for pod, why in zip(batch, refusals, strict=True) if why)
            if staying:
                break
        if evicted:
            self.record(events.preempting(preemptor, evicted))
            extra = {"preemptor": str(preemptor.key), "victims": len(evicted)}
            logger.info("evicted victims", extra=extra)
        return staying

    async def _evict_one(
        self, preemptor: Unit, pod: Pod, progress: EvictionProgress, reason: str
    ) -> str:
        """Why the pod stays; empty: it terminates or is gone. Retries as long as is needed."""
        refusal, attempt, refusals = "the preemptor needs no victims any more", 0, 0
        while True:
            if progress.is_leaving(pod):
                refusal = ""
                break
            if not progress.is_needed():
                break
            refusal, final, pause = await self._try(pod, attempt)
            refusals += final
            if not refusal or (final and self._is_final(refusals, progress)):
                break
            attempt += 1
            await self._sleep(pause)
        if refusal:
            logger.info("eviction refused", extra={"pod": str(pod.key), "why": refusal})
        else:
            progress.evicted(pod)
            self.record(events.preempted(pod, preemptor, reason))
        return refusal

    def _is_final(self, refusals: int, progress: EvictionProgress) -> bool:
        return not progress.any_evicted() or refusals >= _REFUSALS or not self._may_write()

    async def _try(
        self, pod: Pod, attempt: int, *, dry_run: bool = False
    ) -> tuple[str, bool, float]:
        """Why the pod stays, empty: it does not; whether a retry is useless; the pause before."""
        if not self._may_write():
            return "another scheduler is the leader", True, _PAUSE
        try:
            await self._api.evict(
                pod.key.namespace,
                pod.key.name,
                uid=pod.uid,
                dry_run=dry_run,
                timeout=_CALL_SECONDS,
            )
        except (errors.Gone, errors.Conflict):
            return "", True, 0.0  # gone, or replaced by a new pod of the same name
        except errors.Retry as error:
            return str(error), refused_by_budget(error), _pause(attempt, error)
        except errors.KubeError as error:
            return str(error), True, _pause(attempt, error)
        return "", True, 0.0

    async def nominate(
        self, nominations: Sequence[tuple[Pod, str]], *, is_needed: Callable[[], bool]
    ) -> bool:
        """Write each pod's nominated node, "" for none; whether all writes succeeded."""
        written = True
        for start in range(0, len(nominations), _NOMINATIONS_AT_ONCE):
            if not is_needed():
                return False
            batch = nominations[start : start + _NOMINATIONS_AT_ONCE]
            results = await asyncio.gather(*(self._nominate(pod, node) for pod, node in batch))
            written = written and all(results)
        return written

    async def _nominate(self, pod: Pod, node: str) -> bool:
        for attempt in range(_TRIES):
            if not self._may_write():
                return False
            try:
                await self._api.patch_status(
                    resources.PODS,
                    pod.key.name,
                    {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}},
                    namespace=pod.key.namespace,
                    kind=verbs.PatchKind.STRATEGIC,
                )
            except errors.KubeError as error:
                extra = {"pod": str(pod.key), "error": str(error)}
                logger.info("nomination not written", extra=extra)
                if not isinstance(error, errors.Retry) or attempt + 1 == _TRIES:
                    return False
                await self._sleep(_pause(attempt, error))
            else:
                return True
        return False


def _pause(attempt: int, error: errors.KubeError) -> float:
    """Doubles with each attempt; the server's Retry-After can make it longer."""
    pause = backoff.exponential(attempt, first=_PAUSE, most=_LONGEST_PAUSE)
    retry_after = error.retry_after if isinstance(error, errors.Retry) else None
    return min(max(pause, retry_after or 0.0), _LONGEST_RETRY_AFTER)


def refused_by_budget(error: errors.KubeError) -> bool:
    """A disruption budget refuses the eviction: a retry at once is useless."""
    causes = error.details.get("causes")
    rows = causes if isinstance(causes, list) else []
    return any(isinstance(row, dict) and row.get("reason") == "DisruptionBudget" for row in rows)


class NominationClearer:
    """Calls `done` for each task that ended."""

    def __init__(
        self,
        evictor: Evictor | None,
        done: Callable[[asyncio.Task[None]], None],
        tasks: BackgroundTasks,
    ) -> None:
        self._evictor = evictor
        self._done = done
        self._background = tasks
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def clear(
        self, placements: Sequence[Placement], *, after: asyncio.Task[None] | None = None
    ) -> None:
        """Clear the nominations of these pods, once `after`, which may write them, has ended."""
        if self._evictor is not None:
            waits = after if after is not asyncio.current_task() else None
            task = self._background.start(self._clear(self._evictor, placements, waits))
            self._tasks.add(task)
            task.add_done_callback(self._cleared)

    async def _clear(
        self, evictor: Evictor, placements: Sequence[Placement], after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        nominations = [(placement.pod, "") for placement in placements]
        await evictor.nominate(nominations, is_needed=lambda: True)

    def _cleared(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._done(task)
