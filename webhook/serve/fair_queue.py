"""
Requests that wait for a decision, by flow: one namespace cannot keep the others waiting.

    push(flow, request) ──▶ the flow's own line ──pop──▶ the flow that has used the least CPU
                                    ▲                        │
                                    └── charge(flow, CPU) ◀──┘ decided

Each flow has its line, first in, first out. The flow whose time used is least goes first; equal
flows go by the order of their arrival. A flow that arrives starts at the time used of the flow
that was served last: it has saved nothing while it sent nothing, and stands before every flow that
was served since. So the first request of a flow waits for at most one request of each other flow.

The queue forgets a flow that has no request in it once its time used is no longer ahead. The bytes
of all requests are bounded by its owner, who drops the newest of the flow that has the most
(`shed`). No clock and no I/O.
"""

import heapq
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_HEAD: Final = 4096  # bytes of a review; the namespace of the request stands before the object
_NAMESPACE: Final = re.compile(rb'"namespace"\s*:\s*"([^"\\]{1,253})"')
_KEPT: Final = 64  # flows beside those in use before the queue looks for some to forget


def flow_of(body: bytes) -> str:
    """The namespace of a review; empty: it has none. Read without parsing: it orders, no more."""
    found = _NAMESPACE.search(body, 0, _HEAD)
    return "" if found is None else found[1].decode(errors="replace")


@dataclass(slots=True)
class _Flow(Generic[T]):
    used: float
    arrival: int = 0
    line: deque[tuple[T, int]] = field(default_factory=deque)  # (request, bytes)
    size: int = 0  # bytes in the line
    running: int = 0
    listed: bool = False  # whether the heap has an entry for it

    @property
    def idle(self) -> bool:
        return not self.line and not self.running


class FairQueue(Generic[T]):
    """`at_once` bounds how many requests of one flow are decided at the same time."""

    def __init__(self, *, at_once: int) -> None:
        self._at_once = at_once
        self._flows: dict[str, _Flow[T]] = {}
        self._heap: list[tuple[float, int, str]] = []  # (used, arrival, flow)
        self._level = 0.0  # the time used of the flow that was served last
        self._arrivals = 0
        self._waiting = 0
        self._forget_above = _KEPT
        self.size = 0
        """Bytes of all requests that wait."""

    def __len__(self) -> int:
        return self._waiting

    @property
    def flows(self) -> int:
        """How many flows the queue knows."""
        return len(self._flows)

    def push(self, flow: str, request: T, size: int = 0) -> None:
        known = self._flows.get(flow)
        if known is None:
            known = self._flows[flow] = _Flow(self._level)
        if known.idle:
            self._arrivals += 1
            known.used, known.arrival = max(known.used, self._level), self._arrivals
        known.line.append((request, size))
        self._count(known, 1, size)
        self._list(flow, known)

    def pop(self) -> tuple[str, T] | None:
        """The next request and its flow; None: none waits that may be decided now."""
        while self._heap:
            used, arrival, flow = heapq.heappop(self._heap)
            known = self._flows[flow]
            known.listed = False
            if not known.line or known.running >= self._at_once:
                continue  # `push` or `charge` lists it again
            if (used, arrival) != (known.used, known.arrival):
                self._list(flow, known)  # it was charged meanwhile
                continue
            self._level = max(self._level, used)
            known.running += 1
            request, size = known.line.popleft()
            self._count(known, -1, -size)
            self._list(flow, known)
            return flow, request
        return None

    def charge(self, flow: str, used: float) -> None:
        """A request of the flow is decided; it took so much CPU time."""
        known = self._flows[flow]
        known.running -= 1
        known.used += used
        self._list(flow, known)
        if len(self._flows) > self._forget_above:
            self._forget()

    def shed(self) -> T | None:
        """Take out the newest request of the flow whose requests have the most bytes."""
        waiting = [(row.size, name) for name, row in self._flows.items() if row.line]
        if not waiting:
            return None
        known = self._flows[max(waiting)[1]]
        request, size = known.line.pop()
        self._count(known, -1, -size)
        return request

    def _count(self, known: _Flow[T], requests: int, size: int) -> None:
        self._waiting += requests
        self.size += size
        known.size += size

    def _list(self, flow: str, known: _Flow[T]) -> None:
        if known.line and not known.listed:
            known.listed = True
            heapq.heappush(self._heap, (known.used, known.arrival, flow))

    def _forget(self) -> None:
        """Drop idle flows that would start at the level anyway, or all where every flow is idle."""
        everything = all(row.idle for row in self._flows.values())
        for name in [n for n, row in self._flows.items() if row.idle and not row.listed]:
            if everything or self._flows[name].used <= self._level:
                del self._flows[name]
        self._forget_above = 2 * len(self._flows) + _KEPT
