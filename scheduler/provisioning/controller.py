"""
ProvisioningRequests for gangs that do not fit, as the scheduling cycle meets them.

    unschedulable ──SETTLE──▶ draft ──▶ request ──┬─ provisioned ──▶ Event, gang retried at once
         ▲                                        ├─ failed, expired, revoked ──▶ Event, pause
         │                                        │                       └──▶ the next request
         └── members change: another draft        └─ bound, deleted, over quota ──▶ deleted

While a gang has a request, its pods do not carry `Unschedulable`: an autoscaler would add nodes for
the same pods twice. A provisioned request does not name its nodes, so the scheduler reserves
nothing on them: the first unit in the queue is placed there.

All state is in the API: a new leader watches the existing requests, waits until their gangs have
been planned once, and continues. One background task writes; a failed write is retried after a
pause.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from cluster import backoff, resources
from cluster.informer import EventKind, WatchEvent
from scheduler.errors import ErrorStep
from scheduler.isolation import Pauses
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

TICK_SECONDS: Final = 1.0  # between two checks
SETTLE: Final = 2.0  # seconds: members come in bursts, and preemption may suffice
GRACE_SECONDS: Final = 10.0  # for which members may be missing before a request is deleted
SOON: Final = 120.0  # seconds: a new node does not help a gang that starts within this time
FIRST_RETRY: Final = 2.0
LONGEST_RETRY: Final = 60.0

_NOT_PLANNABLE: Final = frozenset(
    {
        QueueState.FORMING,
        QueueState.GATED,
        QueueState.REFUSED,
        QueueState.SUSPENDED,
        QueueState.QUARANTINED,
    }
)


@dataclass(slots=True)
class _UnplacedGang:
    """A gang that does not fit; `since`: when these became the missing members."""

    pods: tuple[Pod, ...]
    since: float
    draft: RequestDraft | None = None


@dataclass(frozen=True, slots=True)
class _WriteJob:
    gang: GangKey
    step: Step
    unplaced: _UnplacedGang | None


class ProvisioningController:
    """Without a `writer` the controller requests nothing. `is_preempting` tells whether victims
    terminate for a unit."""

    def __init__(
        self,
        writer: RequestWriter | None,
        context: SchedulingContext,
        *,
        is_preempting: Callable[[UnitKey], bool],
        start_reservation: Callable[[UnitKey], StartReservation | None],
    ) -> None:
        self.writer = writer
        self._is_preempting = is_preempting
        self._start_reservation = start_reservation
        self._tasks = context.tasks
        self._isolation = context.isolation
        self._queue = context.queue
        self._record = context.record
        self._metrics = context.metrics
        self._wake = context.wake
        self._with_placeholders = context.reservations.with_placeholders
        self._now = context.now
        self._epoch = context.epoch
        self._kind: resources.Resource | None = None  # while the API server serves it
        self._unplaced: dict[GangKey, _UnplacedGang] = {}
        self._requests: dict[Name, ProvisioningRequest] = {}
        self._deleted: set[str] = set()  # uids of requests whose DELETED event is to come
        self._reported: dict[str, Phase] = {}  # uid of a request -> phase of its last Event
        self._declined: set[GangKey] = set()  # gangs that a request would not help
        self._not_plannable_since: dict[GangKey, float] = {}
        self._not_before: dict[GangKey, tuple[float, float]] = {}  # -> retry time, pause
        self._pauses = Pauses[GangKey]()
        self._ticked_at = float("-inf")
        self._served: bool | None = None  # None: not known yet
        self._task: asyncio.Task[None] | None = None

    # --- watch ---

    def use(self, kind: resources.Resource) -> None:
        """The API server serves the kind in this version."""
        self._kind = kind

    def served(self, served: bool) -> None:
        """Whether the API server serves the kind. Without it pods carry `Unschedulable` again."""
        if not served and self._served is not False:
            logger.warning(
                "cannot request nodes: the API server does not serve ProvisioningRequests; "
                "install their CustomResourceDefinition, or leave --provisioning-class out"
            )
        self._served = served
        if served:
            return
        self._kind = None
        for gang in self._unplaced:
            self._queue.retry(gang, self._now())
        self._unplaced.clear()
        self._wake()

    def on_event(self, event: WatchEvent[ProvisioningRequest | None]) -> None:
        name, request = (event.key[0], event.key[1]), event.object
        if event.kind is EventKind.DELETED:
            deleted = event.old or request
            if deleted is not None:
                self._forget(name, deleted.uid)
        elif request is not None and request.uid not in self._deleted:
            self._requests[name] = request
        self._wake()

    def _forget(self, name: Name, uid: str) -> None:
        self._deleted.discard(uid)
        self._reported.pop(uid, None)
        known = self._requests.get(name)
        if known is not None and known.uid == uid:
            del self._requests[name]

    # --- in the cycle ---

    def misfit(self, unit: Unit, why: NoFit) -> bool:
        """Whether the gang gets a request, and its pods therefore no `Unschedulable` condition."""
        if self._kind is None or not isinstance(unit.key, GangKey):
            return False
        if self._is_preempting(unit.key):
            return bool(self._requests_of(unit.key))
        pods = missing(self._with_placeholders(unit) if unit.leader_first else unit, why)
        if not pods:
            self._unplaced.pop(unit.key, None)
            self._declined.add(unit.key)
            return False
        self._declined.discard(unit.key)
        known = self._unplaced.get(unit.key)
        if known is None or {pod.uid for pod in known.pods} != {pod.uid for pod in pods}:
            self._unplaced[unit.key] = _UnplacedGang(pods, self._now())
        return True

    def tick(self) -> None:
        """Check all requests and all gangs that want one, and start a task that writes."""
        if self._kind is None or self.writer is None or not (self._unplaced or self._requests):
            return
        now = self._now()
        if now < self._ticked_at + TICK_SECONDS:
            return
        self._ticked_at = now
        if self.writing:
            return
        self._report_responses()
        jobs = list(self._write_jobs(now))
        if jobs:
            self._task = self._tasks.start(
                self._write_all(jobs, self.writer, self._kind),
                partial(self._isolation.report, ErrorStep.PROVISIONING, "requests"),
            )
            self._task.add_done_callback(self._done)

    def next_at(self) -> float | None:
        """When `tick` may have something to do."""
        if self._kind is None or not (self._unplaced or self._requests):
            return None
        return self._ticked_at + TICK_SECONDS

    @property
    def writing(self) -> bool:
        return self._task is not None and not self._task.done()

    def describe(self, gang: GangKey) -> list[str]:
        """The requests of the gang, a text for each."""
        texts = []
        for request in self._requests_of(gang):
            message = f": {request.message}" if request.message else ""
            texts.append(f"ProvisioningRequest {request.name[1]} is {request.phase}{message}")
        return texts

    # --- check ---

    def _requests_of(self, gang: GangKey) -> list[ProvisioningRequest]:
        own = (request for request in self._requests.values() if request.gang == gang)
        return sorted(own, key=lambda request: (request.attempt, request.name))

    def _write_jobs(self, now: float) -> Iterator[_WriteJob]:
        requested = {request.gang for request in self._requests.values()}
        self._declined &= requested
        for gang in sorted({*self._unplaced, *requested}):
            try:
                job = self._write_job(gang, now, requested=gang in requested)
            except Exception as error:
                self._pauses.failed(gang, now)
                self._isolation.unit_failed(ErrorStep.PROVISIONING, gang, error)
                continue
            if job is not None:
                yield job

    def _write_job(self, gang: GangKey, now: float, *, requested: bool) -> _WriteJob | None:
        if self._pauses.is_paused(gang, now):
            return None
        state = self._state(gang, now)
        if state is ProvisioningState.DONE:
            self._unplaced.pop(gang, None)
            self._not_plannable_since.pop(gang, None)
            if not requested:
                self._not_before.pop(gang, None)
        if now < self._not_before.get(gang, (0.0, 0.0))[0]:
            return None
        unplaced = self._unplaced.get(gang) if state is ProvisioningState.WANTS else None
        draft = None if unplaced is None else unplaced.draft
        if unplaced is not None and draft is None:
            return _WriteJob(gang, Step(), unplaced)
        digest = "" if draft is None else draft.digest
        step = decide(state, digest, self._requests_of(gang), epoch=self._epoch())
        return _WriteJob(gang, step, unplaced) if step else None

    def _state(self, gang: GangKey, now: float) -> ProvisioningState:
        state = self._queue.state(gang)
        unit = None if state is None else self._queue.unit(gang)
        if unit is None or state is QueueState.OVER_QUOTA:
            return ProvisioningState.DONE
        if state is QueueState.BINDING:
            return ProvisioningState.WAITS
        if unit.bound >= unit.size or gang in self._declined:
            return ProvisioningState.DONE
        if state in _NOT_PLANNABLE:
            since = self._not_plannable_since.setdefault(gang, now)
            done = now >= since + GRACE_SECONDS
            return ProvisioningState.DONE if done else ProvisioningState.WAITS
        self._not_plannable_since.pop(gang, None)
        unplaced = self._unplaced.get(gang)
        if unplaced is None or now < unplaced.since + SETTLE or self._is_preempting(gang):
            return ProvisioningState.WAITS
        reservation = self._start_reservation(gang)
        starts_soon = reservation is not None and reservation.start < self._epoch() + SOON
        return ProvisioningState.WAITS if starts_soon else ProvisioningState.WANTS

    def _report_responses(self) -> None:
        """Record an Event for each new phase, if the gang still waits."""
        for request in sorted(
            self._requests.values(), key=lambda request: (request.name, request.uid)
        ):
            if self._reported.get(request.uid, Phase.PENDING) is request.phase:
                continue
            self._reported[request.uid] = request.phase
            with self._isolation.unit(ErrorStep.PROVISIONING, request.gang):
                self._report_response(request)

    def _report_response(self, request: ProvisioningRequest) -> None:
        unit = self._queue.unit(request.gang)
        if unit is None or not unit.pods or unit.bound >= unit.size:
            return
        name, phase, message = request.name[1], request.phase, request.message
        self._metrics.provisioning.labels(phase.value).inc()
        fields = {"unit": str(request.gang), "phase": phase, "autoscaler_message": message}
        logger.info("received response to request", extra=fields)
        if phase is Phase.PROVISIONED:
            self._record(events.provisioned(unit, name, message))
            self._queue.retry(request.gang, self._now())
            self._wake()
        else:
            retry_at = request.since + pause(request.attempt)
            self._record(events.provisioning_failed(unit, name, message, retry_at))

    # --- write ---

    def _done(self, task: asyncio.Task[None]) -> None:
        self._wake()

    async def _write_all(
        self, jobs: list[_WriteJob], writer: RequestWriter, kind: resources.Resource
    ) -> None:
        for job in jobs:
            try:
                await self._write(job, writer, kind)
            except WriteFailed as exc:
                self._write_failed(job, str(exc))
            except Exception as error:
                self._pauses.failed(job.gang, self._now())
                self._isolation.unit_failed(ErrorStep.PROVISIONING, job.gang, error)
            else:
                self._not_before.pop(job.gang, None)

    async def _write(self, job: _WriteJob, writer: RequestWriter, kind: resources.Resource) -> None:
        unplaced, step = job.unplaced, job.step
        if unplaced is not None and unplaced.draft is None:
            unplaced.draft = await writer.draft(job.gang, classes(unplaced.pods))
            return
        for request in step.delete:
            await self._delete(request, writer, kind)
        if step.attempt and unplaced is not None and unplaced.draft is not None:
            created = await writer.create(unplaced.draft, step.attempt, kind)
            self._requests.setdefault(created.name, created)
            self._report_created(job.gang, unplaced.draft, created, writer.class_name)
        for request in step.delete_after:
            await self._delete(request, writer, kind)

    async def _delete(
        self, request: ProvisioningRequest, writer: RequestWriter, kind: resources.Resource
    ) -> None:
        await writer.delete(request, kind)
        if self._requests.get(request.name) is not None:  # else its DELETED event came already
            self._forget(request.name, request.uid)
            self._deleted.add(request.uid)
        fields = {"unit": str(request.gang), "request": request.name[1]}
        logger.info("deleted request", extra=fields)

    def _report_created(
        self, gang: GangKey, draft: RequestDraft, request: ProvisioningRequest, class_name: str
    ) -> None:
        self._metrics.provisioning.labels(Phase.PENDING.value).inc()
        name = request.name[1]
        logger.info("created request", extra={"unit": str(gang), "request": name})
        unit = self._queue.unit(gang)
        if unit is not None and unit.pods:
            self._record(events.provisioning_requested(unit, name, draft.count, class_name))

    def _write_failed(self, job: _WriteJob, why: str) -> None:
        _, pause = self._not_before.get(job.gang, (0.0, 0.0))
        wait = backoff.doubled(pause, first=FIRST_RETRY, most=LONGEST_RETRY)
        self._not_before[job.gang] = (self._now() + wait, wait)
        logger.warning("cannot write request", extra={"unit": str(job.gang), "error": why})
        unit = self._queue.unit(job.gang)
        if job.unplaced is not None and unit is not None and unit.pods:
            self._record(events.provisioning_request_failed(unit, why))
