"""
Complete requests between the worker's loop and the decision, fair between namespaces.

    complete request ──a review, small──▶ light ───▶ the loop decides, one after another
                     │                      └─ needs a lookup ─▶ waiting ──▶ a thread
                     ├─a review, large────▶ heavy ──▶ one of two threads, one per namespace
                     └─any other──────────▶ waiting ──▶ a thread; one namespace never has them all

Each queue serves the namespace that has used the least CPU. Large reviews have few threads, because
a decision holds the interpreter: more of them at once would not be faster, and would keep the loop
from its small ones. The bytes of all requests that wait are bounded; beyond, the newest of the
namespace with the most is rejected.
"""

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from webhook.serve.fair_queue import FairQueue, flow_of

logger = logging.getLogger(__name__)

T = TypeVar("T")

LIGHT_BYTES: Final = 128 * 1024  # a larger review would keep the loop from its sockets
HEAVY_AT_ONCE: Final = 2
BYTES_LIMIT: Final = 64 * 1024 * 1024  # of all requests that wait
TURN_SECONDS: Final = 0.005  # of decisions between two looks at the sockets


@dataclass(frozen=True, slots=True)
class Waiting(Generic[T]):
    """A complete request of a connection; `review` is the path and body of a plain review."""

    connection: T
    request: bytes
    review: tuple[str, bytes] | None = None
    flow: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if self.review is not None:
            object.__setattr__(self, "flow", flow_of(self.review[1]))

    @property
    def is_light(self) -> bool:
        return self.review is not None and len(self.review[1]) <= LIGHT_BYTES

    @property
    def is_heavy(self) -> bool:
        return len(self.request) > LIGHT_BYTES


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The response to a request; `keep`: the connection takes another."""

    connection: T
    response: bytes
    keep: bool


class DecisionQueues(Generic[T]):
    """
    `decide` answers in the loop, None: a thread has to. `handle` answers in a thread, and `wake`
    makes the loop call `answers`. Both return the response and whether the connection is kept;
    `failed` is the response where `handle` raises.
    """

    def __init__(
        self,
        threads: int,
        *,
        decide: Callable[[Waiting[T]], tuple[bytes, bool] | None],
        handle: Callable[[Waiting[T]], tuple[bytes, bool]],
        wake: Callable[[], None],
        failed: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        self._decide, self._handle, self._wake = decide, handle, wake
        self._clock, self._cpu = clock, cpu
        self._failed = failed
        self._pool = ThreadPoolExecutor(threads + HEAVY_AT_ONCE, thread_name_prefix="review")
        self._light: FairQueue[Waiting[T]] = FairQueue(at_once=1)
        # Each with how many of its requests threads may have at once.
        self._waiting: FairQueue[Waiting[T]] = FairQueue(at_once=max(1, threads - 1))
        self._heavy: FairQueue[Waiting[T]] = FairQueue(at_once=1)
        self._free = {id(self._waiting): threads, id(self._heavy): HEAVY_AT_ONCE}
        self._done: SimpleQueue[tuple[FairQueue[Waiting[T]], str, float, Answer[T]]] = SimpleQueue()

    @property
    def has_light(self) -> bool:
        return len(self._light) > 0

    def put(self, waiting: Waiting[T]) -> Iterator[T]:
        """Queue a request; the connections of requests that are rejected for it."""
        if waiting.is_light:
            self._light.push(waiting.flow, waiting, len(waiting.request))
        else:
            self._put_to_threads(waiting)
        queues = (self._light, self._waiting, self._heavy)
        while sum(queue.size for queue in queues) > BYTES_LIMIT:
            largest = max(queues, key=lambda queue: queue.size)
            dropped = largest.shed()
            if dropped is None:
                return
            yield dropped.connection

    def decide(self) -> Iterator[Answer[T]]:
        """Decide small reviews, the next ones first, for a few milliseconds."""
        end = self._clock() + TURN_SECONDS
        while (found := self._light.pop()) is not None:
            flow, waiting = found
            started = self._cpu()
            try:
                answer = self._decide(waiting)
            finally:
                self._light.charge(flow, self._cpu() - started)
            if answer is None:
                self._put_to_threads(waiting)
            else:
                yield Answer(waiting.connection, *answer)
            if self._clock() >= end:
                return

    def answers(self) -> Iterator[Answer[T]]:
        """What threads have answered."""
        while True:
            try:
                queue, flow, used, answer = self._done.get_nowait()
            except Empty:
                return
            queue.charge(flow, used)
            self._free[id(queue)] += 1
            self._start(queue)
            yield answer

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _put_to_threads(self, waiting: Waiting[T]) -> None:
        queue = self._heavy if waiting.is_heavy else self._waiting
        queue.push(waiting.flow, waiting, len(waiting.request))
        self._start(queue)

    def _start(self, queue: FairQueue[Waiting[T]]) -> None:
        while self._free[id(queue)] and (found := queue.pop()) is not None:
            self._free[id(queue)] -= 1
            self._pool.submit(self._run, queue, *found)

    def _run(self, queue: FairQueue[Waiting[T]], flow: str, waiting: Waiting[T]) -> None:
        """In a thread: touches no socket and no queue but the one of answers."""
        started = self._cpu()
        try:
            response, keep = self._handle(waiting)
        except BaseException:  # a panic of a native library too: the connection waits for an answer
            logger.exception("request failed in its thread")
            response, keep = self._failed, False
        used = self._cpu() - started
        self._done.put((queue, flow, used, Answer(waiting.connection, response, keep)))
        self._wake()
