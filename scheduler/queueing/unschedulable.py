"""
Unschedulable units, indexed so that an event costs by the number of distinct units, not of all.

    class        pods that fit the same nodes       gets one queueing hint per event
    signature    units of one tenant with the same  interchangeable: when the first of them does not
                 classes, numbers and need          fit, the others do not either

A hint therefore moves one unit of each signature to the active queue: the probe. When the probe is
placed, `take_next` names the next one; when it does not fit, the others stay. A backlog of
thousands of equal pods costs as much as one of them. Where only planning can tell whether the unit
fits, the probe waits for its turn in the `retry_line`.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey
from scheduler.plugins.protocol import QueueingHint
from scheduler.queueing.entry import Rank, Signature
from scheduler.queueing.retry_line import RetryLine

# Units of one signature that are searched for one whose backoff is over.
_BACKOFF_SCAN: Final = 32

_STALE: Final = 64  # items of units that have left, in one heap


@dataclass(eq=False, slots=True)
class EquivalenceClass:
    """Pods that fit the same nodes, as the units that wait have them."""

    pod: Pod
    """Any of the class."""
    line: Container[Signature]
    """The retry line."""
    signatures: Counter[Signature] = field(default_factory=Counter)
    """Signature -> units that have it."""

    @property
    def queued(self) -> bool:
        """Whether one unit of each signature is in the retry line."""
        return all(signature in self.line for signature in self.signatures)


ClassHints = Iterable[tuple[EquivalenceClass, QueueingHint]]


class ClassObserver(Protocol):
    """Tests classes against what changes in the cluster (`plan.requeueing`)."""

    def add(self, pods: EquivalenceClass) -> None:
        """A plan with pods of this class has failed on the nodes as they are now."""
        ...

    def discard(self, pods: EquivalenceClass) -> None:
        """No unit with such pods waits any more."""
        ...


class _NoTests:
    """Nothing gives hints: units are tried after five minutes."""

    def add(self, pods: EquivalenceClass) -> None: ...

    def discard(self, pods: EquivalenceClass) -> None: ...


NO_TESTS: Final = _NoTests()


class UnschedulableUnits:
    """`ready_at` is the end of a unit's backoff."""

    def __init__(
        self,
        class_of: Callable[[Pod], Hashable],
        observer: ClassObserver,
        ready_at: Callable[[UnitKey], float],
    ) -> None:
        self._class_of = class_of
        self._observer = observer
        self._ready_at = ready_at
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._heaps: dict[Signature, list[tuple[Rank, UnitKey]]] = {}  # stale items included
        self._sizes: Counter[Signature] = Counter()  # -> units that have it
        self._units: dict[UnitKey, tuple[Signature, Rank, tuple[Hashable, ...]]] = {}
        self._probes: Counter[Signature] = Counter()  # -> units moved to active, not tried yet
        self._flushed: dict[Signature, float] = {}  # -> when one of its units was last flushed
        self._line = RetryLine()

    def add(self, unit: Unit, rank: Rank) -> Signature:
        """The unit did not fit on the nodes as they are now."""
        self.discard(unit.key)
        pods: dict[Hashable, Pod] = {}
        counts: Counter[Hashable] = Counter()
        for pod in unit.pods:
            name = self._class_of(pod)
            pods[name] = pod
            counts[name] += 1
        signature = (unit.tenant, unit.is_gang, unit.need, frozenset(counts.items()))
        for name, pod in pods.items():
            group = self._classes.get(name)
            if group is None:
                group = self._classes[name] = EquivalenceClass(pod, self._line)
            group.signatures[signature] += 1
            # With other signatures in the class, their units were not part of the failed plan.
            if len(group.signatures) == 1:
                self._observer.add(group)
        heap = self._heaps.setdefault(signature, [])
        heapq.heappush(heap, (rank, unit.key))
        self._units[unit.key] = (signature, rank, tuple(pods))
        self._sizes[signature] += 1
        if len(heap) > 2 * self._sizes[signature] + _STALE:
            heap[:] = [item for item in heap if self._is_current(item, signature)]
            heapq.heapify(heap)
        return signature

    def discard(self, key: UnitKey) -> None:
        record = self._units.pop(key, None)
        if record is None:
            return
        signature, _, names = record
        for name in names:
            group = self._classes[name]
            group.signatures[signature] -= 1
            if not group.signatures[signature]:
                del group.signatures[signature]
            if not group.signatures:
                del self._classes[name]
                self._observer.discard(group)
        self._sizes[signature] -= 1
        if not self._sizes[signature]:
            del self._sizes[signature], self._heaps[signature]
            self._line.leave(signature)

    def helped(self, hints: ClassHints, now: float) -> list[tuple[UnitKey, Signature]]:
        """
        One unit of each signature that fits, and the units whose turn in the retry line has come.

        The other signatures join the line. Where the hint is PERHAPS and an equal unit is about to
        be tried, that one is the probe.
        """
        best: dict[Signature, QueueingHint] = {}
        for group, hint in hints:
            if hint is not QueueingHint.NONE:
                for signature in group.signatures:
                    best[signature] = max(best.get(signature, hint), hint)
        probes = []
        for signature, hint in best.items():
            if hint is not QueueingHint.FITS:
                if hint is QueueingHint.LIKELY or not self._probes[signature]:
                    self._join(signature)
                continue
            self._line.leave(signature)
            key = self.take_next(signature, now)
            if key is not None:
                probes.append((key, signature))
        taken = ((self.take_next(signature, now), signature) for signature in self._line.take(now))
        return [*probes, *((key, signature) for key, signature in taken if key is not None)]

    def next_at(self) -> float | None:
        """When the next turn in the retry line comes; may be early, never late."""
        return self._line.next_at()

    def take_next(self, signature: Signature, now: float) -> UnitKey | None:
        """The first unit in order whose backoff is over, else the first in order. It leaves the
        heap: the caller moves it to the active queue."""
        heap = self._heaps.get(signature)
        if heap is None:
            return None
        scanned: list[tuple[Rank, UnitKey]] = []
        chosen: UnitKey | None = None
        while heap and len(scanned) < _BACKOFF_SCAN:
            item = heapq.heappop(heap)
            if not self._is_current(item, signature):
                continue
            scanned.append(item)
            if self._ready_at(item[1]) <= now:
                chosen = item[1]
                break
        if chosen is None and scanned:
            chosen = scanned[0][1]
        for item in scanned:
            if item[1] != chosen:
                heapq.heappush(heap, item)
        return chosen

    def flush(self, signature: Signature, now: float, every: float) -> None:
        """`every` seconds passed without an event: one unit joins the retry line, unless an equal
        one was tried."""
        if now - self._flushed.get(signature, -every) < every / 2:
            return
        if len(self._flushed) > 2 * len(self._heaps) + 64:
            self._flushed.clear()
        self._flushed[signature] = now
        self._join(signature)

    def start_probe(self, signature: Signature) -> None:
        """A unit of the signature moves to the active queue, on behalf of its equals."""
        self._probes[signature] += 1

    def end_probe(self, signature: Signature) -> None:
        """It was tried, or will not be."""
        self._probes[signature] -= 1
        if not self._probes[signature]:
            del self._probes[signature]

    def _join(self, signature: Signature) -> None:
        heap = self._heaps.get(signature, [])
        while heap and not self._is_current(heap[0], signature):
            heapq.heappop(heap)
        if heap:
            rank, key = heap[0]
            self._line.join(signature, rank, self._ready_at(key))

    def _is_current(self, item: tuple[Rank, UnitKey], signature: Signature) -> bool:
        record = self._units.get(item[1])
        return record is not None and record[:2] == (signature, item[0])
