"""
The PodScheduled condition of pods that wait, written behind binds and only when it changes.

    tell ──▶ wanted (one for each pod, the latest) ──worker, when no bind is in flight──▶ PATCH

`Unschedulable` is a promise to autoscalers that another node would help, so a gang that is still
forming carries `WaitingForPodGroup` instead, one that its tenant's quota holds back
`QuotaExceeded`, and a pod that the API server refuses to bind, on whatever node, `BindingRefused`.
What asks for something that no node could honour carries `InvalidRequest`, and a gang for which
nodes are asked for as a whole `WaitingForProvisioning`: no second ones are to come for its pods.
A write that fails is given up when the pod is gone or the server refuses, and tried again
otherwise; what changed meanwhile replaces it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from cluster import denials, errors, resources, verbs
from scheduler.model.pod import Pod, ScheduledCondition

UNSCHEDULABLE: Final = "Unschedulable"
WAITING: Final = "WaitingForPodGroup"
REFUSED: Final = "BindingRefused"
QUOTA: Final = "QuotaExceeded"
INVALID: Final = "InvalidRequest"
PROVISIONING: Final = "WaitingForProvisioning"

_PAUSE: Final = 0.05
_PATIENCE: Final = 20  # pauses after which a condition is written although binds are in flight
_AFTER_FAILURE: Final = 1.0


class ConditionWriter:
    """Start `run()` as a task, as often as writers are wanted, and cancel it to stop."""

    def __init__(
        self,
        api: verbs.PatchesStatus,
        *,
        busy: Callable[[], bool],
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.written = 0
        self._api, self._busy, self._clock, self._sleep = api, busy, clock, sleep
        self._wanted: dict[
            str, tuple[Pod, ScheduledCondition]
        ] = {}  # pod uid -> what it should say
        self._told: dict[
            str, ScheduledCondition
        ] = {}  # pod uid -> what was last written or is being
        self._work = asyncio.Event()

    def tell(self, pod: Pod, reason: str, message: str) -> None:
        """Say why the pod has no node; nothing is written when it says so already."""
        condition = ScheduledCondition("False", reason, message)
        if self._told.get(pod.uid, pod.condition) == condition:
            self._wanted.pop(pod.uid, None)
            return
        self._wanted[pod.uid] = (pod, condition)
        self._work.set()

    def drop(self, uid: str) -> None:
        """The pod is gone or has a node: nothing more is to be said."""
        self._wanted.pop(uid, None)
        self._told.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await self._behind_binds()
            if not self._wanted:
                self._work.clear()
                continue
            uid = next(iter(self._wanted))
            pod, condition = self._wanted.pop(uid)
            await self._write(pod, condition)

    async def _behind_binds(self) -> None:
        for _ in range(_PATIENCE):
            if not self._busy():
                return
            await self._sleep(_PAUSE)

    async def _write(self, pod: Pod, condition: ScheduledCondition) -> None:
        before = self._told.get(pod.uid, pod.condition)
        self._told[pod.uid] = condition
        try:
            await self._api.patch_status(
                resources.PODS,
                pod.key.name,
                body(pod, condition, changed=before, at=self._clock()),
                namespace=pod.key.namespace,
                kind=verbs.PatchKind.STRATEGIC,
            )
            self.written += 1
        except errors.KubeError as error:
            if not (isinstance(error, errors.Retry) or denials.of_this_program(error)):
                # Gone, replaced by a namesake, or refused for good: nobody is left to be told.
                self.drop(pod.uid)
                return
            self._told.pop(pod.uid, None)
            self._wanted.setdefault(pod.uid, (pod, condition))
            await self._sleep(_AFTER_FAILURE)


def body(
    pod: Pod, condition: ScheduledCondition, *, changed: ScheduledCondition | None, at: datetime
) -> dict[str, Any]:
    """A strategic merge patch; the uid in it makes the server refuse a namesake."""
    row: dict[str, Any] = {
        "type": "PodScheduled",
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if changed is None or changed.status != condition.status:
        row["lastTransitionTime"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"uid": pod.uid}, "status": {"conditions": [row]}}
