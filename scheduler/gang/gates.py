"""
Removes the gang scheduling gate when all members of the gang exist.

    complete gang ──remove──▶ pending ──writer──▶ PATCH (tests uid and gate) ──▶ watch shows the pod
                                 ▲                   │                           without its gate
                                 └──── pause ────────┘ no response, or not authorized

Pods are created behind `scheduling.kubenexus.io/gang` where the tenant's policy says so. A pod
counts as a member while that is its only gate; with another gate it does not. The patch removes
this gate only, and only from the pod with that uid. The pod is planned after the watch has shown it
without gates. A patch that the API server rejects is reported and dropped: the queue returns the
pod again while its gate exists.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from cluster import denials, errors, resources, verbs
from policies import vocabulary
from scheduler.model.pod import Pod

logger = logging.getLogger(__name__)

_RETRY_AFTER: Final = 1.0
_RETRY_UNAUTHORIZED_AFTER: Final = 5.0

PATCH: Final[Sequence[Mapping[str, str]]] = (
    {"op": "test", "path": "/spec/schedulingGates/0/name", "value": vocabulary.GANG_GATE},
    {"op": "remove", "path": "/spec/schedulingGates/0"},
)


class GateRemover:
    """Start `run()` as one task per writer, and cancel the tasks to stop.

    `may_write` is checked before each write; `on_rejection` gets the error of the API server,
    `failed` an error of this program: the queue returns the pod again.
    """

    def __init__(
        self,
        api: verbs.Patches,
        *,
        may_write: Callable[[], bool],
        on_rejection: Callable[[Pod, str], None],
        sleep: Callable[[float], Awaitable[None]],
        failed: Callable[[Pod, Exception], None],
    ) -> None:
        self._failed = failed
        self._api = api
        self._may_write = may_write
        self._on_rejection = on_rejection
        self._sleep = sleep
        self._pending: dict[str, Pod] = {}  # uid -> pod whose gate is to be removed
        self._writing: set[str] = set()
        self._work = asyncio.Event()

    def remove(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            if pod.uid not in self._writing:
                self._pending[pod.uid] = pod
                self._work.set()

    def drop(self, uid: str) -> None:
        """The pod is gone, has no gate, or keeps its gate."""
        self._pending.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            if not self._pending or not self._may_write():
                self._work.clear()
                continue
            uid = next(iter(self._pending))
            pod = self._pending.pop(uid)
            self._writing.add(uid)
            try:
                pause = await self._write(pod)
            finally:
                self._writing.discard(uid)
            if pause:
                self._pending.setdefault(uid, pod)
                await self._sleep(pause)
                self._work.set()

    async def _write(self, pod: Pod) -> float:
        """Try once; returns the seconds until the next try, 0 if there is none."""
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
            return _RETRY_AFTER
        except (errors.Gone, errors.Conflict):
            return 0.0
        except errors.KubeError as error:
            if error.status == 422:
                # A test of the patch failed: gate or pod have changed, as the watch will show.
                return 0.0
            logger.warning(
                "cannot remove the gang gate", extra={"pod": str(pod.key), "error": str(error)}
            )
            self._on_rejection(pod, str(error))
            return _RETRY_UNAUTHORIZED_AFTER if denials.of_this_program(error) else 0.0
        except Exception as error:
            self._failed(pod, error)
        return 0.0
