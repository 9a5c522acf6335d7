"""
Writing a plan into the API: one Binding a pod, all of a plan at once.

    POST binding ──201──────────────────────────────────▶ Bound
      │ 409       read the pod: it has our node ────────▶ Bound
      │                          anything else ─────────▶ Unbound
      │ may have happened (5xx, timeout, no connection):
      │           wait and POST again until the deadline, then read the pod
      │ 404, refused ───────────────────────────────────▶ Unbound

The Binding names the pod's UID, so that a namesake that came after is never bound in its stead, and
carries the NUMA and GPU assignment as annotations that the API server merges in the same write.
A second POST is safe because a bound pod answers 409. Nothing is planned or remembered here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster import errors, resources
from policies import vocabulary

from .outcome import Placement

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0


class Binds(Protocol):
    """What the binder needs of a client."""

    async def bind(
        self,
        namespace: str,
        pod: str,
        node: str,
        *,
        uid: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None: ...

    async def get(
        self, resource: resources.Resource, name: str, *, namespace: str | None = None
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Bound:
    placement: Placement


@dataclass(frozen=True, slots=True)
class Unbound:
    """The pod did not get this node. `why` is for logs and events."""

    placement: Placement
    why: str


Result = Bound | Unbound


class Binder:
    """Binds plans; `random` in [0, 1) spreads the retries of many binds over time."""

    def __init__(
        self,
        api: Binds,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._api, self._now, self._sleep, self._random = api, now, sleep, random

    async def bind(self, placements: Sequence[Placement], *, deadline: float) -> list[Result]:
        """All concurrently, each until the `deadline` (by the clock); results in the same order."""
        return list(await asyncio.gather(*(self._bind(one, deadline) for one in placements)))

    async def _bind(self, placement: Placement, deadline: float) -> Result:
        wait = FIRST_WAIT
        while True:
            try:
                await self._post(placement)
            except errors.Conflict as error:
                return await self._look(placement, str(error), deadline)
            except errors.Retry as error:
                pause = max(wait * (0.5 + self._random()), error.retry_after or 0.0)
                if self._now() + pause >= deadline:
                    return await self._look(placement, str(error), deadline)
                await self._sleep(pause)
                wait = min(2 * wait, LONGEST_WAIT)
            except errors.KubeError as error:
                return Unbound(placement, str(error))
            else:
                return Bound(placement)

    async def _post(self, placement: Placement) -> None:
        pod, assignment = placement.pod, placement.assignment
        stamp = {vocabulary.NUMA_ASSIGNED_ANNOTATION: assignment.render()} if assignment else None
        await self._api.bind(
            pod.key.namespace, pod.key.name, placement.node, uid=pod.uid, annotations=stamp
        )

    async def _look(self, placement: Placement, why: str, deadline: float) -> Result:
        """Read the pod back: an answer that was lost may have been a success."""
        pod, wait = placement.pod, FIRST_WAIT
        while True:
            try:
                found = await self._api.get(
                    resources.PODS, pod.key.name, namespace=pod.key.namespace
                )
            except errors.Retry as error:
                if self._now() + wait >= deadline:
                    return Unbound(placement, f"{why}; {error}")
                await self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            except errors.KubeError as error:
                return Unbound(placement, f"{why}; {error}")
            else:
                return _compare(placement, found, why)


def _compare(placement: Placement, found: Mapping[str, Any], why: str) -> Result:
    uid = (found.get("metadata") or {}).get("uid")
    node = (found.get("spec") or {}).get("nodeName") or ""
    if uid != placement.pod.uid:
        return Unbound(placement, f"{why}; another pod has the name now")
    if node == placement.node:
        return Bound(placement)
    return Unbound(placement, f"{why}; the pod is on {node}" if node else why)
