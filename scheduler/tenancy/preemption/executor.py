"""
Asking the API server to end pods, so that a unit can be placed.

    rehearse    every eviction as a dry run; one refused: nobody is evicted
    nominate    the pods that wait are told their nodes: a successor knows for whom who goes
    evict       those under a disruption budget first, one by one, and one of the others before
                all others at once; each is told, and asked again until it goes. A refusal counts
                at once as long as nobody went; after that when it was repeated for a while

Evictions respect grace periods and disruption budgets, and name the pod's uid, so that a namesake
is never met. The API server marks the pod with the condition `DisruptionTarget`. An answer that did
not come says nothing: the pod may be going all the same, and the watch is asked before the server
is asked again. A refusal after others went is told to whoever asked, who looks for another way.

`status.nominatedNodeName` is as by kube-scheduler: autoscalers look at it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
_REFUSALS: Final = 6  # of one pod, while others are going
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 6.0
_LONGEST_ASKED: Final = 30.0  # seconds that a server may ask to be left alone
_AT_ONCE: Final = 16  # pods that are told their nodes
_CALL_SECONDS: Final = 5.0  # no longer than a lease lasts beyond the last moment to write


class EvictionClient(verbs.Evicts, verbs.PatchesStatus, Protocol):
    """The verbs that the evictor uses."""


@dataclass(frozen=True, slots=True)
class EvictionProgress:
    """What became of evictions meanwhile."""

    wanted: Callable[[], bool]
    """Whether anybody still has to go."""
    ends: Callable[[Pod], bool]
    """Whether the pod is ending or gone, as far as the watch has said."""
    guarded: Callable[[Pod], bool] = lambda pod: False
    """Whether a disruption budget speaks for the pod."""
    went: Callable[[Pod], None] = lambda pod: None
    """Told of each pod that is going."""
    anybody: Callable[[], bool] = lambda: False
    """Whether somebody is going already."""


class Evictor:
    """`may_write` is asked before each write."""

    def __init__(
        self,
        api: EvictionClient,
        *,
        record: Callable[[correlator.EventReport], None],
        may_write: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api, self.record = api, record
        self._may_write, self._sleep = may_write, sleep

    async def rehearse(self, victims: Sequence[Pod]) -> tuple[Pod, ...]:
        """Who may not be evicted, the first one met; nobody: all may."""
        for pod in victims:
            why = ""
            for attempt in range(_TRIES):
                why, final, pause = await self._try(pod, attempt, dry_run=True)
                if final or attempt + 1 == _TRIES:
                    break
                await self._sleep(pause)
            if why:
                logger.info("not evicted", extra={"pod": str(pod.key), "why": why})
                return (pod,)
        return ()

    async def evict(
        self, unit: Unit, victims: Sequence[Pod], watched: EvictionProgress
    ) -> tuple[Pod, ...]:
        """Who did not go: the first one met, or those of the last at once."""
        order = sorted(victims, key=lambda pod: not watched.guarded(pod))
        alone = max(1, sum(map(watched.guarded, order)))
        staying: tuple[Pod, ...] = ()
        going: list[Pod] = []
        for part in (*((pod,) for pod in order[:alone]), order[alone:]):
            answers = await asyncio.gather(*(self._ask(unit, pod, watched) for pod in part))
            going += [pod for pod, why in zip(part, answers, strict=True) if not why]
            staying = tuple(pod for pod, why in zip(part, answers, strict=True) if why)
            if staying:
                break
        if going:
            self.record(events.preempting(unit, going))
            logger.info("evicted", extra={"unit": str(unit.key), "pods": len(going)})
        return staying

    async def _ask(self, unit: Unit, pod: Pod, watched: EvictionProgress) -> str:
        """Empty: the pod is going, or gone. Asked until it does, as long as that is wanted."""
        why, attempt, refusals = "nobody has to go any more", 0, 0
        while True:
            if watched.ends(pod):
                why = ""
                break
            if not watched.wanted():
                break
            why, final, pause = await self._try(pod, attempt)
            refusals += final
            if not why or (final and self._counts(refusals, watched)):
                break
            attempt += 1
            await self._sleep(pause)
        if why:
            logger.info("not evicted", extra={"pod": str(pod.key), "why": why})
        else:
            watched.went(pod)
            self.record(events.preempted(pod, unit))
        return why

    def _counts(self, refusals: int, watched: EvictionProgress) -> bool:
        """Whether a refusal is one, and not a moment's."""
        return not watched.anybody() or refusals >= _REFUSALS or not self._may_write()

    async def _try(
        self, pod: Pod, attempt: int, *, dry_run: bool = False
    ) -> tuple[str, bool, float]:
        """Why the pod stays, empty: it does not; whether that is final; when to ask again."""
        if not self._may_write():
            return "another scheduler leads", True, _PAUSE
        try:
            await self._api.evict(
                pod.key.namespace,
                pod.key.name,
                uid=pod.uid,
                dry_run=dry_run,
                timeout=_CALL_SECONDS,
            )
        except (errors.Gone, errors.Conflict):
            return "", True, 0.0  # gone already, or a namesake has taken its place
        except errors.Retry as error:
            return str(error), by_budget(error), _pause(attempt, error)
        except errors.KubeError as error:
            return str(error), True, _pause(attempt, error)
        return "", True, 0.0

    async def nominate(
        self, places: Sequence[tuple[Pod, str]], *, wanted: Callable[[], bool]
    ) -> bool:
        """
        Tell each pod its node, or none ("") any more, as long as that is wanted.

        Whether all of them were told.
        """
        told = True
        for start in range(0, len(places), _AT_ONCE):
            if not wanted():
                return False
            part = places[start : start + _AT_ONCE]
            answers = await asyncio.gather(*(self._nominate(pod, node) for pod, node in part))
            told = told and all(answers)
        return told

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
                logger.info("not nominated", extra={"pod": str(pod.key), "error": str(error)})
                if not isinstance(error, errors.Retry) or attempt + 1 == _TRIES:
                    return False
                await self._sleep(_pause(attempt, error))
            else:
                return True
        return False


def _pause(attempt: int, error: errors.KubeError) -> float:
    """Doubled every time; longer where the server asked for it."""
    pause = backoff.exponential(attempt, first=_PAUSE, most=_LONGEST_PAUSE)
    asked = error.retry_after if isinstance(error, errors.Retry) else None
    return min(max(pause, asked or 0.0), _LONGEST_ASKED)


def by_budget(error: errors.KubeError) -> bool:
    """A disruption budget stands in the way; waiting a moment would not help."""
    causes = error.details.get("causes")
    rows = causes if isinstance(causes, list) else []
    return any(isinstance(row, dict) and row.get("reason") == "DisruptionBudget" for row in rows)


class NominationClearer:
    """`done` hears of each task that ended."""

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
        self, places: Sequence[Placement], *, after: asyncio.Task[None] | None = None
    ) -> None:
        """The pods are promised no node any more; once `after`, which may tell them so, ended."""
        if self._evictor is not None:
            waits = after if after is not asyncio.current_task() else None
            task = self._background.start(self._clear(self._evictor, places, waits))
            self._tasks.add(task)
            task.add_done_callback(self._cleared)

    async def _clear(
        self, evictor: Evictor, places: Sequence[Placement], after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        await evictor.nominate([(one.pod, "") for one in places], wanted=lambda: True)

    def _cleared(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._done(task)
