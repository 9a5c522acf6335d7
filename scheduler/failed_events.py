"""
Watch events on which a handler failed, tried again until they succeed.

    event ──handler──▶ applied
              │ an error: logged, counted
              ▼
            failed ──5 s, doubles to 5 minutes──▶ handler again
              └── a newer event of the same object takes its place

The watch goes on with the next object, so one that the scheduler cannot apply loses no other. The
newest event of each object is kept, which is all that a handler needs: it gets whole states.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cluster import backoff
from cluster.informer import Key, WatchEvent
from scheduler.errors import ErrorStep
from scheduler.isolation import FIRST_RETRY, LONGEST_RETRY, Isolation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _FailedEvent:
    handler: Callable[[WatchEvent[Any]], None]
    event: WatchEvent[Any]
    due: float
    pause: float


class FailedEvents:
    """`wake` starts a cycle: a failed event may be due before anything else is."""

    def __init__(
        self, isolation: Isolation, *, now: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._isolation = isolation
        self._now = now
        self._wake = wake
        self._failed: dict[tuple[str, Key], _FailedEvent] = {}  # by kind and object

    def __len__(self) -> int:
        """Objects whose newest state is not applied."""
        return len(self._failed)

    def guard(
        self, kind: str, handler: Callable[[WatchEvent[T]], None]
    ) -> Callable[[WatchEvent[T]], None]:
        """The handler for objects of this kind, so that an error ends with its object."""

        def guarded(event: WatchEvent[T]) -> None:
            self.apply(kind, handler, event)

        return guarded

    def apply(
        self, kind: str, handler: Callable[[WatchEvent[T]], None], event: WatchEvent[T]
    ) -> None:
        try:
            handler(event)
        except Exception as error:
            self._isolation.report(ErrorStep.WATCH, f"{kind} {'/'.join(event.key)}", error)
            self.retry(kind, handler, event)
        else:
            if self._failed:
                self._failed.pop((kind, event.key), None)

    def retry(
        self, kind: str, handler: Callable[[WatchEvent[T]], None], event: WatchEvent[T]
    ) -> None:
        """Try the event again, later each time."""
        known = self._failed.get((kind, event.key))
        pause = backoff.doubled(
            0.0 if known is None else known.pause, first=FIRST_RETRY, most=LONGEST_RETRY
        )
        due = self._now() + pause
        self._failed[kind, event.key] = _FailedEvent(handler, event, due, pause)
        self._wake()

    def tick(self) -> None:
        now = self._now()
        for (kind, _), failed in list(self._failed.items()):
            if failed.due <= now:
                self.apply(kind, failed.handler, failed.event)

    def next_at(self) -> float | None:
        return min((failed.due for failed in self._failed.values()), default=None)
