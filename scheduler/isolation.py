"""
An error concerns one object: everything else goes on.

    a step fails ──▶ one log line with its traceback, counted by step ──▶ the caller undoes the step
                                                                         and quarantines its unit
    CorruptState ──▶ ends the process, as `docs/reliability.md` lists

One `try` around the step of one object, never one inside a loop over nodes: a step that succeeds
pays nothing for it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from cluster import backoff
from scheduler.errors import CorruptState, ErrorStep, ModelError
from scheduler.report.metrics import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")
Json = dict[str, Any]

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


class Isolation:
    """Reports errors that are isolated; one per scheduler. `repair` rebuilds what a step left
    half-changed, and raises `CorruptState` if it cannot."""

    def __init__(self, metrics: Metrics, *, repair: Callable[[], None] = lambda: None) -> None:
        self._errors = metrics.errors
        self._repair = repair

    def report(self, step: ErrorStep, about: object, error: Exception) -> None:
        """`about` names the object. Raises `CorruptState` again."""
        if isinstance(error, CorruptState):
            raise error
        self._errors.labels(step.value).inc()
        logger.error(
            "isolated an error", exc_info=error, extra={"step": step.value, "about": str(about)}
        )
        self._repair()

    def reader(
        self,
        read: Callable[[Json], T],
        on_error: Callable[[Json, Exception], None] = lambda obj, error: None,
    ) -> Callable[[Json], T | None]:
        """Decodes objects; one that cannot be read is skipped, so that the watch continues.
        `on_error` hears of it."""

        def read_or_skip(obj: Json) -> T | None:
            try:
                return read(obj)
            except ModelError as error:
                self._errors.labels(ErrorStep.DECODE.value).inc()
                logger.error("skipped unreadable object", extra={"error": str(error)})
                failure: Exception = error
            except Exception as error:
                metadata = obj.get("metadata") or {}
                about = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
                self.report(ErrorStep.DECODE, about, error)
                failure = error
            with self.step(ErrorStep.REPORT, "unreadable object"):
                on_error(obj, failure)
            return None

        return read_or_skip

    @contextmanager
    def step(self, step: ErrorStep, about: object) -> Iterator[None]:
        """An error inside ends the block and nothing else."""
        try:
            yield
        except Exception as error:
            self.report(step, about, error)


class IsolatedPart:
    """
    A part of the scheduler that acts on the time: after an error it pauses, and the others go on.

    `next_at` is when `tick` next has something to do; a part that failed is not due before its
    pause is over, so that it never makes the scheduler spin.
    """

    def __init__(
        self,
        isolation: Isolation,
        step: ErrorStep,
        tick: Callable[[], None],
        *,
        now: Callable[[], float],
        next_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._isolation = isolation
        self._step = step
        self._tick = tick
        self._now = now
        self._next_at = next_at
        self._pause = 0.0
        self._not_before = float("-inf")

    def tick(self) -> None:
        if self._pause and self._now() < self._not_before:
            return
        try:
            self._tick()
        except Exception as error:
            self._failed(error)
        else:
            self._pause = 0.0

    def next_at(self) -> float | None:
        try:
            at = self._next_at()
        except Exception as error:
            self._failed(error)
            at = self._not_before
        if not self._pause:
            return at
        return self._not_before if at is None else max(at, self._not_before)

    def _failed(self, error: Exception) -> None:
        self._pause = backoff.doubled(self._pause, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        self._not_before = self._now() + self._pause
        self._isolation.report(self._step, "tick", error)


def brief(error: BaseException, *, most: int = 200) -> str:
    """The error in one line, for users."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
