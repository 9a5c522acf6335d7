"""
Work beside the cycle: binds, evictions, writes.

    part ──start──▶ task in the TaskGroup of `Scheduler.run` ──an error──▶ `failed` of the part:
                                                               release, report, quarantine the unit
                                     CorruptState, or an error of `failed` ──▶ run ends with it

Every part handles the API server's errors itself, so any other exception is a bug, and concerns the
object that the task is about. Where the cycle is driven without `run`, as the simulator does,
`check` raises what would end it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from scheduler.errors import CorruptState, reraise

Failed = Callable[[Exception], None]


class BackgroundTasks:
    """One per scheduler; each part that starts tasks gets it in its constructor."""

    def __init__(self, failed: Failed = reraise) -> None:
        """`failed` hears of errors of tasks that have no handler of their own."""
        self._failed = failed
        self._group: asyncio.TaskGroup | None = None
        self._ungrouped: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @asynccontextmanager
    async def group(self) -> AsyncIterator[None]:
        """Tasks that are started inside end with it; the first failure ends the others and it."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None

    def start(
        self, work: Coroutine[Any, Any, None], failed: Failed | None = None
    ) -> asyncio.Task[None]:
        """`failed` is called with an error of the work."""
        guarded = _guarded(work, failed or self._failed)
        if self._group is not None:
            return self._group.create_task(guarded)
        task = asyncio.create_task(guarded)
        self._ungrouped.add(task)
        task.add_done_callback(self._ended)
        return task

    def check(self) -> None:
        """Raise the failure of a task that was started outside the group."""
        if self._failure is not None:
            raise self._failure

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ungrouped.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error


async def _guarded(work: Coroutine[Any, Any, None], failed: Failed) -> None:
    try:
        await work
    except CorruptState:
        raise
    except Exception as error:
        failed(error)
