"""
A thread that owns an event loop, for programs whose own threads do not run one (the webhook).

    new --start--> running --stop--> stopped
                      |
                      +-- submit, run: coroutines from any other thread

Start it after a fork, never before: a thread does not survive one. Stopping cancels the running
tasks, waits for their end, and closes the loop.
"""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from cluster.errors import ClusterError, Retry

T = TypeVar("T")


class BackgroundLoop:
    """One daemon thread, one loop. Use as a context manager or with `start` and `stop`."""

    def __init__(self, name: str = "cluster") -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        if self.running:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_serve, args=(self._loop,), name=self._name, daemon=True
        )
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin the coroutine; its result arrives in the future."""
        if self._loop is None or not self.running:
            work.close()
            raise ClusterError(f"background loop {self._name!r} is not running; start it first")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Run the coroutine to its end; past `timeout` it is cancelled and `Retry` raised."""
        future = self.submit(work)
        try:
            return future.result(timeout)
        except TimeoutError as exc:
            # A coroutine may raise a TimeoutError of its own: only an unfinished one ran late.
            if future.done() and not future.cancelled():
                raise
            future.cancel()
            raise Retry(f"background loop {self._name!r}: no result in {timeout} s") from exc

    def stop(self, *, timeout: float = 10.0) -> None:
        """Cancel the running tasks and end the thread; safe to call twice."""
        thread, loop = self._thread, self._loop
        if thread is None or loop is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout)
        self._thread = self._loop = None


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()
