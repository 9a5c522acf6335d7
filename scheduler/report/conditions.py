"""
Writes the PodScheduled condition of waiting pods, behind binds and only when it changes.

    write ──▶ pending (the latest of each pod) ──worker, when no bind is in flight──▶ PATCH

    Unschedulable           another node would help: autoscalers act on this reason
    WaitingForPodGroup      the gang is still forming
    QuotaExceeded           the quota of the tenant is used up
    BindingRefused          the API server rejects the binding, whichever the node
    InvalidRequest          no node can satisfy the pod's requests
    SchedulerError          the scheduler itself failed on the pod or its gang, and tries it later
    WaitingForProvisioning  a ProvisioningRequest asks for nodes for the gang, so autoscalers must
                            not add others for its pods

A failed write is dropped when the pod is gone or the API server rejects it, and retried otherwise;
a newer condition of the pod replaces it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from cluster import denials, errors, resources, verbs
from policies.text import timestamp
from scheduler.model.pod import Pod, ScheduledCondition

UNSCHEDULABLE: Final = "Unschedulable"
WAITING: Final = "WaitingForPodGroup"
REFUSED: Final = "BindingRefused"
QUOTA: Final = "QuotaExceeded"
INVALID: Final = "InvalidRequest"
PROVISIONING: Final = "WaitingForProvisioning"
ERROR: Final = "SchedulerError"  # PodReasonSchedulerError of the core API

_PAUSE: Final = 0.05
_MAX_PAUSES: Final = 20  # pauses after which a condition is written although binds are in flight
_AFTER_FAILURE: Final = 1.0


class ConditionWriter:
    """Start `run()` as one task per writer, and cancel the tasks to stop. `failed` hears of
    errors of this program with one pod, whose condition is dropped until it changes."""

    def __init__(
        self,
        api: verbs.PatchesStatus,
        *,
        busy: Callable[[], bool],
        clock: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
        failed: Callable[[Pod, Exception], None],
    ) -> None:
        self._api = api
        self._failed = failed
        self._busy = busy
        self._clock = clock
        self._sleep = sleep
        self._pending: dict[str, tuple[Pod, ScheduledCondition]] = {}  # by pod uid
        self._written: dict[str, ScheduledCondition] = {}  # by pod uid; a write in flight included
        self._work = asyncio.Event()

    def write(self, pod: Pod, reason: str, message: str) -> None:
        """Queue the condition of a pod without a node, unless the pod has it already."""
        condition = ScheduledCondition("False", reason, message)
        if self._written.get(pod.uid, pod.condition) == condition:
            self._pending.pop(pod.uid, None)
            return
        self._pending[pod.uid] = (pod, condition)
        self._work.set()

    def drop(self, uid: str) -> None:
        """The pod is gone or has a node: its condition is not written any more."""
        self._pending.pop(uid, None)
        self._written.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            await self._behind_binds()
            if not self._pending:
                self._work.clear()
                continue
            uid = next(iter(self._pending))
            pod, condition = self._pending.pop(uid)
            await self._write(pod, condition)

    async def _behind_binds(self) -> None:
        for _ in range(_MAX_PAUSES):
            if not self._busy():
                return
            await self._sleep(_PAUSE)

    async def _write(self, pod: Pod, condition: ScheduledCondition) -> None:
        before = self._written.get(pod.uid, pod.condition)
        self._written[pod.uid] = condition
        try:
            await self._api.patch_status(
                resources.PODS,
                pod.key.name,
                body(pod, condition, changed=before, at=self._clock()),
                namespace=pod.key.namespace,
                kind=verbs.PatchKind.STRATEGIC,
            )
        except errors.KubeError as error:
            if not (isinstance(error, errors.Retry) or denials.of_this_program(error)):
                # The pod is gone, another one has its name, or the API server rejects the patch.
                self.drop(pod.uid)
                return
            self._written.pop(pod.uid, None)
            self._pending.setdefault(pod.uid, (pod, condition))
            await self._sleep(_AFTER_FAILURE)
        except Exception as error:
            self.drop(pod.uid)
            self._failed(pod, error)


def body(
    pod: Pod, condition: ScheduledCondition, *, changed: ScheduledCondition | None, at: datetime
) -> dict[str, Any]:
    """A strategic merge patch; its uid makes the API server reject another pod of that name."""
    row: dict[str, Any] = {
        "type": "PodScheduled",
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if changed is None or changed.status != condition.status:
        row["lastTransitionTime"] = timestamp(at)
    return {"metadata": {"uid": pod.uid}, "status": {"conditions": [row]}}
