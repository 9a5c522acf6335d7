"""
When a search for somebody to go is made: not too often for one unit, for equal ones, or in all.

    a unit whose search found nobody      again after 5 s, then 10 s, … at most a minute; every 5 s
                                          while it is within its tenant's promise
    its equals                            not before 5 s: what did not help one helps no other
    all of them                           a fifth of the time at most, so that placing goes on

Whoever may not search yet is called again when it may: who could go changes without a node showing
it. Clocks come from outside.
"""

import math
from collections.abc import Hashable
from typing import Final

from cluster import backoff
from scheduler.model.unit import UnitKey

FIRST: Final = 5.0
LATEST: Final = 60.0
REST: Final = 4.0  # times as long as a search took
MOST: Final = 4096  # units, and classes of them, that are remembered


class SearchRateLimit:
    """`like` is equal for units that a search answers alike."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, tuple[float, float, Hashable]] = {}
        """Not before, the pause it was, and what the unit was like: another one may search."""
        self._likes: dict[Hashable, float] = {}  # not before
        self._anybody = -math.inf  # not before
        self._calls: dict[UnitKey, float] = {}
        self._next = math.inf

    def __len__(self) -> int:
        """Units that are remembered."""
        return len(self._units) + len(self._calls)

    def may(self, key: UnitKey, like: Hashable, now: float) -> bool:
        """False: the unit is called when it may."""
        own, _, was = self._units.get(key, (-math.inf, 0.0, like))
        at = max(self._likes.get(like, -math.inf), self._anybody)
        if was in (like, key):
            at = max(at, own)
        if now >= at:
            return True
        self._call(key, at)
        return False

    def took(self, began: float, ended: float) -> None:
        self._anybody = max(self._anybody, ended + REST * (ended - began))

    def failed(self, key: UnitKey, like: Hashable, now: float, *, latest: float = LATEST) -> None:
        """The search for this unit found nobody; the pause grows up to `latest`."""
        if len(self._units) >= MOST:
            self._units.clear()
        if len(self._likes) >= MOST:
            self._likes = {one: at for one, at in self._likes.items() if at > now}
        _, before, was = self._units.get(key, (0.0, 0.0, like))
        pause = backoff.doubled(before, first=FIRST, most=latest) if was == like else FIRST
        self._units[key] = (now + pause, pause, like)
        self._likes[like] = now + FIRST
        self._call(key, now + pause)

    def free(self, key: UnitKey) -> None:
        """The unit may search again at once, as far as it alone is concerned."""
        self._units.pop(key, None)

    def forget(self, key: UnitKey) -> None:
        """The unit is placed, or gone."""
        if self._units or self._calls:
            self._units.pop(key, None)
            self._calls.pop(key, None)

    def due(self, now: float) -> list[UnitKey]:
        """Units that are called now, the first that were told first."""
        if now < self._next:
            return []
        found = [key for key, at in self._calls.items() if at <= now]
        for key in found:
            del self._calls[key]
        self._next = min(self._calls.values(), default=math.inf)
        return found

    def next_at(self) -> float | None:
        return self._next if self._calls else None

    def _call(self, key: UnitKey, at: float) -> None:
        if key in self._calls or len(self._calls) < MOST:
            self._calls[key] = at
            self._next = min(self._next, at)
