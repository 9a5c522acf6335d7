"""
Gangs that lack room and ask for nodes with a ProvisioningRequest, as the cycle meets them.

    misfit ──still for a moment──▶ draft ──▶ request ──┬─ provisioned ──▶ told, tried at once
       ▲                                               ├─ failed, expired, revoked ──▶ told, paused
       │                                               │                       └──▶ the next one
       └── members come or go: another draft           └─ bound, gone, held back ──▶ deleted

While a gang goes by a request its pods do not carry `Unschedulable`: an autoscaler would bring
nodes for the same pods twice. Which nodes came for whom nobody says, so nothing is kept on them:
whoever is first in the queue is placed there.

All of it is seen from the API: a new leader finds the requests that stand, waits until their gangs
have been planned once, and goes on. Writes happen in one task, behind the cycle; what fails is
tried again after a pause.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cluster import backoff, resources
from cluster.informer import EventKind, WatchEvent
from scheduler.model.gang import GangKey
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.provisioning.decision import ProvisioningState, Step, classes, decide, missing, pause
from scheduler.provisioning.objects import Name, Phase, ProvisioningRequest, RequestDraft
from scheduler.provisioning.writer import RequestWriter, WriteFailed
from scheduler.queueing.entry import QueueState
from scheduler.report import events
from scheduler.tenancy.context import SchedulingContext

logger = logging.getLogger(__name__)

EVERY: Final = 1.0  # seconds between two looks
SETTLE: Final = 2.0  # seconds: members come in bursts, and evictions or a promise may suffice
GRACE: Final = 10.0  # seconds for which members may be missing before a request is deleted
NEAR: Final = 120.0  # seconds: a start promised so soon is not helped by a node that has to be made
FIRST_RETRY: Final = 2.0
LONGEST_RETRY: Final = 60.0

_APART: Final = frozenset(
    {QueueState.FORMING, QueueState.GATED, QueueState.REFUSED, QueueState.SUSPENDED}
)


@dataclass(slots=True)
class _UnplacedGang:
    """A gang that did not fit. `since`: when it came to lack these members."""

    pods: tuple[Pod, ...]
    since: float
    draft: RequestDraft | None = None


@dataclass(frozen=True, slots=True)
class _WriteJob:
    gang: GangKey
    step: Step
    want: _UnplacedGang | None


class ProvisioningController:
    """
    Without a `writer` nothing is ever asked for. `evicting` says whether others go for a unit.
    """

    def __init__(
        self,
        writer: RequestWriter | None,
        context: SchedulingContext,
        *,
        evicting: Callable[[UnitKey], bool],
        start_reservation: Callable[[UnitKey], StartReservation | None],
    ) -> None:
        self.writer = writer
        self.kind: resources.Resource | None = None
        """The kind in the version to be used, while the API server has it."""
        self._tasks = context.tasks
        self._start_reservation = start_reservation
        self._queue, self._evicting, self._record = context.queue, evicting, context.record
        self._metrics, self._wake = context.metrics, context.wake
        self._with_placeholders = context.reservations.with_placeholders
        self._now, self._epoch = context.now, context.epoch
        self._wants: dict[GangKey, _UnplacedGang] = {}
        self._known: dict[Name, ProvisioningRequest] = {}
        self._deleted: set[str] = set()  # uids of requests that are still to be shown as gone
        self._told: dict[str, Phase] = {}  # uid of a request -> what was told about it
        self._declined: set[GangKey] = set()  # gangs that a request would not help
        self._apart: dict[GangKey, float] = {}  # gang -> since when it could not be planned
        self._not_before: dict[GangKey, tuple[float, float]] = {}  # -> when, pause, after a failure
        self._looked_at = float("-inf")
        self._served: bool | None = None  # None: nobody has asked yet
        self._task: asyncio.Task[None] | None = None

    # --- what the watch says ---

    def served(self, served: bool) -> None:
        """Whether the API server has the kind. Without it pods speak for themselves again."""
        if not served and self._served is not False:
            logger.warning(
                "no nodes are asked for: the API server does not serve ProvisioningRequests; "
                "install their CustomResourceDefinition, or leave --provisioning-class out"
            )
        self._served = served
        if served:
            return
        self.kind = None
        for gang in self._wants:
            self._queue.retry(gang, self._now())
        self._wants.clear()
        self._wake()

    def on_event(self, event: WatchEvent[ProvisioningRequest | None]) -> None:
        name, one = (event.key[0], event.key[1]), event.object
        if event.kind is EventKind.DELETED:
            gone = event.old or one
            if gone is not None:
                self._forget(name, gone.uid)
        elif one is not None and one.uid not in self._deleted:
            self._known[name] = one
        self._wake()

    def _forget(self, name: Name, uid: str) -> None:
        self._deleted.discard(uid)
        self._told.pop(uid, None)
        known = self._known.get(name)
        if known is not None and known.uid == uid:
            del self._known[name]

    # --- in the cycle ---

    def misfit(self, unit: Unit, why: NoFit) -> bool:
        """Whether nodes for the unit are asked for here, and so not by its pods' conditions."""
        if self.kind is None or not isinstance(unit.key, GangKey):
            return False
        if self._evicting(unit.key):
            return bool(self._of(unit.key))
        pods = missing(self._with_placeholders(unit) if unit.leader_first else unit, why)
        if not pods:
            self._wants.pop(unit.key, None)
            self._declined.add(unit.key)
            return False
        self._declined.discard(unit.key)
        want = self._wants.get(unit.key)
        if want is None or {pod.uid for pod in want.pods} != {pod.uid for pod in pods}:
            self._wants[unit.key] = _UnplacedGang(pods, self._now())
        return True

    def tick(self) -> None:
        """Look at all requests and at all who want one; what is to be written is, in a task."""
        if self.kind is None or self.writer is None or not (self._wants or self._known):
            return
        now = self._now()
        if now < self._looked_at + EVERY:
            return
        self._looked_at = now
        if self.writing:
            return
        self._tell()
        jobs = list(self._jobs(now))
        if jobs:
            self._task = self._tasks.start(self._work(jobs, self.writer, self.kind))
            self._task.add_done_callback(self._done)

    def next_at(self) -> float | None:
        """When `tick` may have something to do."""
        if self.kind is None or not (self._wants or self._known):
            return None
        return self._looked_at + EVERY

    @property
    def writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def shown(self, gang: GangKey) -> list[str]:
        """What is asked for the gang, in words."""
        found = []
        for one in self._of(gang):
            said = f": {one.said}" if one.said else ""
            found.append(f"ProvisioningRequest {one.name[1]} is {one.phase}{said}")
        return found

    # --- looking ---

    def _of(self, gang: GangKey) -> list[ProvisioningRequest]:
        return sorted(
            (one for one in self._known.values() if one.gang == gang),
            key=lambda one: (one.attempt, one.name),
        )

    def _jobs(self, now: float) -> Iterator[_WriteJob]:
        asking = {one.gang for one in self._known.values()}
        self._declined &= asking
        for gang in sorted({*self._wants, *asking}):
            standing = self._standing(gang, now)
            if standing is ProvisioningState.DONE:
                self._wants.pop(gang, None)
                self._apart.pop(gang, None)
                if gang not in asking:
                    self._not_before.pop(gang, None)
            if now < self._not_before.get(gang, (0.0, 0.0))[0]:
                continue
            want = self._wants.get(gang) if standing is ProvisioningState.WANTS else None
            if want is not None and want.draft is None:
                yield _WriteJob(gang, Step(), want)
                continue
            digest = want.draft.digest if want is not None and want.draft is not None else ""
            step = decide(standing, digest, self._of(gang), epoch=self._epoch())
            if step:
                yield _WriteJob(gang, step, want)

    def _standing(self, gang: GangKey, now: float) -> ProvisioningState:
        state = self._queue.state(gang)
        unit = None if state is None else self._queue.unit(gang)
        if unit is None or state is QueueState.OVER_QUOTA:
            return ProvisioningState.DONE
        if state is QueueState.BINDING:
            return ProvisioningState.WAITS
        if unit.bound >= unit.size or gang in self._declined:
            return ProvisioningState.DONE
        if state in _APART:
            since = self._apart.setdefault(gang, now)
            return ProvisioningState.DONE if now >= since + GRACE else ProvisioningState.WAITS
        self._apart.pop(gang, None)
        want = self._wants.get(gang)
        if want is None or now < want.since + SETTLE or self._evicting(gang):
            return ProvisioningState.WAITS
        promise = self._start_reservation(gang)
        near = promise is not None and promise.start < self._epoch() + NEAR
        return ProvisioningState.WAITS if near else ProvisioningState.WANTS

    def _tell(self) -> None:
        """Each answer once, and only to a gang that waits for it."""
        for one in sorted(self._known.values(), key=lambda one: (one.name, one.uid)):
            if self._told.get(one.uid, Phase.ASKED) is one.phase:
                continue
            self._told[one.uid] = one.phase
            unit = self._queue.unit(one.gang)
            if unit is None or not unit.pods or unit.bound >= unit.size:
                continue
            self._metrics.provisioning.labels(one.phase.value).inc()
            logger.info(
                "answered", extra={"unit": str(one.gang), "phase": one.phase, "said": one.said}
            )
            if one.phase is Phase.PROVISIONED:
                self._record(events.provisioned(unit, one.name[1], one.said))
                self._queue.retry(one.gang, self._now())
                self._wake()
            else:
                again = one.since + pause(one.attempt)
                self._record(events.provisioning_failed(unit, one.name[1], one.said, again))

    # --- writing ---

    def _done(self, task: asyncio.Task[None]) -> None:
        self._wake()

    async def _work(
        self, jobs: list[_WriteJob], writer: RequestWriter, kind: resources.Resource
    ) -> None:
        for job in jobs:
            try:
                await self._do(job, writer, kind)
            except WriteFailed as exc:
                self._failed(job, str(exc))
            else:
                self._not_before.pop(job.gang, None)

    async def _do(self, job: _WriteJob, writer: RequestWriter, kind: resources.Resource) -> None:
        want, step = job.want, job.step
        if want is not None and want.draft is None:
            want.draft = await writer.draft(job.gang, classes(want.pods))
            return
        for one in step.drop:
            await self._drop(one, writer, kind)
        if step.make and want is not None and want.draft is not None:
            made = await writer.make(want.draft, step.make, kind)
            self._known.setdefault(made.name, made)
            self._requested(job.gang, want.draft, made, writer.class_name)
        for one in step.drop_after:
            await self._drop(one, writer, kind)

    async def _drop(
        self, one: ProvisioningRequest, writer: RequestWriter, kind: resources.Resource
    ) -> None:
        await writer.drop(one, kind)
        if self._known.get(one.name) is not None:  # else the watch has shown it gone already
            self._forget(one.name, one.uid)
            self._deleted.add(one.uid)
        logger.info("request deleted", extra={"unit": str(one.gang), "request": one.name[1]})

    def _requested(
        self, gang: GangKey, draft: RequestDraft, made: ProvisioningRequest, class_name: str
    ) -> None:
        self._metrics.provisioning.labels(Phase.ASKED.value).inc()
        logger.info("nodes asked for", extra={"unit": str(gang), "request": made.name[1]})
        unit = self._queue.unit(gang)
        if unit is not None and unit.pods:
            report = events.provisioning_requested(unit, made.name[1], draft.count, class_name)
            self._record(report)

    def _failed(self, job: _WriteJob, why: str) -> None:
        _, pause = self._not_before.get(job.gang, (0.0, 0.0))
        wait = backoff.doubled(pause, first=FIRST_RETRY, most=LONGEST_RETRY)
        self._not_before[job.gang] = (self._now() + wait, wait)
        logger.warning("request not written", extra={"unit": str(job.gang), "error": why})
        unit = self._queue.unit(job.gang)
        if job.want is not None and unit is not None and unit.pods:
            self._record(events.provisioning_request_failed(unit, why))
