"""
PreBind of volumes: write the decision for PVCs with delayed binding, and wait for the binding.

    decision ──▶ write ──▶ wait until the PV controller has bound every PVC ──▶ ready
                   │             │ decision undone, object deleted, timeout
                   └─────────────┴────────────────────────────────────────▶ PreBindFailure

    existing volume       its claimRef names the PVC
    volume to provision   the PVC's annotation names the node; a provisioner creates the volume

Every write carries the resourceVersion that the decision is based on: a write by another client
wins, and the pod is planned again. As in kube-scheduler, nothing is rolled back: the controller of
a PVC with a node or a volume binds or frees it, and the next plan uses the state in the API then.
The wait uses the watches behind `store` and never polls the API.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster import backoff, errors, resources, verbs
from policies import vocabulary
from scheduler.isolation import prepare_each
from scheduler.model.label_selector import any_selects
from scheduler.model.plan import Placement, PreBindFailure, PreBindResult
from scheduler.model.pod import Pod
from scheduler.plugins.volumes.binding import VolumeDecision
from scheduler.plugins.volumes.plugin import VolumePlugin
from scheduler.plugins.volumes.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    PvcKey,
)

TIMEOUT_SECONDS: Final = 600.0  # as in kube-scheduler
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
POD_CHECK_SECONDS: Final = 2.0  # how often the wait checks that the pod still exists


class VolumeClient(verbs.Gets, verbs.Patches, Protocol):
    """The verbs for PVs and PVCs."""


class _DecisionInvalid(Exception):
    """The decision is no longer valid."""


@dataclass(frozen=True, slots=True)
class _WrittenVersions:
    """The resourceVersions of our writes: the wait ignores older states."""

    pvcs: dict[PvcKey, str]
    volumes: dict[str, str]


class VolumePreBind:
    """
    `gone` tells whether a pod no longer waits for a node, `may_write` whether this process is the
    leader; `random` in [0, 1) spreads retries over time.
    """

    def __init__(
        self,
        api: VolumeClient,
        volumes: VolumePlugin,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[], float],
        gone: Callable[[Pod], bool] = lambda pod: False,
        may_write: Callable[[], bool] = lambda: True,
        pod_check_seconds: float = POD_CHECK_SECONDS,
    ) -> None:
        self._api = api
        self._volumes = volumes
        self._gone = gone
        self._may_write = may_write
        self._pod_check_seconds = pod_check_seconds
        self._now = now
        self._sleep = sleep
        self._random = random
        self._waiting: dict[PvcKey, set[asyncio.Event]] = {}
        volumes.store.on_pvc.append(self._pvc_changed)

    @property
    def waiting(self) -> int:
        """The number of PVCs that plans wait for."""
        return len(self._waiting)

    def needed(self, placements: Sequence[Placement]) -> bool:
        """Whether a pod needs a write or a wait; False: bind at once."""
        return any(self._volumes.decision(item.pod, item.node) for item in placements)

    async def prepare(self, placements: Sequence[Placement], *, deadline: float) -> PreBindResult:
        """Concurrently for all pods, until the `deadline` of the clock."""
        return await prepare_each(lambda item: self._prepare(item, deadline), placements)

    async def _prepare(self, placement: Placement, deadline: float) -> Placement | PreBindFailure:
        decision = self._volumes.decision(placement.pod, placement.node)
        if not decision:
            return placement
        try:
            if decision.unmatched:
                _, name = decision.unmatched[0]
                raise _DecisionInvalid(
                    f"no volume for claim {name} is left on node {placement.node}"
                )
            written = await self._write(placement, decision, deadline)
            await self._wait(placement, decision, written, deadline)
        except (_DecisionInvalid, errors.KubeError) as error:
            return PreBindFailure(placement, f"binding volumes: {error}")
        return placement

    # --- writing ---

    async def _write(
        self, placement: Placement, decision: VolumeDecision, deadline: float
    ) -> _WrittenVersions:
        written = _WrittenVersions({}, {})
        for key, name in decision.static_bindings:
            pvc, volume = self._pvc(key), self._volume(name)
            if volume.claim_ref is None or volume.claim_ref.uid != pvc.uid:
                patched = await self._set_claim_ref(volume, pvc, deadline)
                written.volumes[name] = patched.version
        for key in decision.provisions:
            pvc = self._pvc(key)
            if pvc.selected_node != placement.node:
                annotated = await self._select_node(pvc, placement.node, deadline)
                written.pvcs[key] = annotated.version
        return written

    async def _set_claim_ref(
        self, volume: PersistentVolume, pvc: PersistentVolumeClaim, deadline: float
    ) -> PersistentVolume:
        namespace, name = pvc.key
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
            "uid": pvc.uid,
            "resourceVersion": pvc.version,
        }
        # A volume that the user reserved stays reserved when the PVC is deleted.
        annotations = {} if volume.claim_ref else {vocabulary.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        body = {
            "metadata": {"resourceVersion": volume.version, "annotations": annotations},
            "spec": {"claimRef": reference},
        }
        obj = await self._patch(
            resources.PERSISTENT_VOLUMES,
            volume.name,
            None,
            body,
            lambda current: _has_claim_ref(PersistentVolume.read(current), pvc),
            deadline,
        )
        return PersistentVolume.read(obj)

    async def _select_node(
        self, pvc: PersistentVolumeClaim, node: str, deadline: float
    ) -> PersistentVolumeClaim:
        namespace, name = pvc.key
        annotations = {vocabulary.SELECTED_NODE_ANNOTATION: node}
        body = {"metadata": {"resourceVersion": pvc.version, "annotations": annotations}}
        obj = await self._patch(
            resources.PERSISTENT_VOLUME_CLAIMS,
            name,
            namespace,
            body,
            lambda current: _has_node(PersistentVolumeClaim.read(current), pvc, node),
            deadline,
        )
        return PersistentVolumeClaim.read(obj)

    async def _patch(
        self,
        resource: resources.Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        is_applied: Callable[[dict[str, Any]], bool],
        deadline: float,
    ) -> dict[str, Any]:
        """Write once, also when a response is lost; raises the API server's error otherwise."""

        async def write() -> dict[str, Any]:
            try:
                return await self._api.patch(resource, name, body, namespace=namespace)
            except errors.Conflict:
                # Another client wrote first, or an earlier attempt whose response was lost.
                current = await self._api.get(resource, name, namespace=namespace)
                if is_applied(current):
                    return current
                raise

        try:
            return await backoff.retry(
                write,
                backoff=backoff.Backoff(
                    self._random, first=FIRST_WAIT, most=LONGEST_WAIT, jitter=backoff.AROUND
                ),
                sleep=self._sleep,
                now=self._now,
                deadline=deadline,
                may_write=self._may_write,
            )
        except backoff.MayNotWrite:
            raise _DecisionInvalid("this process is no longer the leader") from None

    # --- waiting ---

    async def _wait(
        self,
        placement: Placement,
        decision: VolumeDecision,
        written: _WrittenVersions,
        deadline: float,
    ) -> None:
        with self._woken(decision) as changed:
            while not self._bound(placement, decision, written):
                left = deadline - self._now()
                if left <= 0:
                    raise _DecisionInvalid("the volumes were not bound in time")
                changed.clear()
                # A deleted pod sets no event here, so the loop checks for it regularly.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, self._pod_check_seconds)):
                        await changed.wait()

    @contextlib.contextmanager
    def _woken(self, decision: VolumeDecision) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        keys = (*(key for key, _ in decision.static_bindings), *decision.provisions)
        for key in keys:
            self._waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            for key in keys:
                self._waiting[key].discard(changed)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _pvc_changed(self, key: PvcKey) -> None:
        for changed in self._waiting.get(key, ()):
            changed.set()

    def _bound(
        self, placement: Placement, decision: VolumeDecision, written: _WrittenVersions
    ) -> bool:
        """Whether all PVCs are bound; raises when the decision can no longer succeed."""
        if self._gone(placement.pod):
            raise _DecisionInvalid("the pod no longer waits for a node")
        bound = [self._is_bound(placement, *item, written) for item in decision.static_bindings]
        provisioned = [self._is_provisioned(placement, key, written) for key in decision.provisions]
        return all((*bound, *provisioned))

    def _is_bound(
        self, placement: Placement, key: PvcKey, name: str, written: _WrittenVersions
    ) -> bool:
        pvc, volume = self._pvc(key), self._volume(name)
        if _older(volume.version, written.volumes.get(name, "")):
            return False
        self._check_affinity(volume, placement)
        if volume.claim_ref is None or not volume.claim_ref.uid:
            raise _DecisionInvalid(f"volume {name} was taken from claim {key[1]} again")
        if pvc.volume not in ("", name):
            raise _DecisionInvalid(f"claim {key[1]} got volume {pvc.volume} in place of {name}")
        return pvc.bound

    def _is_provisioned(self, placement: Placement, key: PvcKey, written: _WrittenVersions) -> bool:
        pvc = self._pvc(key)
        if _older(pvc.version, written.pvcs.get(key, "")):
            return False
        if pvc.selected_node != placement.node:
            raise _DecisionInvalid(
                f"no volume could be made for claim {key[1]} on node {placement.node}"
            )
        if pvc.volume:
            volume = self._volumes.store.volumes.get(pvc.volume)
            if volume is None:
                return False  # the watch of volumes lags behind
            self._check_affinity(volume, placement)
        return pvc.bound

    def _check_affinity(self, volume: PersistentVolume, placement: Placement) -> None:
        labels = self._volumes.node_labels(placement.node)
        if labels is None:
            raise _DecisionInvalid(f"node {placement.node} was deleted")
        if volume.affinity is not None and not any_selects(volume.affinity, labels):
            raise _DecisionInvalid(f"volume {volume.name} is out of reach of node {placement.node}")

    def _pvc(self, key: PvcKey) -> PersistentVolumeClaim:
        current = self._volumes.store.pvcs.get(key)
        if current is None:
            raise _DecisionInvalid(f"claim {key[1]} was deleted")
        return current

    def _volume(self, name: str) -> PersistentVolume:
        volume = self._volumes.store.volumes.get(name)
        if volume is None:
            raise _DecisionInvalid(f"volume {name} was deleted")
        return volume


def _has_claim_ref(volume: PersistentVolume, pvc: PersistentVolumeClaim) -> bool:
    return volume.claim_ref is not None and volume.claim_ref == (pvc.key, pvc.uid)


def _has_node(current: PersistentVolumeClaim, pvc: PersistentVolumeClaim, node: str) -> bool:
    return current.uid == pvc.uid and current.selected_node == node


def _older(version: str, than: str) -> bool:
    """Whether a state is older than a write; only numeric versions compare."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
