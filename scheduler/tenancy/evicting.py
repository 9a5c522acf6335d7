"""
Asking the API server to end pods, so that a unit can be placed.

    rehearse ──every eviction as a dry run──▶ all allowed? ──▶ evict ──▶ told on both sides
                        └── one refused: nobody is evicted, and that pod is left alone for a while

Evictions respect grace periods and disruption budgets, and name the pod's uid, so that a namesake
is never met. The API server marks the pod with the condition `DisruptionTarget`. A budget that two
victims share may refuse the second after the first went: whoever asked is told who did not go.

Pods that wait for the room are told their node in `status.nominatedNodeName`, as by kube-scheduler:
autoscalers look at it, and a successor keeps the room by it. What cannot be told is let be.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cluster import client, correlation, errors, resources

from .. import events
from ..conditions import Patches
from ..model import Pod
from ..units import Unit

logger = logging.getLogger(__name__)

_TRIES: Final = 4
_TRIES_IN_EARNEST: Final = 10  # others are going already: giving up would make them go in vain
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 6.0
_AT_ONCE: Final = 16  # pods that are told their nodes


class Evictions(Patches, Protocol):
    """What is needed of a client."""

    async def evict(
        self, namespace: str, pod: str, *, uid: str | None = None, dry_run: bool = False
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who is going, who stays, and why the first of those stays."""

    going: tuple[Pod, ...] = ()
    staying: tuple[Pod, ...] = ()
    why: str = ""


class Evictor:
    """`may_write` is asked before each write."""

    def __init__(
        self,
        api: Evictions,
        *,
        record: Callable[[correlation.Report], None],
        may_write: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api, self.record = api, record
        self._may_write, self._sleep = may_write, sleep

    async def evict(self, unit: Unit, victims: Sequence[Pod]) -> Outcome:
        """All of them, or as a rule nobody."""
        for pod in victims:
            why = await self._ask(pod, dry_run=True)
            if why:
                logger.info("not evicted", extra={"pod": str(pod.key), "why": why})
                return Outcome(staying=(pod,), why=why)
        answers = await asyncio.gather(*(self._ask(pod) for pod in victims))
        going = tuple(pod for pod, why in zip(victims, answers, strict=True) if not why)
        staying = tuple(pod for pod, why in zip(victims, answers, strict=True) if why)
        for pod in going:
            self.record(events.preempted(pod, unit))
        if going:
            self.record(events.preempting(unit, going))
            logger.info("evicted", extra={"unit": str(unit.key), "pods": len(going)})
        return Outcome(going, staying, next((why for why in answers if why), ""))

    async def nominate(
        self, places: Sequence[tuple[Pod, str]], *, wanted: Callable[[], bool]
    ) -> None:
        """Tell each pod its node, or none ("") any more, as long as that is wanted."""
        for start in range(0, len(places), _AT_ONCE):
            if not (wanted() and self._may_write()):
                return
            part = places[start : start + _AT_ONCE]
            await asyncio.gather(*(self._nominate(pod, node) for pod, node in part))

    async def _nominate(self, pod: Pod, node: str) -> None:
        try:
            await self._api.patch_status(
                resources.PODS,
                pod.key.name,
                {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}},
                namespace=pod.key.namespace,
                kind=client.PatchKind.STRATEGIC,
            )
        except errors.KubeError as error:
            logger.info("not nominated", extra={"pod": str(pod.key), "error": str(error)})

    async def _ask(self, pod: Pod, *, dry_run: bool = False) -> str:
        """Empty: the pod is going, or gone."""
        why = ""
        for attempt in range(_TRIES if dry_run else _TRIES_IN_EARNEST):
            if attempt:
                await self._sleep(min(_PAUSE * 2**attempt, _LONGEST_PAUSE))
            if not self._may_write():
                return "another scheduler leads"
            try:
                await self._api.evict(pod.key.namespace, pod.key.name, uid=pod.uid, dry_run=dry_run)
            except (errors.Gone, errors.Conflict):
                return ""  # gone already, or a namesake has taken its place
            except errors.Retry as error:
                why = str(error)
                if by_budget(error):
                    return why
            except errors.KubeError as error:
                return str(error)
            else:
                return ""
        return why


def by_budget(error: errors.KubeError) -> bool:
    """A disruption budget stands in the way; waiting a moment would not help."""
    causes = error.details.get("causes")
    rows = causes if isinstance(causes, list) else []
    return any(isinstance(row, dict) and row.get("reason") == "DisruptionBudget" for row in rows)
