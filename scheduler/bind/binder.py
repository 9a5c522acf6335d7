"""
Writing a plan into the API: one Binding a pod, all of a plan at once.

    POST binding ──201──────────────────────────────────▶ Bound
      │ 409       read the pod: it has our node ────────▶ Bound
      │                          anything else ─────────▶ Unbound
      │ may have happened (5xx, timeout, no connection):
      │           wait and POST again until the deadline, then read the pod until it is answered:
      │           a bind that may have happened counts as one until the API says otherwise
      │ not let in: the same, because a server that starts lets nobody in (`refusals`)
      │ 404, refused ───────────────────────────────────▶ Unbound, for good where it says so

The Binding names the pod's UID, so that a namesake that came after is never bound in its stead, and
carries the NUMA and GPU assignment as annotations that the API server merges in the same write.
A second POST is safe because a bound pod answers 409. Pods whose bind was refused before are tried
first, and the others of the plan only after them: a gang is not half bound twice for one reason.
Nothing is planned or remembered here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from cluster import denials, errors, resources, verbs
from policies import vocabulary
from scheduler.model.plan import Bound, Placement, Result, Unbound

FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
ONE_TRY: Final = 5.0  # seconds for one request; a second one is safe and may meet a better server


class BindClient(verbs.Binds, verbs.Gets, Protocol):
    """The verbs that the binder uses."""


class Binder:
    """
    Binds plans; `random` in [0, 1) spreads the retries of many binds over time.

    `may_write` is asked before every write: a leader that lost its lease writes nothing more.
    """

    def __init__(
        self,
        api: BindClient,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._api, self._now, self._sleep, self._random = api, now, sleep, random
        self._may_write = may_write

    async def bind(
        self,
        placements: Sequence[Placement],
        *,
        deadline: float,
        first: Collection[str] = (),
    ) -> list[Result]:
        """
        All concurrently, each until the `deadline` (by the clock); results in the same order.

        The pods whose uids are in `first` go before the others, which are not tried if one fails.
        """
        results = {
            one.placement.pod.uid: one
            for one in await self._all([p for p in placements if p.pod.uid in first], deadline)
        }
        rest = [one for one in placements if one.pod.uid not in results]
        failed = [one for one in results.values() if isinstance(one, Unbound)]
        if failed:
            why = f"not tried, because {failed[0].placement.pod.key} was not bound"
            results |= {one.pod.uid: Unbound(one, why) for one in rest}
        else:
            results |= {one.placement.pod.uid: one for one in await self._all(rest, deadline)}
        return [results[one.pod.uid] for one in placements]

    async def _all(self, placements: Sequence[Placement], deadline: float) -> list[Result]:
        return list(await asyncio.gather(*(self._bind(one, deadline) for one in placements)))

    async def _bind(self, placement: Placement, deadline: float) -> Result:
        wait = FIRST_WAIT
        while True:
            if not self._may_write():
                return Unbound(placement, _NOT_LEADING)
            try:
                await self._post(placement)
            except errors.Conflict as error:
                return await self._look(placement, str(error))
            except (errors.Retry, errors.Refused) as error:
                if isinstance(error, errors.Refused) and not denials.of_this_program(error):
                    return Unbound(placement, str(error), permanent=denials.of_the_pod(error))
                asked = error.retry_after if isinstance(error, errors.Retry) else None
                pause = max(wait * (0.5 + self._random()), asked or 0.0)
                if self._now() + pause >= deadline:
                    return await self._look(placement, str(error))
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
            pod.key.namespace,
            pod.key.name,
            placement.node,
            uid=pod.uid,
            annotations=stamp,
            timeout=ONE_TRY,
        )

    async def _look(self, placement: Placement, why: str) -> Result:
        """Read the pod back: an answer that was lost may have been a success."""
        pod, wait = placement.pod, FIRST_WAIT
        while True:
            try:
                found = await self._api.get(
                    resources.PODS, pod.key.name, namespace=pod.key.namespace, timeout=ONE_TRY
                )
            except errors.Gone as error:
                return Unbound(placement, f"{why}; {error}")
            except errors.KubeError:
                if not self._may_write():
                    return Unbound(placement, _NOT_LEADING)
                await self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                return _compare(placement, found, why)


_NOT_LEADING: Final = "this process leads no more"


def _compare(placement: Placement, found: Mapping[str, Any], why: str) -> Result:
    uid = (found.get("metadata") or {}).get("uid")
    node = (found.get("spec") or {}).get("nodeName") or ""
    if uid != placement.pod.uid:
        return Unbound(placement, f"{why}; another pod has the name now")
    if node == placement.node:
        return Bound(placement)
    return Unbound(placement, f"{why}; the pod is on {node}" if node else why)
