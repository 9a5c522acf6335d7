"""
Between a plan and its binds: late claims get their volumes, written into the API and waited for.

    decision ──▶ write ──▶ wait until the volume controller has bound every claim ──▶ ready
                   │             │ the choice was undone, something is gone, out of time
                   └─────────────┴──────────────────────────────────────────────────▶ Failed

    a volume that is there    its claimRef names the claim
    a volume to be made       the claim's annotation names the node; a provisioner makes it

Every write carries the resourceVersion the choice was made on: whoever wrote in between wins, and
the pod is planned again. Nothing written is taken back, as in kube-scheduler: a claim that keeps
its node or its volume is bound there or freed by its controller, and the next plan goes by what the
API says then. What is waited for is what the watches tell `facts`, never a poll of the API.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster import backoff, errors, resources, verbs
from policies import vocabulary
from scheduler.model.label_selector import any_selects
from scheduler.model.plan import Placement, PreBindFailure, PreBindResult
from scheduler.model.pod import Pod
from scheduler.plugins.volumes.binding import VolumeDecision
from scheduler.plugins.volumes.plugin import VolumePlugin
from scheduler.plugins.volumes.storage_types import (
    ClaimKey,
    PersistentVolume,
    PersistentVolumeClaim,
)

SECONDS: Final = 600.0  # how long volumes may take, as in kube-scheduler
FIRST_WAIT: Final = 0.1
LONGEST_WAIT: Final = 2.0
LOOK_EVERY: Final = 2.0  # seconds between two looks for a pod that went meanwhile


class VolumeClient(verbs.Gets, verbs.Patches, Protocol):
    """The verbs that volumes and their claims are written with."""


class _ChoiceUndone(Exception):
    """The choice does not hold any more."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The versions that the API gave to what was written: older states say nothing about it."""

    claims: dict[ClaimKey, str]
    volumes: dict[str, str]


class VolumePreBind:
    """
    `gone` says whether a pod no longer waits, `may_write` whether this process still leads;
    `random` in [0, 1) spreads retries over time.
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
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._api, self._volumes = api, volumes
        self._gone, self._may_write, self._look_every = gone, may_write, look_every
        self._now, self._sleep, self._random = now, sleep, random
        self._waiting: dict[ClaimKey, set[asyncio.Event]] = {}
        volumes.facts.on_claim.append(self._claim_changed)

    @property
    def waiting(self) -> int:
        """Claims that are waited for."""
        return len(self._waiting)

    def needed(self, placements: Sequence[Placement]) -> bool:
        """Whether anything is to be written or waited for; False: bind at once."""
        return any(self._volumes.decision(one.pod, one.node) for one in placements)

    async def prepare(self, placements: Sequence[Placement], *, deadline: float) -> PreBindResult:
        """All concurrently, each until the `deadline` (by the clock)."""
        results = await asyncio.gather(*(self._one(one, deadline) for one in placements))
        return PreBindResult(
            tuple(one for one in results if isinstance(one, Placement)),
            tuple(one for one in results if isinstance(one, PreBindFailure)),
        )

    async def _one(self, placement: Placement, deadline: float) -> Placement | PreBindFailure:
        decision = self._volumes.decision(placement.pod, placement.node)
        if not decision:
            return placement
        try:
            if decision.lacking:
                _, name = decision.lacking[0]
                raise _ChoiceUndone(f"no volume for claim {name} on node {placement.node} any more")
            written = await self._write(placement, decision, deadline)
            await self._wait(placement, decision, written, deadline)
        except (_ChoiceUndone, errors.KubeError) as error:
            return PreBindFailure(placement, f"binding volumes: {error}")
        return placement

    # --- writing ---

    async def _write(
        self, placement: Placement, decision: VolumeDecision, deadline: float
    ) -> _Written:
        written = _Written({}, {})
        for key, name in decision.given:
            claim, volume = self._claim(key), self._volume(name)
            if volume.claim is None or volume.claim.uid != claim.uid:
                found = await self._give(volume, claim, deadline)
                written.volumes[name] = found.version
        for key in decision.made:
            claim = self._claim(key)
            if claim.selected != placement.node:
                made = await self._select(claim, placement.node, deadline)
                written.claims[key] = made.version
        return written

    async def _give(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, deadline: float
    ) -> PersistentVolume:
        namespace, name = claim.key
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
            "uid": claim.uid,
            "resourceVersion": claim.version,
        }
        # A person who named the claim beforehand keeps the volume when the claim goes.
        notes = {} if volume.claim else {vocabulary.BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
        body = {
            "metadata": {"resourceVersion": volume.version, "annotations": notes},
            "spec": {"claimRef": reference},
        }
        obj = await self._patch(
            resources.PERSISTENT_VOLUMES,
            volume.name,
            None,
            body,
            lambda found: _names(PersistentVolume.read(found), claim),
            deadline,
        )
        return PersistentVolume.read(obj)

    async def _select(
        self, claim: PersistentVolumeClaim, node: str, deadline: float
    ) -> PersistentVolumeClaim:
        namespace, name = claim.key
        notes = {vocabulary.SELECTED_NODE_ANNOTATION: node}
        body = {"metadata": {"resourceVersion": claim.version, "annotations": notes}}
        obj = await self._patch(
            resources.PERSISTENT_VOLUME_CLAIMS,
            name,
            namespace,
            body,
            lambda found: _selects(PersistentVolumeClaim.read(found), claim, node),
            deadline,
        )
        return PersistentVolumeClaim.read(obj)

    async def _patch(
        self,
        resource: resources.Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        as_wanted: Callable[[dict[str, Any]], bool],
        deadline: float,
    ) -> dict[str, Any]:
        """Written once, whatever became of the answers; raises what the API said otherwise."""

        async def write() -> dict[str, Any]:
            try:
                return await self._api.patch(resource, name, body, namespace=namespace)
            except errors.Conflict:
                # Another client wrote first, or an earlier attempt whose response was lost.
                found = await self._api.get(resource, name, namespace=namespace)
                if as_wanted(found):
                    return found
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
            raise _ChoiceUndone("this process does not lead any more") from None

    # --- waiting ---

    async def _wait(
        self, placement: Placement, decision: VolumeDecision, written: _Written, deadline: float
    ) -> None:
        with self._woken(decision) as changed:
            while not self._bound(placement, decision, written):
                left = deadline - self._now()
                if left <= 0:
                    raise _ChoiceUndone("the volumes were not bound in time")
                changed.clear()
                # A pod that goes makes no noise here: it is looked for now and then.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, self._look_every)):
                        await changed.wait()

    @contextlib.contextmanager
    def _woken(self, decision: VolumeDecision) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        keys = (*(key for key, _ in decision.given), *decision.made)
        for key in keys:
            self._waiting.setdefault(key, set()).add(changed)
        try:
            yield changed
        finally:
            for key in keys:
                self._waiting[key].discard(changed)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _claim_changed(self, key: ClaimKey) -> None:
        for changed in self._waiting.get(key, ()):
            changed.set()

    def _bound(self, placement: Placement, decision: VolumeDecision, written: _Written) -> bool:
        """Whether all claims have their volumes; raises when one never will by this choice."""
        if self._gone(placement.pod):
            raise _ChoiceUndone("the pod does not wait for a node any more")
        given = [self._is_given(placement, *one, written) for one in decision.given]
        made = [self._is_made(placement, key, written) for key in decision.made]
        return all((*given, *made))

    def _is_given(self, placement: Placement, key: ClaimKey, name: str, written: _Written) -> bool:
        claim, volume = self._claim(key), self._volume(name)
        if _older(volume.version, written.volumes.get(name, "")):
            return False
        self._check_reach(volume, placement)
        if volume.claim is None or not volume.claim.uid:
            raise _ChoiceUndone(f"volume {name} was taken from claim {key[1]} again")
        if claim.volume not in ("", name):
            raise _ChoiceUndone(f"claim {key[1]} got volume {claim.volume} in place of {name}")
        return claim.bound

    def _is_made(self, placement: Placement, key: ClaimKey, written: _Written) -> bool:
        claim = self._claim(key)
        if _older(claim.version, written.claims.get(key, "")):
            return False
        if claim.selected != placement.node:
            raise _ChoiceUndone(
                f"no volume could be made for claim {key[1]} on node {placement.node}"
            )
        if claim.volume:
            volume = self._volumes.facts.volumes.get(claim.volume)
            if volume is None:
                return False  # the watch of volumes is a little behind
            self._check_reach(volume, placement)
        return claim.bound

    def _check_reach(self, volume: PersistentVolume, placement: Placement) -> None:
        labels = self._volumes.node_labels(placement.node)
        if labels is None:
            raise _ChoiceUndone(f"node {placement.node} is gone")
        if volume.affinity is not None and not any_selects(volume.affinity, labels):
            raise _ChoiceUndone(f"volume {volume.name} is out of reach of node {placement.node}")

    def _claim(self, key: ClaimKey) -> PersistentVolumeClaim:
        found = self._volumes.facts.claims.get(key)
        if found is None:
            raise _ChoiceUndone(f"claim {key[1]} is gone")
        return found

    def _volume(self, name: str) -> PersistentVolume:
        found = self._volumes.facts.volumes.get(name)
        if found is None:
            raise _ChoiceUndone(f"volume {name} is gone")
        return found


def _names(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return volume.claim is not None and volume.claim == (claim.key, claim.uid)


def _selects(found: PersistentVolumeClaim, claim: PersistentVolumeClaim, node: str) -> bool:
    return found.uid == claim.uid and found.selected == node


def _older(version: str, than: str) -> bool:
    """Whether a state is from before a write; what is no number says nothing."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
