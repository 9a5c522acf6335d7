"""
Taking back what pods were told: that a node is kept for them. In the background, each in turn.

Pods are told by whoever evicts for them (`evicting`), and a successor goes by it: what is kept no
more must not stand there.
"""

import asyncio
from collections.abc import Callable, Sequence

from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.victims import Occupant


class Nominating:
    """`done` hears of each task that ended."""

    def __init__(self, evictor: Evictor | None, done: Callable[[asyncio.Task[None]], None]) -> None:
        self._evictor, self._done = evictor, done
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def clear(self, places: Sequence[Occupant], *, after: asyncio.Task[None] | None = None) -> None:
        """The pods are promised no node any more; once `after`, which may tell them so, ended."""
        if self._evictor is not None:
            waits = after if after is not asyncio.current_task() else None
            task = asyncio.create_task(self._clear(self._evictor, places, waits))
            self._tasks.add(task)
            task.add_done_callback(self._cleared)

    async def _clear(
        self, evictor: Evictor, places: Sequence[Occupant], after: asyncio.Task[None] | None
    ) -> None:
        if after is not None:
            await asyncio.wait([after])
        await evictor.nominate([(one.pod, "") for one in places], wanted=lambda: True)

    def _cleared(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._done(task)
