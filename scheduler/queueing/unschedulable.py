"""
Unschedulable units, indexed so that an event costs by the number of distinct units, not of all.

    class        pods that fit the same nodes       gets one queueing hint per event
    signature    units of one tenant with the same  interchangeable: when the first of them does not
                 classes, numbers and need          fit, the others do not either

An event therefore moves one unit of each signature to the active queue: the probe. When the probe
is placed, `take_next` names the next one; when it does not fit, the others stay. A backlog of
thousands of equal pods costs as much as one of them.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey

Rank = tuple[int, int, int, float, str]
Signature = tuple[object, ...]

# Units of one signature that are searched for one whose backoff is over.
_BACKOFF_SCAN: Final = 32


class QueueingHint(Enum):
    """What an event does for pods of one class."""

    NONE = 0
    PERHAPS = 1  # only planning can tell: the first in order is tried, after its backoff
    FITS = 2  # one would fit now: the first in order whose backoff is over is tried


@dataclass(slots=True)
class _EquivalenceClass:
    pod: Pod  # any of the class: all fit the same nodes
    signatures: Counter[Signature] = field(default_factory=Counter)  # -> units that have it


class UnschedulableUnits:
    def __init__(self, class_of: Callable[[Pod], Hashable]) -> None:
        self._class_of = class_of
        self._classes: dict[Hashable, _EquivalenceClass] = {}
        self._heaps: dict[Signature, list[tuple[Rank, UnitKey]]] = {}  # stale items included
        self._units: dict[UnitKey, tuple[Signature, Rank, frozenset[Hashable]]] = {}
        self._probes: Counter[Signature] = Counter()  # -> units moved to active, not tried yet
        self._flushed: dict[Signature, float] = {}  # -> when one of its units was last flushed

    def add(self, unit: Unit, rank: Rank) -> Signature:
        self.discard(unit.key)
        pods = {self._class_of(pod): pod for pod in unit.pods}
        counts = Counter(self._class_of(pod) for pod in unit.pods)
        signature = (unit.tenant, unit.is_gang, unit.need, frozenset(counts.items()))
        for name, pod in pods.items():
            self._classes.setdefault(name, _EquivalenceClass(pod)).signatures[signature] += 1
        heapq.heappush(self._heaps.setdefault(signature, []), (rank, unit.key))
        self._units[unit.key] = (signature, rank, frozenset(pods))
        return signature

    def discard(self, key: UnitKey) -> None:
        record = self._units.pop(key, None)
        if record is None:
            return
        signature, _, names = record
        for name in names:
            counts = self._classes[name].signatures
            counts[signature] -= 1
            if not counts[signature]:
                del counts[signature]
            if not counts:
                del self._classes[name]
        if not any(signature in group.signatures for group in self._classes_of(names)):
            self._heaps.pop(signature, None)

    def helped(
        self, hint: Callable[[Pod], QueueingHint], ready: Callable[[UnitKey], bool]
    ) -> list[tuple[UnitKey, Signature]]:
        """
        One unit of each signature that an event may help; `hint` is called once for each class.

        Where the hint is PERHAPS and an equal unit is about to be tried, that one is the probe.
        """
        hints: dict[Signature, QueueingHint] = {}
        for group in self._classes.values():
            class_hint = hint(group.pod)
            if class_hint is not QueueingHint.NONE:
                for signature in group.signatures:
                    known = hints.get(signature, class_hint)
                    hints[signature] = max(known, class_hint, key=lambda each: each.value)
        probes = []
        for signature, best in hints.items():
            if best is QueueingHint.PERHAPS and self._probes[signature]:
                continue
            key = self.take_next(signature, ready if best is QueueingHint.FITS else _any)
            if key is not None:
                probes.append((key, signature))
        return probes

    def take_next(self, signature: Signature, ready: Callable[[UnitKey], bool]) -> UnitKey | None:
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
            if ready(item[1]):
                chosen = item[1]
                break
        if chosen is None and scanned:
            chosen = scanned[0][1]
        for item in scanned:
            if item[1] != chosen:
                heapq.heappush(heap, item)
        return chosen

    def flush(self, signature: Signature, now: float, every: float) -> UnitKey | None:
        """The unit to try after `every` seconds without an event; None: an equal one was tried."""
        if now - self._flushed.get(signature, -every) < every / 2:
            return None
        if len(self._flushed) > 2 * len(self._heaps) + 64:
            self._flushed.clear()
        self._flushed[signature] = now
        return self.take_next(signature, _any)

    def start_probe(self, signature: Signature) -> None:
        """A unit of the signature moves to the active queue, on behalf of its equals."""
        self._probes[signature] += 1

    def end_probe(self, signature: Signature) -> None:
        """It was tried, or will not be."""
        self._probes[signature] -= 1
        if not self._probes[signature]:
            del self._probes[signature]

    def _is_current(self, item: tuple[Rank, UnitKey], signature: Signature) -> bool:
        record = self._units.get(item[1])
        return record is not None and record[:2] == (signature, item[0])

    def _classes_of(self, names: frozenset[Hashable]) -> Iterator[_EquivalenceClass]:
        return (self._classes[name] for name in names if name in self._classes)


def _any(_: UnitKey) -> bool:
    return True
