"""
The scheduler as a process: its options, its wiring, its end.

    connection ──▶ client ──▶ informers (pods, nodes) ──▶ Scheduler ──▶ client (binds, conditions)
                                                              └───────▶ recorder (events)

    start ──▶ watch ──both in sync──▶ [leader] ──▶ plan ──SIGTERM──▶ binds in flight end ──▶ stop

A standby watches too, so that it starts from a warm picture when it becomes leader. A leader that
loses its lease ends with an error: another one may be at work, and a fresh process is the surest
way to hold no belief of the time before.
"""

import asyncio
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from cluster import connection, errors, resources
from cluster.client import Client
from cluster.events import Recorder
from cluster.leases import Elector
from cluster.watch import Informer
from policies import vocabulary

from . import server
from .binder import Binder
from .conditions import Conditions
from .errors import ModelError
from .loop import Scheduler, Telling
from .metrics import Metrics
from .model import Node, Pod
from .queueing import State

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LAST_BINDS: Final = 5.0  # seconds that binds in flight have when the process is asked to end
_CONDITION_WRITERS: Final = 2


@dataclass(frozen=True, slots=True)
class Options:
    kubeconfig: Path | None = None
    """How to reach the API server; None: KUBECONFIG, the pod's own account, ~/.kube/config."""
    port: int = 10259
    """Where health and metrics are served."""
    host: str = "127.0.0.1"
    """The address they are served on."""
    scheduler_name: str = vocabulary.SCHEDULER_NAME
    """Pods whose spec.schedulerName is this are placed."""
    leader_elect: bool = False
    """Run several, of which the one that holds the lease plans and binds."""
    lease_namespace: str = vocabulary.SYSTEM_NAMESPACE
    """Where the lease lives."""


class LeaseLost(Exception):
    """Another process may lead now; this one must end."""


def main(options: Options) -> int:
    """Run until asked to end. 0: as asked; 1: lease lost or port taken; 2: no usable connection."""
    try:
        asyncio.run(run(options))
    except errors.ConfigError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    except LeaseLost as exc:
        logger.error("leadership lost", extra={"error": str(exc)})
        return 1
    except OSError as exc:
        where = f"{options.host}:{options.port}"
        print(f"error: cannot serve on {where}: {exc}; choose another --port", file=sys.stderr)
        return 1
    return 0


async def run(options: Options) -> None:
    """Watch, plan and bind until SIGTERM or SIGINT."""
    found = connection.load(options.kubeconfig)
    stop = _stop_on_signals()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(found, component="scheduler"))
        recorder = await stack.enter_async_context(
            Recorder(client, controller=options.scheduler_name, instance=_identity())
        )
        parts = _Parts(options, client, recorder)
        await stack.enter_async_context(
            server.serve(
                server.create_app(metrics=parts.metrics, missing=parts.missing),
                host=options.host,
                port=options.port,
            )
        )
        await _until(stop, parts)


async def _until(stop: asyncio.Event, parts: "_Parts") -> None:
    """Run the parts until `stop`, or until one of them ends, which is an error."""
    async with _tasks(*parts.background()) as tasks:
        tasks.append(asyncio.create_task(parts.lead(), name="lead"))
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            task.result()
        logger.info("ending", extra={"binding": parts.scheduler.binding})
        await parts.scheduler.finish(_LAST_BINDS)


class _Parts:
    """Everything of one scheduler process, wired."""

    def __init__(self, options: Options, client: Client, recorder: Recorder) -> None:
        self.metrics = Metrics()
        self._options, self._client = options, client
        self._conditions = Conditions(
            client,
            busy=lambda: self.scheduler.binding > 0,
            clock=lambda: datetime.now(UTC),
            sleep=asyncio.sleep,
        )
        binder = Binder(client, now=time.monotonic, sleep=asyncio.sleep, random=random.random)
        self.scheduler = Scheduler(
            name=options.scheduler_name,
            binder=binder,
            telling=Telling(recorder.record, self._conditions),
            metrics=self.metrics,
            now=time.monotonic,
        )
        self._nodes: Informer[Node | None] = Informer(
            client, resources.NODES, keep=_reader(Node.read), on_event=self.scheduler.on_node
        )
        self._pods: Informer[Pod | None] = Informer(
            client, resources.PODS, keep=_reader(Pod.read), on_event=self.scheduler.on_pod
        )
        self._expose(recorder)

    def missing(self) -> str:
        waiting = [
            str(informer.resource)
            for informer in (self._nodes, self._pods)
            if not informer.synced.is_set()
        ]
        return f"waiting for the first list of {' and '.join(waiting)}" if waiting else ""

    def background(self) -> list[Coroutine[Any, Any, None]]:
        writers = [self._conditions.run() for _ in range(_CONDITION_WRITERS)]
        return [self._nodes.run(), self._pods.run(), *writers]

    async def lead(self) -> None:
        """Plan once the picture is whole and, where that is asked for, this process leads."""
        await self._nodes.synced.wait()
        await self._pods.synced.wait()
        logger.info("in sync", extra={"nodes": len(self._nodes), "pods": len(self._pods)})
        if not self._options.leader_elect:
            await self.scheduler.run()
            return
        leading = asyncio.Event()
        elector = Elector(
            self._client,
            name=self._options.scheduler_name,
            namespace=self._options.lease_namespace,
            identity=_identity(),
            on_started=leading.set,
        )
        async with _tasks(elector.run()) as tasks:
            started = asyncio.create_task(leading.wait())
            await asyncio.wait([tasks[0], started], return_when=asyncio.FIRST_COMPLETED)
            started.cancel()
            if leading.is_set():
                tasks.append(asyncio.create_task(self.scheduler.run(), name="plan"))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        raise LeaseLost("the lease was not renewed in time")

    def _expose(self, recorder: Recorder) -> None:
        self.metrics.watch_each(
            "pending_pods",
            "Pods waiting for a node, by the state of their unit.",
            "state",
            [state.value for state in State],
            lambda state: float(self.scheduler.queue.counts()[State(state)]),
        )
        self.metrics.watch(
            "binding_plans", "Plans whose binds are in flight.", lambda: self.scheduler.binding
        )
        self.metrics.watch(
            "nodes", "Nodes in the picture.", lambda: float(len(self.scheduler.cache.snapshot))
        )
        self.metrics.watch(
            "placed_pods", "Pods that hold a node.", lambda: float(len(self.scheduler.cache))
        )
        self.metrics.watch(
            "events_dropped", "Events not written.", lambda: float(sum(recorder.dropped.values()))
        )


def _reader(read: Callable[[dict[str, Any]], T]) -> Callable[[dict[str, Any]], T | None]:
    """An object that cannot be read is reported and left alone; it must not end the watch."""

    def keep(obj: dict[str, Any]) -> T | None:
        try:
            return read(obj)
        except ModelError as exc:
            logger.error("unreadable object", extra={"error": str(exc)})
            return None

    return keep


@asynccontextmanager
async def _tasks(
    *work: Coroutine[Any, Any, None],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that do not outlive the context; more may be added to the list."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _identity() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
