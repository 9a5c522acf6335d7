"""
Speculative retries: units that a change may help, although only planning can tell.

A retry is speculative when the hint is PERHAPS or LIKELY, and when no event came for five minutes.
Thousands of such units must not delay a unit that fits. So they wait in a line that lets `AT_ONCE`
of them into the active queue every `EVERY` seconds: half of them those that wait longest, half of
them the first by rank. None starves, and with few of them none is delayed. With n in the line a
retry waits n * EVERY * 2 / AT_ONCE seconds at most.
"""

import heapq
import itertools
from typing import Any, Final

from scheduler.queueing.entry import Rank, Signature

AT_ONCE: Final = 8
EVERY: Final = 0.05

_STALE: Final = 64  # items of signatures that have left, in one heap


_Item = tuple[tuple[Any, ...], int, Signature]
"""A sort key, the number that the signature joined with, and the signature."""


class RetryLine:
    """Signatures of units; one unit of a signature is retried at a time."""

    def __init__(self) -> None:
        self._joined: dict[Signature, tuple[int, Rank]] = {}  # -> its number, and its rank then
        self._numbers = itertools.count()
        self._backoff: list[_Item] = []  # by the end of the backoff
        self._by_rank: list[_Item] = []
        self._by_age: list[_Item] = []
        self._left = AT_ONCE  # retries that may still be made until the next ones are let in
        self._next_at = float("-inf")

    def __len__(self) -> int:
        return len(self._joined)

    def __contains__(self, signature: object) -> bool:
        return signature in self._joined

    def join(self, signature: Signature, rank: Rank, ready_at: float) -> None:
        """`rank` and `ready_at`, the end of the backoff, are those of its first unit."""
        if signature not in self._joined:
            number = next(self._numbers)
            self._joined[signature] = number, rank
            heapq.heappush(self._backoff, ((ready_at,), number, signature))
            self._compact()

    def leave(self, signature: Signature) -> None:
        self._joined.pop(signature, None)

    def take(self, now: float) -> list[Signature]:
        """The signatures of which one unit each is retried now; they leave the line."""
        while self._backoff and self._backoff[0][0] <= (now,):
            item = heapq.heappop(self._backoff)
            if self._is_current(item):
                _, number, signature = item
                heapq.heappush(self._by_rank, (self._joined[signature][1], number, signature))
                heapq.heappush(self._by_age, ((), number, signature))
        if now >= self._next_at:
            self._left = AT_ONCE
        taken = self._first(self._by_rank, (self._left + 1) // 2)
        taken += self._first(self._by_age, self._left - len(taken))
        if taken and self._left == AT_ONCE:
            self._next_at = now + EVERY
        self._left -= len(taken)
        return taken

    def _first(self, heap: list[_Item], most: int) -> list[Signature]:
        taken: list[Signature] = []
        while heap and len(taken) < most:
            item = heapq.heappop(heap)
            if self._is_current(item):
                del self._joined[item[2]]
                taken.append(item[2])
        return taken

    def next_at(self) -> float | None:
        """When `take` next has something to return; may be early, never late."""
        if not (self._by_age or self._backoff):
            return None
        ready_at: float = float("-inf") if self._by_age else self._backoff[0][0][0]
        return ready_at if self._left else max(ready_at, self._next_at)

    def _compact(self) -> None:
        """Drop items of signatures that have left, when there are many of them."""
        for heap in (self._backoff, self._by_rank, self._by_age):
            if len(heap) > 2 * len(self._joined) + _STALE:
                heap[:] = filter(self._is_current, heap)
                heapq.heapify(heap)

    def _is_current(self, item: _Item) -> bool:
        joined = self._joined.get(item[2])
        return joined is not None and joined[0] == item[1]
