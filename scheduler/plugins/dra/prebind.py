"""
Between a plan and its binds: claims get their devices and their pods, written into the API.

    plan ──▶ protect ──▶ allocate and reserve ──▶ bind ──▶ done
             (finalizer)   │ somebody was first      │ refused
                           ▼                         ▼
                         Failed ◀── taken back ──────┘

A claim that is allocated already is only reserved. Every write carries the resourceVersion it was
decided on: whoever wrote in between is read first, and wins where it matters. What was written for
a pod that is not bound is taken back: its reservation, and the allocation too if it was made for
this pod and nobody else is reserved for it or on the way to it.

A process that dies in between leaves claims that are allocated to pods without a node. The next one
sees them as they are: such a pod goes to the node of its devices, and where it fits nowhere for
that reason, `free` takes the devices back. What is written is known to `store` at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import orjson

from cluster import backoff, errors, resources, verbs
from scheduler.background import BackgroundTasks
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

SECONDS: Final = 30.0  # how long the writes for a plan may take
UNDO_SECONDS: Final = 10.0
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
_MOST_CONFLICTS: Final = 20

_NO_DEVICES: Final[Mapping[str, Any]] = {"allocation": None, "reservedFor": None, "devices": None}


class ClaimClient(verbs.Gets, verbs.Patches, Protocol):
    """The verbs that claims are written with."""


class _ChoiceInvalid(Exception):
    """The choice does not hold any more."""


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
        self._api, self._devices, self._store = api, devices, devices.store
        self._now, self._sleep, self._random = now, sleep, random
        self._may_write, self._cluster_event = may_write, cluster_event
        self._freeing: dict[ClaimKey, asyncio.Task[None]] = {}

    def needed(self, placements: Iterable[Placement]) -> bool:
        """Whether any of these pods has claims."""
        return any(one.pod.spec.resource_claims is not NO_RESOURCE_CLAIMS for one in placements)

    async def prepare(self, placements: Sequence[Placement], *, deadline: float) -> PreBindResult:
        """All concurrently, each until the `deadline` (by the clock)."""
        results = await asyncio.gather(*(self._one(one, deadline) for one in placements))
        return PreBindResult(
            tuple(one for one in results if isinstance(one, Placement)),
            tuple(one for one in results if isinstance(one, PreBindFailure)),
        )

    async def undo(self, placements: Iterable[Placement]) -> None:
        """These pods were not bound: take back what was written for them."""
        mine = [one for one in placements if one.pod.spec.resource_claims is not NO_RESOURCE_CLAIMS]
        await asyncio.gather(*(self._undo(one) for one in mine))

    def free(self, pods: Iterable[Pod], why: NoFit) -> None:
        """
        These pods fit nowhere. Where devices that a claim has already keep its pod from other
        nodes, and nobody else uses them, they are given back.
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

    async def _one(self, placement: Placement, deadline: float) -> Placement | PreBindFailure:
        pod = placement.pod
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return placement
        decision = self._devices.decision(pod, placement.node)
        try:
            if decision.lacking or len(decision.claims) != len(claim_rules.keys(pod)):
                raise _ChoiceInvalid(decision.lacking or "the claims changed")
            for key, allocation in decision.claims:
                await self._reserve(pod, key, allocation, deadline)
        except (_ChoiceInvalid, errors.KubeError) as error:
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
            raise _ChoiceInvalid(f"claim {name} got deleted in the meantime")
        if claim.allocation is None:
            if allocation is None:
                raise _ChoiceInvalid(f"claim {name} got deallocated elsewhere in the meantime")
            if FINALIZER not in claim.finalizers:
                return {"metadata": {"finalizers": [*claim.finalizers, FINALIZER]}}
            return {
                "status": {
                    "allocation": allocation_result(claim.spec, allocation, self._store.classes),
                    "reservedFor": [consumer(pod)],
                }
            }
        if allocation is not None and not _same(claim, allocation):
            raise _ChoiceInvalid(f"claim {name} got allocated elsewhere in the meantime")
        if pod.uid in claim.consumers:
            return None
        return {"status": {"reservedFor": [consumer(pod)]}}

    async def _undo(self, placement: Placement) -> None:
        pod = placement.pod
        deadline = self._now() + UNDO_SECONDS
        for key, allocation in self._devices.decision(pod, placement.node).claims:
            others = self._devices.holders(key) - {pod.uid}
            ours = allocation is not None and not others

            def step(claim: ResourceClaim, *, ours: bool = ours) -> _Step:
                return _back(pod, claim, ours=ours)

            await self._quietly(key, step, deadline)

    async def _free(self, claim: ResourceClaim, pod: Pod) -> None:
        def step(found: ResourceClaim) -> _Step:
            return _back(pod, found, ours=True) if found.uid == claim.uid else None

        try:
            await self._quietly(claim.key, step, self._now() + UNDO_SECONDS)
        finally:
            self._freeing.pop(claim.key, None)

    async def _quietly(
        self, key: ClaimKey, step: Callable[[ResourceClaim], "_Step"], deadline: float
    ) -> None:
        """What cannot be taken back now stays with its pod, and is used or freed later."""
        try:
            await self._until_done(key, step, deadline)
        except (_ChoiceInvalid, errors.KubeError) as error:
            logger.warning("claim kept", extra={"claim": "/".join(key), "error": str(error)})

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
                await self._look(key)  # the failed write may have happened
            while (body := step(self._claim(key))) is not None:
                if not self._may_write():
                    raise _ChoiceInvalid("this process does not lead any more")
                try:
                    await self._write(self._claim(key), body)
                except errors.Conflict:
                    conflicts += 1
                    if conflicts > _MOST_CONFLICTS:
                        raise
                    await self._look(key)

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
        # Consumers are added and removed one by one; everything else is replaced.
        by_one = body.keys() == {"status"} and body["status"].keys() == {"reservedFor"}
        kind = verbs.PatchKind.STRATEGIC if by_one else verbs.PatchKind.MERGE
        found = await self._api.patch(
            resources.RESOURCE_CLAIMS,
            name,
            {**body, "metadata": metadata},
            namespace=namespace,
            kind=kind,
            subresource="status" if "status" in body else None,
        )
        self._know(ResourceClaim.read(found))

    async def _look(self, key: ClaimKey) -> None:
        namespace, name = key
        try:
            found = await self._api.get(resources.RESOURCE_CLAIMS, name, namespace=namespace)
        except errors.Retry:
            return
        self._know(ResourceClaim.read(found))

    def _know(self, claim: ResourceClaim) -> None:
        old = self._store.claims.get(claim.key)
        freed = old is not None and old.allocation is not None and claim.allocation is None
        if self._store.put_claim(claim) and freed:
            self._cluster_event()

    def _claim(self, key: ClaimKey) -> ResourceClaim:
        found = self._store.claims.get(key)
        if found is None:
            raise _ChoiceInvalid(f"claim {'/'.join(key)} is gone")
        return found


_Step = Mapping[str, Any] | None


def _back(pod: Pod, claim: ResourceClaim, *, ours: bool) -> _Step:
    """What takes the pod back out of the claim; `ours`: its devices may go with it."""
    if claim.allocation is None:
        return None
    if ours and set(claim.consumers) <= {pod.uid}:
        return {"status": _NO_DEVICES}
    if pod.uid in claim.consumers:
        return {"status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]}}
    return None


def _same(claim: ResourceClaim, allocation: ClaimAllocation) -> bool:
    """Whether the claim has just these devices."""
    has = claim.allocation.devices if claim.allocation is not None else ()
    return [one.id for one in has] == [pick.device for pick in allocation.picks]


JsonDict = dict[str, Any]


def allocation_result(
    spec: ClaimSpec, found: ClaimAllocation, classes: Mapping[str, DeviceClass]
) -> JsonDict:
    devices: JsonDict = {"results": [_result(pick) for pick in found.picks]}
    if config := [*_of_classes(spec, found, classes), *_of_claim(spec, found)]:
        devices["config"] = config
    made: JsonDict = {"devices": devices}
    selector = node_selector.written(
        node_selector.common(tuple(pick.nodes for pick in found.picks))
    )
    if selector is not None:
        made["nodeSelector"] = selector
    return made


def consumer(pod: Pod) -> JsonDict:
    return {"resource": "pods", "name": pod.key.name, "uid": pod.uid}


def _result(pick: DevicePick) -> JsonDict:
    driver, pool, device = pick.device
    found: JsonDict = {
        "request": pick.subrequest.name,
        "driver": driver,
        "pool": pool,
        "device": device,
    }
    if pick.subrequest.admin:
        found["adminAccess"] = True
    if pick.subrequest.tolerations_json:
        found["tolerations"] = orjson.loads(pick.subrequest.tolerations_json)
    return found


def _of_classes(
    spec: ClaimSpec, found: ClaimAllocation, classes: Mapping[str, DeviceClass]
) -> Iterable[JsonDict]:
    subrequests = {subrequest.name: subrequest for subrequest in spec.subrequests()}
    users: dict[str, list[str]] = {}  # class -> the ways that were taken of it
    for way in found.ways:
        users.setdefault(subrequests[way].class_name, []).append(way)
    for name, ways in users.items():
        for config in classes[name].config if name in classes else ():
            yield _config("FromClass", config.opaque, () if len(ways) == len(found.ways) else ways)


def _of_claim(spec: ClaimSpec, found: ClaimAllocation) -> Iterable[JsonDict]:
    allocated_by = {*found.ways, *(way.partition("/")[0] for way in found.ways)}
    for config in spec.config:
        if not config.requests or allocated_by & set(config.requests):
            yield _config("FromClaim", config.opaque, config.requests)


def _config(source: str, opaque: bytes, requests: Iterable[str]) -> JsonDict:
    found: JsonDict = {"source": source, "opaque": orjson.loads(opaque)}
    if names := list(requests):
        found["requests"] = names
    return found
