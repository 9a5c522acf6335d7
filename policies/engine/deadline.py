"""
The CPU time that one request may take, checked between expressions.

An expression cannot be interrupted, and its cost budget (`policies.cel.cost`) bounds it. This
bounds their sum: past the deadline each further expression is an error of its rule, whose
failurePolicy decides. The clock is passed in, and counts CPU: a busy machine changes no decision.
"""

from collections.abc import Callable
from typing import Final

from policies.cel.protocol import EvaluationError

CPU_SECONDS: Final = 1.0
"""A third of the time that the API server waits by default, other work of a request aside."""


class CpuDeadline:
    """Starts now; `clock` counts the CPU seconds of this thread."""

    def __init__(self, clock: Callable[[], float], seconds: float = CPU_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    @property
    def exceeded(self) -> bool:
        return self._clock() > self._end

    @property
    def message(self) -> str:
        return f"the request exceeded its CPU budget of {self._seconds:g} s"

    def check(self) -> None:
        """Raises EvaluationError past the deadline."""
        if self.exceeded:
            raise EvaluationError("budget", self.message)


UNLIMITED: Final = CpuDeadline(lambda: 0.0)
"""For callers whom no API server waits for."""
