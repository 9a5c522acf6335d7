"""
Writes a plan into the API: one Binding per pod, all of a plan concurrently.

    POST binding ──201──────────────────────────────────▶ Bound
      │ 409       read the pod: it has our node ────────▶ Bound
      │                          anything else ─────────▶ Unbound
      │ may have succeeded (5xx, timeout, no connection):
      │           retry with backoff until the deadline, then read the pod until there is a
      │           response: such a bind counts as done until the API shows that it is not
      │ not authorized: the same, because a starting API server rejects all (`cluster.denials`)
      │ 404, rejected ──────────────────────────────────▶ Unbound, permanent if it concerns the pod
      │ an error of this program: read the pod ─────────▶ Bound, or Unbound with the error

The Binding names the pod's UID, so that a later pod of the same name is never bound in its place,
and carries the NUMA and GPU assignment as annotations that the API server merges in the same write.
A second POST is safe because it gets 409 for a bound pod. Pods whose bind was rejected before go
first, and the others only if those succeed: a gang is not partially bound twice for one reason.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from cluster import backoff, denials, errors, resources, verbs
from policies import vocabulary
from scheduler.isolation import brief
from scheduler.model.plan import Bound, Placement, Result, Unbound

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
REQUEST_TIMEOUT: Final = 5.0  # short: a retry is safe and may reach a healthy API server


class BindClient(verbs.Binds, verbs.Gets, Protocol):
    """The verbs that the binder uses."""


class Binder:
    """
    Binds plans; `random` in [0, 1) spreads the retries of many binds over time.

    `may_write` is checked before every write: a leader that lost its lease stops writing.
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
        self._api = api
        self._now = now
        self._sleep = sleep
        self._random = random
        self._may_write = may_write

    async def bind(
        self,
        placements: Sequence[Placement],
        *,
        deadline: float,
        first: Collection[str] = (),
    ) -> list[Result]:
        """
        Bind concurrently, each pod until the `deadline`; results are in the order of placements.

        Pods with uids in `first` go before the others, which are not tried if one of them fails.
        """
        results = {
            result.placement.pod.uid: result
            for result in await self._all([p for p in placements if p.pod.uid in first], deadline)
        }
        rest = [placement for placement in placements if placement.pod.uid not in results]
        failed = [result for result in results.values() if isinstance(result, Unbound)]
        if failed:
            why = f"not tried, because {failed[0].placement.pod.key} was not bound"
            results |= {placement.pod.uid: Unbound(placement, why) for placement in rest}
        else:
            bound = await self._all(rest, deadline)
            results |= {result.placement.pod.uid: result for result in bound}
        return [results[placement.pod.uid] for placement in placements]

    async def _all(self, placements: Sequence[Placement], deadline: float) -> list[Result]:
        binds = (self._bind(placement, deadline) for placement in placements)
        return list(await asyncio.gather(*binds))

    async def _bind(self, placement: Placement, deadline: float) -> Result:
        """Raises nothing: an error of one pod must not hide the outcome of the others."""
        try:
            return await self._try(placement, deadline)
        except Exception as error:
            return await self._after_error(placement, error)

    async def _after_error(self, placement: Placement, error: Exception) -> Result:
        """The Binding may have been sent before the error came."""
        result: Result = Unbound(placement, brief(error))
        with contextlib.suppress(Exception):
            result = await self._read_back(placement, brief(error))
        return replace(result, error=error) if isinstance(result, Unbound) else result

    async def _try(self, placement: Placement, deadline: float) -> Result:
        pauses = backoff.Backoff(
            self._random, first=FIRST_PAUSE, most=LONGEST_PAUSE, jitter=backoff.AROUND
        )
        try:
            await backoff.retry(
                lambda: self._post(placement),
                backoff=pauses,
                sleep=self._sleep,
                now=self._now,
                deadline=deadline,
                may_write=self._may_write,
                is_transient=_is_transient,
            )
        except backoff.MayNotWrite:
            return Unbound(placement, _NOT_LEADER)
        except errors.KubeError as error:
            if isinstance(error, errors.Conflict) or _is_transient(error):
                return await self._read_back(placement, str(error))
            permanent = isinstance(error, errors.Refused) and denials.of_the_pod(error)
            return Unbound(placement, str(error), permanent=permanent)
        return Bound(placement)

    async def _post(self, placement: Placement) -> None:
        pod, assignment = placement.pod, placement.assignment
        annotations = (
            {vocabulary.NUMA_ASSIGNED_ANNOTATION: assignment.render()} if assignment else None
        )
        await self._api.bind(
            pod.key.namespace,
            pod.key.name,
            placement.node,
            uid=pod.uid,
            annotations=annotations,
            timeout=REQUEST_TIMEOUT,
        )

    async def _read_back(self, placement: Placement, why: str) -> Result:
        """Read the pod: a bind whose response was lost may have succeeded."""
        key = placement.pod.key
        try:
            pod = await backoff.retry(
                lambda: self._api.get(
                    resources.PODS, key.name, namespace=key.namespace, timeout=REQUEST_TIMEOUT
                ),
                backoff=backoff.Backoff(first=FIRST_PAUSE, most=LONGEST_PAUSE),
                sleep=self._sleep,
                is_transient=lambda error: not isinstance(error, errors.Gone) and self._may_write(),
            )
        except errors.Gone as error:
            return Unbound(placement, f"{why}; {error}")
        except errors.KubeError:
            return Unbound(placement, _NOT_LEADER)
        return _compare(placement, pod, why)


_NOT_LEADER: Final = "this process is no longer the leader"


def _is_transient(error: errors.KubeError) -> bool:
    """Whether the bind may succeed later; it may also have succeeded with a lost response."""
    return isinstance(error, errors.Retry) or denials.of_this_program(error)


def _compare(placement: Placement, pod: Mapping[str, Any], why: str) -> Result:
    uid = (pod.get("metadata") or {}).get("uid")
    node = (pod.get("spec") or {}).get("nodeName") or ""
    if uid != placement.pod.uid:
        return Unbound(placement, f"{why}; another pod has its name")
    if node == placement.node:
        return Bound(placement)
    return Unbound(placement, f"{why}; the pod is on {node}" if node else why)
