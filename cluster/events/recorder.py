"""
Writes `events.k8s.io/v1` Events in the background, bounded and paced.

    record (any thread) --> correlator --> bounded queue --> writers --> API server
                               |                 |               |
                               +---- dropped, counted by why ----+

`record` returns at once, also while the API server does not answer: a report that does not fit the
queue is dropped and counted. Writers are few and paced, so that Events take no connection from a
bind. The recorder gives an Event up after a few attempts; state belongs in conditions.
"""

import asyncio
import hashlib
import itertools
import logging
import random as randomness
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self

from cluster import verbs
from cluster.backoff import Backoff
from cluster.errors import Conflict, Gone, KubeError, Retry
from cluster.events.correlator import (
    NAME_LIMIT,
    QUIET,
    WORD_LIMIT,
    Correlator,
    EventReport,
    Ref,
    Series,
    cut,
)
from cluster.net.transport import Now, RateLimit, Sleep
from cluster.resources import EVENTS, Obj

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 4


class EventClient(verbs.Creates, verbs.Patches, Protocol):
    """The verbs that Events are written with."""


class Recorder:
    """
    Queues Events and writes them from the loop in which it was entered.

    With `shared`, recorders that report the same about the same object write one Event: each
    computes the same name, and the second finds the Event of the first. The last writer sets the
    count.
    """

    def __init__(
        self,
        client: EventClient,
        *,
        controller: str,
        instance: str,
        capacity: int = 10_000,
        writers: int = 4,
        qps: float | None = 500.0,
        shared: bool = False,
        close_seconds: float = 5.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self.dropped: Counter[str] = Counter()  # reason -> reports
        self.written = 0
        self._client = client
        self._controller = cut(controller, WORD_LIMIT)
        self._instance = cut(instance, WORD_LIMIT)
        self._capacity = capacity
        self._writers = writers
        self._close_seconds = close_seconds
        self._shared = shared
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._random = random
        self._pace = RateLimit(qps, now=now, sleep=sleep)
        self._correlator = Correlator(dropped=self.dropped)
        self._queue: deque[Series] = deque()
        self._lock = threading.Lock()  # guards correlator and queue: reports come from any thread
        self._serial = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._woken = False
        self._closing = False
        self._busy = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._write_all()) for _ in range(self._writers)]
        self._tasks.append(asyncio.create_task(self._release_held()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the queue for at most `close_seconds`; the rest is dropped and counted."""
        with self._lock:
            self._closing = True
            self._queue_held(at=None)
        self._wake.set()
        *writers, release = self._tasks
        release.cancel()
        _, late = await asyncio.wait(writers, timeout=self._close_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.dropped["closed"] += len(self._queue) + self._busy
        self._queue.clear()

    @property
    def waiting(self) -> int:
        """The number of queued Events."""
        return len(self._queue)

    def record(self, report: EventReport) -> None:
        """Queue the report and return; safe from any thread, also without a running loop."""
        with self._lock:
            if self._closing:
                self.dropped["closed"] += 1
                return
            if self._take(report):
                self._nudge()

    def _take(self, report: EventReport) -> bool:
        """Whether a writer has something new to do. The lock is held."""
        now, wall = self._now(), self._clock()
        series = self._correlator.repeat(report, now=now, wall=wall)
        if series is not None:
            return False  # the next round of held series writes it when due
        if len(self._queue) >= self._capacity:
            self.dropped["queue full"] += 1
            return False
        if not self._correlator.affords(report.regarding, now=now):
            self.dropped["object too noisy"] += 1
            return False
        name = _shared_name(report, wall) if self._shared else self._name(report.regarding, wall)
        self._queue.append(self._correlator.begin(report, name, now=now, wall=wall))
        return True

    def _nudge(self) -> None:
        if self._loop is not None and not self._woken and not self._loop.is_closed():
            self._woken = True
            self._loop.call_soon_threadsafe(self._wake.set)

    def _name(self, about: Ref, wall: datetime) -> str:
        """A unique name: the time in microseconds and a serial number."""
        mark = f".{int(wall.timestamp() * 1e6):x}{next(self._serial) & 0xFFFF:04x}"
        return _marked(about, mark)

    def _next(self) -> Series | None:
        with self._lock:
            if self._queue:
                self._busy += 1
                return self._queue.popleft()
            self._woken = False
            self._wake.clear()
            return None

    async def _write_all(self) -> None:
        while True:
            series = self._next()
            if series is None:
                if self._closing:
                    self._wake.set()  # for the other writers
                    return
                await self._wake.wait()
                continue
            await self._pace.wait()
            await self._write(series)
            self._busy -= 1

    async def _release_held(self) -> None:
        """Queue the repeats whose pause is over. Once a second is often enough for a count."""
        while True:
            await self._sleep(1.0)
            with self._lock:
                if self._queue_held(at=self._now()):
                    self._nudge()

    def _queue_held(self, *, at: float | None) -> bool:
        """Queue every held series that is due `at` that time; None: all of them."""
        ready = [s for s in self._correlator.held() if at is None or s.due <= at]
        for series in ready:
            series.queued = True
        self._queue.extend(ready)
        return bool(ready)

    async def _write(self, series: Series) -> None:
        backoff = Backoff(self._random, first=0.2, most=5.0)
        while True:
            count = series.count
            try:
                await self._send(series, count)
            except Retry as error:
                wait = backoff.next(error)
                if backoff.failures >= ATTEMPTS or self._closing:
                    return self._give_up(series, "unreachable")
                await self._sleep(wait)
            except KubeError:
                return self._give_up(series, "refused")
            except Exception as error:  # of this program, about this Event alone
                regarding = series.report.regarding
                about = f"{regarding.kind} {regarding.namespace}/{regarding.name}"
                logger.error("dropped an Event", exc_info=error, extra={"about": about})
                return self._give_up(series, "error")
            else:
                with self._lock:
                    series.wrote(count, self._now())
                    self.written += 1
                return None

    def _give_up(self, series: Series, reason: str) -> None:
        with self._lock:
            self.dropped[reason] += series.count - series.written
            self._correlator.forget(series)

    async def _send(self, series: Series, count: int) -> None:
        namespace = series.report.regarding.namespace or "default"
        if series.written:
            try:
                change = {"series": _series(count, series.last)}
                await self._client.patch(EVENTS, series.name, change, namespace=namespace)
                return
            except Gone:
                pass  # the server deletes Events after an hour; this one is created again
        try:
            await self._client.create(EVENTS, self._body(series, count), namespace=namespace)
        except Conflict as error:
            # An earlier attempt succeeded after all, or another recorder with the same name.
            if not error.exists:
                raise

    def _body(self, series: Series, count: int) -> Obj:
        report = series.report
        body: Obj = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": series.name,
                "namespace": report.regarding.namespace or "default",
            },
            "eventTime": _micro(series.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": report.action,
            "reason": report.reason,
            "note": report.note,
            "type": "Warning" if report.warning else "Normal",
            "regarding": report.regarding.to_json(),
        }
        if report.related is not None:
            body["related"] = report.related.to_json()
        if count > 1:
            body["series"] = _series(count, series.last)
        return body


def _shared_name(report: EventReport, wall: datetime) -> str:
    """The same for every recorder that reports the same at about the same time."""
    digest = hashlib.sha256(repr(report.key).encode()).hexdigest()[:16]
    return _marked(report.regarding, f".{int(wall.timestamp() // QUIET):x}{digest}")


def _marked(about: Ref, mark: str) -> str:
    return about.name[: NAME_LIMIT - len(mark)].rstrip(".-") + mark


def _series(count: int, last: datetime) -> dict[str, Any]:
    return {"count": count, "lastObservedTime": _micro(last)}


def _micro(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
