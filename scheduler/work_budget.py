"""
How much CPU time one computation may take in the event loop before it moves to a fork.

The computation calls `check` at points where everything it changed is undone by an exception. In
the event loop the budget is a fraction of the time that a step may take. In a fork, in `kubenexus
simulate` and in tests there is none.
"""

import time
from collections.abc import Callable


class BudgetExceeded(Exception):
    """The computation needs more CPU time than its budget."""


class WorkBudget:
    """`seconds` of CPU time from now on; None: no limit."""

    __slots__ = ("_clock", "_until")

    def __init__(
        self, seconds: float | None, *, clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._until = None if seconds is None else clock() + seconds

    @property
    def limited(self) -> bool:
        return self._until is not None

    def check(self) -> None:
        if self._until is not None and self._clock() > self._until:
            raise BudgetExceeded


UNLIMITED = WorkBudget(None)
