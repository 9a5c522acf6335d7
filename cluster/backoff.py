"""
How long to wait before the next attempt: doubling, bounded, with jitter, and no clock of its own.

Jitter draws from the upper half of each step, so that many waiters spread out and none spins.
"""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Call `next()` after each failure and `reset()` after a success."""

    random: Callable[[], float]
    first: float = 0.1
    most: float = 10.0
    failures: int = field(default=0, init=False)

    def next(self) -> float:
        step = min(self.most, self.first * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return step * (0.5 + self.random() / 2.0)

    def reset(self) -> None:
        self.failures = 0
