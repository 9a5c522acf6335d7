"""
Work beside the cycle: binds, evictions, writes.

    part ──start──▶ task in the TaskGroup of `Scheduler.run` ──fails──▶ run ends with the error

An exception that leaves such a task is a bug, because every part handles the API server's errors
itself. The cache may be wrong by then, so the scheduler ends. Where the cycle is driven without
`run`, as the simulator does, `check` raises the error.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class BackgroundTasks:
    """One per scheduler; each part that starts tasks gets it in its constructor."""

    def __init__(self) -> None:
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

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._group is not None:
            return self._group.create_task(work)
        task = asyncio.create_task(work)
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
