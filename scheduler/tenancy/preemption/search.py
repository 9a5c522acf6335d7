"""
Runs victim searches: in the event loop while they are short, in a fork where they take longer.

    search within a budget ──ended──▶ its plan
            │ exceeds the budget
            ▼
    the same search in a fork ──▶ names of victims, for the caller to confirm
            └── no result in time ──▶ abandoned, as if it had found none

One search at a time. While it runs in a fork, planning, binds, watches and lease renewals go on.
Where no fork is given, as in `kubenexus simulate`, every search runs to its end at once.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from scheduler.background import BackgroundTasks
from scheduler.fork import ForkError, ForkPolicy
from scheduler.model.unit import UnitKey
from scheduler.tenancy.preemption.evaluator import VictimNames, names_of
from scheduler.tenancy.preemption.victims import PreemptionPlan
from scheduler.work_budget import UNLIMITED, BudgetExceeded, WorkBudget

logger = logging.getLogger(__name__)

Search = Callable[[WorkBudget], PreemptionPlan | None]


class Progress(Enum):
    IN_FORK = "in a fork"


IN_FORK: Final = Progress.IN_FORK


@dataclass(frozen=True, slots=True)
class ForkedSearch:
    key: UnitKey
    task: asyncio.Task[None]


class SearchRunner:
    """`abandoned` is called for a search whose fork gave no result, `wake` after every fork,
    `failed` for a unit with which an error came up after it."""

    def __init__(
        self,
        tasks: BackgroundTasks,
        *,
        fork: ForkPolicy | None,
        abandoned: Callable[[], None],
        wake: Callable[[], None],
        failed: Callable[[UnitKey, Exception], None],
    ) -> None:
        self._failed = failed
        self._tasks = tasks
        self._fork = fork
        self._abandoned = abandoned
        self._wake = wake
        self._current: ForkedSearch | None = None

    @property
    def busy(self) -> bool:
        """Whether a search runs in a fork."""
        return self._current is not None

    def is_for(self, key: UnitKey) -> bool:
        return self._current is not None and self._current.key == key

    def run(
        self, key: UnitKey, search: Search, later: Callable[[VictimNames | None], None]
    ) -> PreemptionPlan | Literal[Progress.IN_FORK] | None:
        """The plan, or `IN_FORK`: then `later` is called with the names of the victims, or None."""
        try:
            return search(UNLIMITED if self._fork is None else WorkBudget(self._fork.after))
        except BudgetExceeded:
            task = self._tasks.start(
                self._in_fork(key, search, later), lambda error: self._fork_failed(key, error)
            )
            self._current = ForkedSearch(key, task)
            return IN_FORK

    def cancel(self, key: UnitKey) -> None:
        """The unit needs no victims any more."""
        if self._current is not None and self._current.key == key:
            self._current.task.cancel()
            self._current = None

    def _fork_failed(self, key: UnitKey, error: Exception) -> None:
        if self.is_for(key):
            self._current = None
        self._failed(key, error)

    async def _in_fork(
        self, key: UnitKey, search: Search, later: Callable[[VictimNames | None], None]
    ) -> None:
        assert self._fork is not None

        def victims() -> VictimNames | None:
            plan = search(UNLIMITED)
            return None if plan is None else names_of(plan)

        names = None
        try:
            names = await self._fork.run(victims, seconds=self._fork.seconds)
        except ForkError as error:
            self._abandoned()
            logger.warning("victim search abandoned", extra={"unit": str(key), "why": str(error)})
        self._current = None
        later(names)
        self._wake()
