"""
Lifting the gang gate once the whole gang exists.

    complete gang ──lift──▶ wanted ──writer──▶ PATCH (uid and gate tested) ──▶ the watch shows the
                              ▲                   │                            pod without its gate
                              └──── pause ────────┘ no answer, or not let in

A pod is created behind `scheduling.kubenexus.io/gang` where its tenant's policy asks for it. It
counts as a member while that is its only gate; a gate of anybody else keeps it out altogether. The
patch removes our gate and no other, and only of the very pod that was meant. Nothing is planned
with a pod before the watch has shown it without gates. What the API server refuses is reported and
dropped: the queue asks again while the gate is still there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from cluster import denials, errors, resources, verbs
from policies import vocabulary
from scheduler.model.pod import Pod

logger = logging.getLogger(__name__)

_AFTER_FAILURE: Final = 1.0
_AFTER_NO_ENTRY: Final = 5.0

PATCH: Final[Sequence[Mapping[str, str]]] = (
    {"op": "test", "path": "/spec/schedulingGates/0/name", "value": vocabulary.GANG_GATE},
    {"op": "remove", "path": "/spec/schedulingGates/0"},
)


class GateRemover:
    """Start `run()` as a task, as often as writers are wanted, and cancel it to stop.

    `may_write` is asked before each write; `on_refusal` hears what the API server said.
    """

    def __init__(
        self,
        api: verbs.Patches,
        *,
        may_write: Callable[[], bool],
        on_refusal: Callable[[Pod, str], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self.lifted = 0
        self._api, self._may_write, self._on_refusal = api, may_write, on_refusal
        self._sleep = sleep
        self._wanted: dict[str, Pod] = {}  # uid -> pod whose gate is to go
        self._writing: set[str] = set()
        self._work = asyncio.Event()

    def lift(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.uid not in self._writing:
                self._wanted[pod.uid] = pod
                self._work.set()

    def drop(self, uid: str) -> None:
        """The pod is gone, has no gate any more, or is not to lose it."""
        self._wanted.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            if not self._wanted or not self._may_write():
                self._work.clear()
                continue
            uid = next(iter(self._wanted))
            pod = self._wanted.pop(uid)
            self._writing.add(uid)
            try:
                pause = await self._write(pod)
            finally:
                self._writing.discard(uid)
            if pause:
                self._wanted.setdefault(uid, pod)
                await self._sleep(pause)
                self._work.set()

    async def _write(self, pod: Pod) -> float:
        """Try once; after how many seconds to try again, 0 when there is nothing more to do."""
        guard = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
        try:
            await self._api.patch(
                resources.PODS,
                pod.key.name,
                [guard, *PATCH],
                namespace=pod.key.namespace,
                kind=verbs.PatchKind.JSON,
            )
        except errors.Retry:
            return _AFTER_FAILURE
        except (errors.Gone, errors.Conflict):
            return 0.0
        except errors.KubeError as error:
            if error.status == 422:
                # A test failed: the gate or the pod is another by now, and the watch will say so.
                return 0.0
            logger.warning("gate not lifted", extra={"pod": str(pod.key), "error": str(error)})
            self._on_refusal(pod, str(error))
            return _AFTER_NO_ENTRY if denials.of_this_program(error) else 0.0
        self.lifted += 1
        return 0.0
