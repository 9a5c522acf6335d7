"""
PreBind of ResourceClaims: write allocations and reservations before a bind.

    plan ──▶ protect ──▶ allocate and reserve ──▶ bind ──▶ done
             (finalizer)   │ another client first  │ rejected
                           ▼                       ▼
                     PreBindFailure ◀── undo ──────┘

An allocated claim is only reserved. Every write carries the resourceVersion that it is based on:
after a conflict the newest state decides about the next write. `undo` removes what was written for
a pod that is not bound: its reservation, and also the allocation if it was made for this pod and no
other pod has reserved the claim or is about to use it.

A process that dies in between leaves allocated claims of pods without a node. Its successor plans
such a pod on the node of its devices. Where the pod fits nowhere because of them, `free` removes
the allocation. `store` has each write at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from cluster import backoff, errors, resources, verbs
from scheduler.background import BackgroundTasks
from scheduler.isolation import prepare_each
from scheduler.model.plan import NoFit, Placement, PreBindFailure, PreBindResult
from scheduler.model.pod import Pod
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra import node_selector
from scheduler.plugins.dra import pod_claims as claim_rules
from scheduler.plugins.dra.allocator import ClaimAllocation, DevicePick
from scheduler.plugins.dra.claim_types import (
    FINALIZER,
    ClaimKey,
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
)
from scheduler.plugins.dra.plugin import UNAVAILABLE, DynamicResources

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 30.0  # for all writes of a plan
UNDO_SECONDS: Final = 10.0
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
_MAX_CONFLICTS: Final = 20

_NO_ALLOCATION: Final[Mapping[str, Any]] = {
    "allocation": None,
    "reservedFor": None,
    "devices": None,
}


class ClaimClient(verbs.Gets, verbs.Patches, Protocol):
    """The verbs for ResourceClaims."""


class _DecisionInvalid(Exception):
    """The decision is no longer valid."""


class ClaimPreBind:
    """
    `may_write` says whether this process still leads; `cluster_event` is called when devices become
    free; `random` in [0, 1) spreads retries over time.
    """

    def __init__(
        self,
        api: ClaimClient,
        devices: DynamicResources,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        may_write: Callable[[], bool] = lambda: True,
        cluster_event: Callable[[], None] = lambda: None,
        tasks: BackgroundTasks | None = None,
    ) -> None:
        self._tasks = tasks or BackgroundTasks()
        self._api = api
        self._devices = devices
        self._store = devices.store
        self._now = now
        self._sleep = sleep
        self._random = random
        self._may_write, self._cluster_event = may_write, cluster_event
        self._freeing: dict[ClaimKey, asyncio.Task[None]] = {}

    def needed(self, placements: Iterable[Placement]) -> bool:
        """Whether any of these pods has claims."""
        return any(map(_has_claims, placements))

    async def prepare(self, placements: Sequence[Placement], *, deadline: float) -> PreBindResult:
        """Concurrently for all pods, until the `deadline` of the clock."""
        return await prepare_each(lambda item: self._prepare(item, deadline), placements)

    async def undo(self, placements: Iterable[Placement]) -> None:
        """Remove what was written for these pods: they were not bound."""
        await asyncio.gather(*map(self._undo, filter(_has_claims, placements)))

    def free(self, pods: Iterable[Pod], why: NoFit) -> None:
        """
        Remove the allocations that make these pods fit nowhere, where no other pod uses them.
        """
        if not any(reason == UNAVAILABLE for reason, _ in why.reasons):
            return
        for pod in pods:
            if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
                continue
            for claim in claim_rules.classify(self._store, pod).allocated:
                idle = set(claim.consumers) <= {pod.uid} and not self._devices.holders(claim.key)
                if idle and claim.key not in self._freeing:
                    self._freeing[claim.key] = self._tasks.start(self._free(claim, pod))

    # --- one pod ---

    async def _prepare(self, placement: Placement, deadline: float) -> Placement | PreBindFailure:
        pod = placement.pod
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return placement
        decision = self._devices.decision(pod, placement.node)
        try:
            if decision.unmatched or len(decision.claims) != len(claim_rules.keys(pod)):
                raise _DecisionInvalid(decision.unmatched or "the claims changed")
            for key, allocation in decision.claims:
                await self._reserve(pod, key, allocation, deadline)
        except (_DecisionInvalid, errors.KubeError) as error:
            await self._undo(placement)
            return PreBindFailure(placement, f"allocating devices: {error}")
        return placement

    async def _reserve(
        self, pod: Pod, key: ClaimKey, allocation: ClaimAllocation | None, deadline: float
    ) -> None:
        def step(claim: ResourceClaim) -> _Step:
            return self._next(pod, claim, allocation)

        await self._until_done(key, step, deadline)

    def _next(self, pod: Pod, claim: ResourceClaim, allocation: ClaimAllocation | None) -> "_Step":
        """The next write on the way to a claim that the pod may use."""
        name = "/".join(claim.key)
        if claim.deleting:
            raise _DecisionInvalid(f"claim {name} got deleted in the meantime")
        if claim.allocation is None:
            if allocation is None:
                raise _DecisionInvalid(f"claim {name} got deallocated elsewhere in the meantime")
            if FINALIZER not in claim.finalizers:
                return {"metadata": {"finalizers": [*claim.finalizers, FINALIZER]}}
            return {
                "status": {
                    "allocation": allocation_result(claim.spec, allocation, self._store.classes),
                    "reservedFor": [consumer(pod)],
                }
            }
        if allocation is not None and not _has_devices(claim, allocation):
            raise _DecisionInvalid(f"claim {name} got allocated elsewhere in the meantime")
        if pod.uid in claim.consumers:
            return None
        return {"status": {"reservedFor": [consumer(pod)]}}

    async def _undo(self, placement: Placement) -> None:
        pod = placement.pod
        deadline = self._now() + UNDO_SECONDS
        for key, allocation in self._devices.decision(pod, placement.node).claims:
            others = self._devices.holders(key) - {pod.uid}
            deallocate = allocation is not None and not others

            def step(claim: ResourceClaim, *, deallocate: bool = deallocate) -> _Step:
                return _release(pod, claim, deallocate=deallocate)

            await self._best_effort(key, step, deadline)

    async def _free(self, claim: ResourceClaim, pod: Pod) -> None:
        def step(current: ResourceClaim) -> _Step:
            is_same = current.uid == claim.uid
            return _release(pod, current, deallocate=True) if is_same else None

        try:
            await self._best_effort(claim.key, step, self._now() + UNDO_SECONDS)
        finally:
            self._freeing.pop(claim.key, None)

    async def _best_effort(
        self, key: ClaimKey, step: Callable[[ResourceClaim], "_Step"], deadline: float
    ) -> None:
        """On failure the allocation stays; its pod uses it, or `free` removes it later."""
        try:
            await self._until_done(key, step, deadline)
        except (_DecisionInvalid, errors.KubeError) as error:
            logger.warning(
                "could not release claim", extra={"claim": "/".join(key), "error": str(error)}
            )

    # --- one claim ---

    async def _until_done(
        self, key: ClaimKey, step: Callable[[ResourceClaim], "_Step"], deadline: float
    ) -> None:
        """Write step after step; the newest state decides which is next."""
        conflicts = 0
        pauses = backoff.Backoff(
            self._random, first=FIRST_WAIT, most=LONGEST_WAIT, jitter=backoff.AROUND
        )

        async def write() -> None:
            nonlocal conflicts
            if pauses.failures:
                await self._refresh(key)  # the failed write may have happened
            while (body := step(self._claim(key))) is not None:
                if not self._may_write():
                    raise _DecisionInvalid("this process is no longer the leader")
                try:
                    await self._write(self._claim(key), body)
                except errors.Conflict:
                    conflicts += 1
                    if conflicts > _MAX_CONFLICTS:
                        raise
                    await self._refresh(key)

        await backoff.retry(
            write, backoff=pauses, sleep=self._sleep, now=self._now, deadline=deadline
        )

    async def _write(self, claim: ResourceClaim, body: Mapping[str, Any]) -> None:
        namespace, name = claim.key
        metadata = {
            **body.get("metadata", {}),
            "uid": claim.uid,
            "resourceVersion": claim.version,
        }
        # A strategic merge adds or removes one consumer; other writes replace their fields.
        by_one = body.keys() == {"status"} and body["status"].keys() == {"reservedFor"}
        kind = verbs.PatchKind.STRATEGIC if by_one else verbs.PatchKind.MERGE
        patched = await self._api.patch(
            resources.RESOURCE_CLAIMS,
            name,
            {**body, "metadata": metadata},
            namespace=namespace,
            kind=kind,
            subresource="status" if "status" in body else None,
        )
        self._store_claim(ResourceClaim.read(patched))

    async def _refresh(self, key: ClaimKey) -> None:
        namespace, name = key
        try:
            current = await self._api.get(resources.RESOURCE_CLAIMS, name, namespace=namespace)
        except errors.Retry:
            return
        self._store_claim(ResourceClaim.read(current))

    def _store_claim(self, claim: ResourceClaim) -> None:
        old = self._store.claims.get(claim.key)
        freed = old is not None and old.allocation is not None and claim.allocation is None
        if self._store.put_claim(claim) and freed:
            self._cluster_event()

    def _claim(self, key: ClaimKey) -> ResourceClaim:
        claim = self._store.claims.get(key)
        if claim is None:
            raise _DecisionInvalid(f"claim {'/'.join(key)} was deleted")
        return claim


_Step = Mapping[str, Any] | None


def _has_claims(placement: Placement) -> bool:
    return placement.pod.spec.resource_claims is not NO_RESOURCE_CLAIMS


def _release(pod: Pod, claim: ResourceClaim, *, deallocate: bool) -> _Step:
    """The write that removes the pod from the claim; `deallocate`: and the allocation."""
    if claim.allocation is None:
        return None
    if deallocate and set(claim.consumers) <= {pod.uid}:
        return {"status": _NO_ALLOCATION}
    if pod.uid in claim.consumers:
        return {"status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]}}
    return None


def _has_devices(claim: ResourceClaim, allocation: ClaimAllocation) -> bool:
    """Whether the claim is allocated with exactly these devices."""
    current = claim.allocation.devices if claim.allocation is not None else ()
    return [item.id for item in current] == [pick.device for pick in allocation.picks]


JsonDict = dict[str, Any]


def allocation_result(
    spec: ClaimSpec, allocation: ClaimAllocation, classes: Mapping[str, DeviceClass]
) -> JsonDict:
    devices: JsonDict = {"results": [_result(pick) for pick in allocation.picks]}
    if config := [*_class_configs(spec, allocation, classes), *_claim_configs(spec, allocation)]:
        devices["config"] = config
    result: JsonDict = {"devices": devices}
    selector = node_selector.to_json(
        node_selector.common(tuple(pick.nodes for pick in allocation.picks))
    )
    if selector is not None:
        result["nodeSelector"] = selector
    return result


def consumer(pod: Pod) -> JsonDict:
    return {"resource": "pods", "name": pod.key.name, "uid": pod.uid}


def _result(pick: DevicePick) -> JsonDict:
    driver, pool, device = pick.device
    result: JsonDict = {
        "request": pick.subrequest.name,
        "driver": driver,
        "pool": pool,
        "device": device,
    }
    if pick.subrequest.admin:
        result["adminAccess"] = True
    if pick.subrequest.tolerations_json:
        result["tolerations"] = orjson.loads(pick.subrequest.tolerations_json)
    return result


def _class_configs(
    spec: ClaimSpec, allocation: ClaimAllocation, classes: Mapping[str, DeviceClass]
) -> Iterable[JsonDict]:
    subrequests = {subrequest.name: subrequest for subrequest in spec.subrequests()}
    users: dict[str, list[str]] = {}  # class -> the chosen subrequests of it
    for chosen in allocation.chosen:
        users.setdefault(subrequests[chosen].class_name, []).append(chosen)
    for name, names in users.items():
        for config in classes[name].config if name in classes else ():
            everywhere = len(names) == len(allocation.chosen)
            yield _config("FromClass", config.opaque, () if everywhere else names)


def _claim_configs(spec: ClaimSpec, allocation: ClaimAllocation) -> Iterable[JsonDict]:
    chosen = {*allocation.chosen, *(name.partition("/")[0] for name in allocation.chosen)}
    for config in spec.config:
        if not config.requests or chosen & set(config.requests):
            yield _config("FromClaim", config.opaque, config.requests)


def _config(source: str, opaque: bytes, requests: Iterable[str]) -> JsonDict:
    config: JsonDict = {"source": source, "opaque": orjson.loads(opaque)}
    if names := list(requests):
        config["requests"] = names
    return config
