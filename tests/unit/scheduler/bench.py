"""A whole scheduler on a table: an API server in memory, watches moved by hand, a clock to set."""

import asyncio
import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cluster.events import correlator
from cluster.informer import EventKind, WatchEvent
from scheduler.actuators import Actuators
from scheduler.bind.binder import Binder
from scheduler.errors import ErrorStep
from scheduler.gang.gates import GateRemover
from scheduler.gang.stale_gang_eviction import StaleGangEvictor
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.options import StaleGangPolicy
from scheduler.plugins.volumes.prebind import VolumeClient, VolumePreBind
from scheduler.report.conditions import ConditionWriter
from scheduler.report.metrics import Metrics
from scheduler.report.reporter import Reporter
from scheduler.scheduler import Scheduler
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.reservation.writer import ReservationClient, ReservationWriter
from tests.unit.scheduler.builders import a_node, pod_json
from tests.unit.scheduler.fake_api import FakeApiServer

NAME = "kubenexus-scheduler"

Record = Callable[[correlator.EventReport], None]


def clock() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def an_owner(uid: str = "job-1", kind: str = "Job") -> dict[str, Any]:
    return {"kind": kind, "name": uid, "uid": uid, "controller": True}


class Bench:
    """A scheduler whose watch events a test delivers by hand; Events and writes are recorded."""

    def __init__(
        self,
        api: FakeApiServer | None = None,
        *,
        policy: StaleGangPolicy = StaleGangPolicy.EVICT,
        storage: VolumeClient | None = None,
        reservations: ReservationClient | None = None,
        record: Callable[[Record], Record] = lambda record: record,
        **more: Any,
    ) -> None:
        """`record` wraps what takes Events."""
        self.api = api or FakeApiServer()
        self.now = 100.0
        self.leading = True
        self.reports: list[correlator.EventReport] = []
        self.conditions = ConditionWriter(
            self.api,
            busy=lambda: self.scheduler.binding > 0,
            clock=clock,
            sleep=self.sleep,
            failed=self._failed(ErrorStep.CONDITION),
        )
        self.metrics = Metrics()
        recorded = record(self.reports.append)
        reporter = Reporter(recorded, self.conditions)
        self.gates = GateRemover(
            self.api,
            may_write=lambda: self.leading,
            on_rejection=reporter.gate_not_removed,
            sleep=self.sleep,
            failed=self._failed(ErrorStep.GATE),
        )
        self.scheduler = Scheduler(
            name=NAME,
            actuators=Actuators(
                volume_prebind=lambda volumes: VolumePreBind(
                    storage or self.api,
                    volumes,
                    now=lambda: self.now,
                    sleep=self.sleep,
                    random=lambda: 0.5,
                    gone=lambda pod: not self.scheduler.waits(pod.uid),
                    may_write=lambda: self.leading,
                ),
                binder=Binder(
                    self.api,
                    now=lambda: self.now,
                    sleep=self.sleep,
                    random=lambda: 0.5,
                    may_write=lambda: self.leading,
                ),
                gates=self.gates,
                gang_evictor=StaleGangEvictor(
                    self.api,
                    scheduler=NAME,
                    policy=policy,
                    record=recorded,
                    may_write=lambda: self.leading,
                    clock=clock,
                    sleep=self.sleep,
                ),
                reporter=reporter,
                reservation_writer=None
                if reservations is None
                else ReservationWriter(
                    reservations,
                    now=lambda: self.now,
                    sleep=self.sleep,
                    may_write=lambda: self.leading,
                ),
                evictor=Evictor(
                    self.api,
                    record=recorded,
                    may_write=lambda: self.leading,
                    sleep=self.sleep,
                ),
            ),
            metrics=self.metrics,
            now=lambda: self.now,
            epoch=lambda: self.now,
            leading=lambda: self.leading,
            known=lambda: self._seen.values(),
            **more,
        )
        self._seen: dict[str, Pod] = {}

    def _failed(self, step: ErrorStep) -> Callable[[Pod, Exception], None]:
        return lambda pod, error: self.scheduler.isolation.report(step, pod.key, error)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def node(self, name: str, **more: Any) -> None:
        self.scheduler.on_node(WatchEvent(EventKind.ADDED, ("", name), a_node(name, **more), None))

    def drop_node(self, name: str) -> None:
        node = Node(name)
        self.scheduler.on_node(WatchEvent(EventKind.DELETED, ("", name), node, node))

    def pod(self, name: str, *, owner: str | None = None, **more: Any) -> None:
        obj = copy.deepcopy(pod_json(name, **more))
        if owner is not None:
            obj["metadata"]["ownerReferences"] = [an_owner(owner)]
        self.api.pods[name] = obj
        self.show(name)

    def show(self, name: str) -> None:
        """The watch shows the pod as the API server has it."""
        pod = Pod.read(self.api.pods[name])
        old = self._seen.get(name)
        kind = EventKind.ADDED if old is None else EventKind.MODIFIED
        self._seen[name] = pod
        self.scheduler.on_pod(WatchEvent(kind, ("ns", name), pod, old))

    def delete(self, name: str) -> None:
        del self.api.pods[name]
        pod = self._seen.pop(name)
        self.scheduler.on_pod(WatchEvent(EventKind.DELETED, ("ns", name), pod, pod))

    def show_all(self) -> None:
        """The watch shows everything as the API server has it, what is gone included."""
        for name in [name for name in self._seen if name not in self.api.pods]:
            pod = self._seen.pop(name)
            self.scheduler.on_pod(WatchEvent(EventKind.DELETED, ("ns", name), pod, pod))
        for name in list(self.api.pods):
            self.show(name)

    async def settle(self, seconds: float = 0.0) -> None:
        """Let time pass and all work that can be done be done."""
        self.now += seconds
        await self.scheduler.drain()
        while self._busy():
            while self._busy():
                await asyncio.sleep(0)
            await self.scheduler.drain()

    def _busy(self) -> bool:
        parts = self.scheduler
        return (
            parts.binding > 0
            or parts.recovery.evicting > 0
            or parts.tenancy.preemption.writing
            or (parts.tenancy.backfill.estimating)
        )

    async def remove_gates(self) -> None:
        """Run the gate writer, then deliver the changed pods."""
        worker = asyncio.create_task(self.gates.run())
        for _ in range(50):
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        self.show_all()

    def events(self, reason: str) -> list[tuple[str, str]]:
        """(pod, note) of the Events with this reason."""
        return [
            (report.regarding.name, report.note)
            for report in self.reports
            if report.reason == reason
        ]

    async def write_conditions(self) -> list[tuple[str, str, str]]:
        """Conditions written so far: (pod, reason, message)."""
        worker = asyncio.create_task(self.conditions.run())
        for _ in range(50):
            await asyncio.sleep(0)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        rows = [
            (name, body["status"]["conditions"][0])
            for name, body in self.api.patches
            if "conditions" in body["status"]
        ]
        return [(name, row["reason"], row["message"]) for name, row in rows]
