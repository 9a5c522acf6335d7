"""
Rate-limits victim searches: per unit, per equivalence class, and overall.

    unit whose search found no victims   again after 5 s, then 10 s, … at most 60 s; every 5 s while
                                         the unit is within its tenant's guarantee
    units of the same class              not before 5 s, and for five minutes not before the
                                         cluster has changed: the same search finds no victims
    all units                            a fifth of the time at most, so that placing goes on

`due` lists the units that may search again: candidates change without an event of a node. Clocks
come from outside.
"""

import math
from collections.abc import Hashable
from itertools import islice
from typing import Final

from cluster import backoff
from scheduler import bounded
from scheduler.model.unit import UnitKey

FIRST: Final = 5.0
LATEST: Final = 60.0
REST: Final = 4.0  # times the duration of a search
REMEMBERED: Final = 300.0  # seconds for which a failed search is not repeated in the same state
MAX_DUE: Final = 64  # units at a time: each is planned again before it searches
MAX_REMEMBERED: Final = 4096  # units, and classes


class SearchRateLimit:
    """`unit_class` is equal for units whose searches have the same result."""

    def __init__(self) -> None:
        self._units: dict[UnitKey, tuple[float, float, Hashable]] = {}
        """Not before, the last pause, and the class: a unit that changed may search."""
        self._classes: dict[Hashable, float] = {}  # not before
        self._failures: dict[Hashable, tuple[float, Hashable]] = {}
        """Class -> when its last search failed, and in which state of the cluster."""
        self._overall = -math.inf  # not before
        self._wakeups: dict[UnitKey, float] = {}
        self._next = math.inf

    def __len__(self) -> int:
        """Units that are remembered."""
        return len(self._units) + len(self._wakeups)

    def may_search(
        self, key: UnitKey, unit_class: Hashable, now: float, state: Hashable = None
    ) -> bool:
        """False: the unit is `due` when it may search. `state` changes with everything that can
        let a search succeed which failed."""
        failed_at, failed_in = self._failures.get(unit_class, (-math.inf, None))
        if state is not None and state == failed_in and now < failed_at + REMEMBERED:
            self._wake_at(key, now + LATEST)
            return False
        own, _, last_class = self._units.get(key, (-math.inf, 0.0, unit_class))
        not_before = max(self._classes.get(unit_class, -math.inf), self._overall)
        if last_class in (unit_class, key):
            not_before = max(not_before, own)
        if now >= not_before:
            return True
        self._wake_at(key, not_before)
        return False

    def searched(self, began: float, ended: float) -> None:
        self._overall = max(self._overall, ended + REST * (ended - began))

    def postpone(self, key: UnitKey, now: float) -> None:
        """Another search is in progress."""
        self._wake_at(key, now + FIRST)

    def failed(
        self,
        key: UnitKey,
        unit_class: Hashable,
        now: float,
        state: Hashable = None,
        *,
        latest: float = LATEST,
    ) -> None:
        """The search for this unit found no victims in this `state`; its pause doubles up to
        `latest`."""
        if len(self._failures) >= MAX_REMEMBERED:
            self._failures.pop(next(iter(self._failures)))
        self._failures[unit_class] = now, state
        if len(self._classes) >= MAX_REMEMBERED:
            self._classes = {name: at for name, at in self._classes.items() if at > now}
        _, before, last_class = self._units.get(key, (0.0, 0.0, unit_class))
        pause = FIRST
        if last_class == unit_class:
            pause = backoff.doubled(before, first=FIRST, most=latest)
        bounded.remember(self._units, key, (now + pause, pause, unit_class), MAX_REMEMBERED)
        self._classes[unit_class] = now + FIRST
        self._wake_at(key, now + pause)

    def reset(self, key: UnitKey) -> None:
        """The unit's own pause ends."""
        self._units.pop(key, None)

    def forget(self, key: UnitKey) -> None:
        """The unit is placed, or gone."""
        if self._units or self._wakeups:
            self._units.pop(key, None)
            self._wakeups.pop(key, None)

    def due(self, now: float) -> list[UnitKey]:
        """Units that may search now, some at a time, in the order in which they had to wait."""
        if now < self._next:
            return []
        ready = (key for key, at in self._wakeups.items() if at <= now)
        due = list(islice(ready, MAX_DUE))
        for key in due:
            del self._wakeups[key]
        self._next = min(self._wakeups.values(), default=math.inf)
        return due

    def next_at(self) -> float | None:
        return self._next if self._wakeups else None

    def _wake_at(self, key: UnitKey, at: float) -> None:
        if key in self._wakeups or len(self._wakeups) < MAX_REMEMBERED:
            self._wakeups[key] = at
            self._next = min(self._next, at)
