"""
An error concerns one object: everything else goes on.

    a step fails ──▶ one log line with its traceback, counted by step ──▶ the caller undoes the step
                                                                         and quarantines its unit
    CorruptState ──▶ ends the process, as `docs/reliability.md` lists

One `try` around the step of one object, never one inside a loop over nodes: a step that succeeds
pays nothing for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeVar

from cluster import backoff
from scheduler.errors import CorruptState, ErrorStep, ModelError
from scheduler.model.plan import Placement, PreBindFailure, PreBindResult
from scheduler.model.pod import Pod
from scheduler.model.unit import UnitKey
from scheduler.report.metrics import Metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")
Json = dict[str, Any]

FIRST_PAUSE: Final = 1.0  # seconds, of a part
LONGEST_PAUSE: Final = 60.0
FIRST_RETRY: Final = 5.0  # seconds, of one object
LONGEST_RETRY: Final = 300.0


class Quarantine(Protocol):
    def __call__(self, key: UnitKey, error: Exception, pods: Sequence[Pod] = ()) -> None:
        """Leave the unit alone for a while; `pods` of it wait again."""
        ...


class Isolation:
    """
    What becomes of errors; one per scheduler.

    `repair` rebuilds what a step left half-changed, and raises `CorruptState` if it cannot;
    `quarantine` puts a unit into quarantine.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        repair: Callable[[], None] = lambda: None,
        quarantine: Quarantine = lambda key, error, pods=(): None,
    ) -> None:
        self._errors = metrics.errors
        self._repair = repair
        self._quarantine = quarantine

    def unit_failed(
        self, step: ErrorStep, key: UnitKey, error: Exception, pods: Sequence[Pod] = ()
    ) -> None:
        """The error concerns this unit; `pods` of it wait again."""
        self.report(step, key, error)
        self._quarantine(key, error, pods)

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

    @contextmanager
    def unit(self, step: ErrorStep, key: UnitKey) -> Iterator[None]:
        """An error inside ends the block, and the unit is quarantined."""
        try:
            yield
        except Exception as error:
            self.unit_failed(step, key, error)


class NoIsolation(Isolation):
    """Every error ends the program, as a simulation does: its figures would leave the unit out."""

    def __init__(self) -> None:
        super().__init__(Metrics())

    def report(self, step: ErrorStep, about: object, error: Exception) -> None:
        raise error


class Pauses(Generic[K]):
    """Objects on which a step failed, and how long each is left alone: 5 s, doubled up to 5 min."""

    def __init__(self) -> None:
        self._pauses: dict[K, tuple[float, float]] = {}  # -> until when, how long

    def failed(self, key: K, now: float) -> None:
        _, pause = self._pauses.get(key, (0.0, 0.0))
        pause = backoff.doubled(pause, first=FIRST_RETRY, most=LONGEST_RETRY)
        for old in [old for old, (until, _) in self._pauses.items() if until + LONGEST_RETRY < now]:
            del self._pauses[old]
        self._pauses[key] = (now + pause, pause)

    def is_paused(self, key: K, now: float) -> bool:
        return bool(self._pauses) and now < self._pauses.get(key, (0.0, 0.0))[0]

    def next_at(self, now: float) -> float | None:
        """When the next pause is over."""
        return min((until for until, _ in self._pauses.values() if until > now), default=None)


async def prepare_each(
    prepare: Callable[[Placement], Awaitable[Placement | PreBindFailure]],
    placements: Sequence[Placement],
) -> PreBindResult:
    """A PreBind step of all pods concurrently; an error concerns its pod alone."""

    async def isolated(placement: Placement) -> Placement | PreBindFailure:
        try:
            return await prepare(placement)
        except Exception as error:
            return PreBindFailure(placement, brief(error), error)

    results = await asyncio.gather(*map(isolated, placements))
    return PreBindResult(
        tuple(item for item in results if isinstance(item, Placement)),
        tuple(item for item in results if isinstance(item, PreBindFailure)),
    )


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
