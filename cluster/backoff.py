"""
Exponential backoff, and the loop that repeats a call with it. No clock of its own.

    exponential   the pause after a number of failures
    doubled       the pause after the previous pause
    Backoff       pauses with jitter, counted
    retry         one call, repeated until it succeeds, is refused, or the deadline comes

Jitter keeps many callers that failed together from coming back together.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeVar

from cluster.errors import ClusterError, KubeError, Retry

T = TypeVar("T")

UPPER_HALF: Final = (0.5, 1.0)
AROUND: Final = (0.5, 1.5)


def exponential(failures: int, *, first: float, most: float) -> float:
    """`first` after no earlier failure, twice as long after each, never above `most`."""
    return min(most, first * 2.0 ** min(failures, 30))


def doubled(pause: float, *, first: float, most: float) -> float:
    """Twice the previous pause, which is 0 before the first; never above `most`."""
    return min(2.0 * pause or first, most)


@dataclass(slots=True)
class Backoff:
    """Call `next()` after each failure and `reset()` after a success.

    `random` in [0, 1] picks the factor of each pause between the two bounds of `jitter`.
    """

    random: Callable[[], float] = lambda: 1.0
    first: float = 0.1
    most: float = 10.0
    jitter: tuple[float, float] = UPPER_HALF
    failures: int = field(default=0, init=False)

    def next(self, error: KubeError | None = None) -> float:
        """Seconds to wait; no less than the Retry-After of `error`."""
        low, high = self.jitter
        step = exponential(self.failures, first=self.first, most=self.most)
        self.failures += 1
        retry_after = error.retry_after if isinstance(error, Retry) else None
        return max(step * (low + self.random() * (high - low)), retry_after or 0.0)

    def reset(self) -> None:
        self.failures = 0


class MayNotWrite(ClusterError):
    """`may_write` denied the call: another process leads."""


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    backoff: Backoff,
    sleep: Callable[[float], Awaitable[object]],
    now: Callable[[], float] = lambda: 0.0,
    deadline: float = inf,
    may_write: Callable[[], bool] = lambda: True,
    is_transient: Callable[[KubeError], bool] = lambda error: isinstance(error, Retry),
) -> T:
    """
    The result of the first call that succeeds.

    `MayNotWrite` is raised where `may_write` denies a call. An error is raised where it is not
    transient, and where the pause after it would reach the `deadline` of the clock `now`.
    """
    while True:
        if not may_write():
            raise MayNotWrite("another process leads")
        try:
            return await call()
        except KubeError as error:
            if not is_transient(error):
                raise
            pause = backoff.next(error)
            if now() + pause >= deadline:
                raise
            await sleep(pause)
