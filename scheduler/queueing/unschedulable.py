"""
Units that did not fit, filed so that waking them costs by what differs, not by how many wait.

    class        pods that fit the same nodes      asked once whether a change may help
    signature    units of one tenant with the      equal units are interchangeable: when the first
                 same classes, numbers and need    does not fit, the others do not either

A change therefore wakes one unit of each signature that it may help. When that one is placed,
`next_of` names the one to follow; when it does not fit, the others stay. A backlog of thousands of
equal pods costs as much as one of them.
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

# How many units of one signature are looked at for one whose backoff is over.
_GLANCE: Final = 32


class QueueingHint(Enum):
    """What a change does for pods of one class."""

    NONE = 0
    PERHAPS = 1  # nobody can say without planning: the first in order is tried, after its backoff
    FITS = 2  # one would fit now: the first in order whose backoff is over is tried


@dataclass(slots=True)
class _EquivalenceClass:
    pod: Pod  # any of the class: all fit the same nodes
    signatures: Counter[Signature] = field(default_factory=Counter)  # -> parked units of it


class UnschedulableUnits:
    def __init__(self, class_of: Callable[[Pod], Hashable]) -> None:
        self._class_of = class_of
        self._classes: dict[Hashable, _EquivalenceClass] = {}
        self._lines: dict[Signature, list[tuple[Rank, UnitKey]]] = {}  # heaps; may hold the gone
        self._parked: dict[UnitKey, tuple[Signature, Rank, frozenset[Hashable]]] = {}
        self._out: Counter[Signature] = Counter()  # -> its units that were woken and not tried yet
        self._flushed: dict[Signature, float] = {}  # -> when one of its units was last let out

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def signatures(self) -> int:
        return len(self._lines)

    def add(self, unit: Unit, rank: Rank) -> Signature:
        self.discard(unit.key)
        pods = {self._class_of(pod): pod for pod in unit.pods}
        counts = Counter(self._class_of(pod) for pod in unit.pods)
        signature = (unit.tenant, unit.is_gang, unit.need, frozenset(counts.items()))
        for name, pod in pods.items():
            self._classes.setdefault(name, _EquivalenceClass(pod)).signatures[signature] += 1
        heapq.heappush(self._lines.setdefault(signature, []), (rank, unit.key))
        self._parked[unit.key] = (signature, rank, frozenset(pods))
        return signature

    def discard(self, key: UnitKey) -> None:
        found = self._parked.pop(key, None)
        if found is None:
            return
        signature, _, names = found
        for name in names:
            counts = self._classes[name].signatures
            counts[signature] -= 1
            if not counts[signature]:
                del counts[signature]
            if not counts:
                del self._classes[name]
        if not any(signature in kind.signatures for kind in self._classes_of(names)):
            self._lines.pop(signature, None)

    def helped(
        self, helps: Callable[[Pod], QueueingHint], ready: Callable[[UnitKey], bool]
    ) -> list[tuple[UnitKey, Signature]]:
        """
        One unit of each signature that a change may help; `helps` is asked once for each class.

        Where nobody can say, and an equal unit is about to be tried, that one answers for all.
        """
        found: dict[Signature, QueueingHint] = {}
        for kind in self._classes.values():
            help = helps(kind.pod)
            if help is not QueueingHint.NONE:
                for signature in kind.signatures:
                    known = found.get(signature, help)
                    found[signature] = max(known, help, key=lambda one: one.value)
        woken = []
        for signature, help in found.items():
            if help is QueueingHint.PERHAPS and self._out[signature]:
                continue
            key = self.next_of(signature, ready if help is QueueingHint.FITS else _any)
            if key is not None:
                woken.append((key, signature))
        return woken

    def next_of(self, signature: Signature, ready: Callable[[UnitKey], bool]) -> UnitKey | None:
        """The first in order whose backoff is over; else the first in order. It stands in line no
        more: whoever asks wakes it."""
        line = self._lines.get(signature)
        if line is None:
            return None
        passed: list[tuple[Rank, UnitKey]] = []
        found: UnitKey | None = None
        while line and len(passed) < _GLANCE:
            item = heapq.heappop(line)
            if not self._stands(item, signature):
                continue
            passed.append(item)
            if ready(item[1]):
                found = item[1]
                break
        chosen = found or (passed[0][1] if passed else None)
        for item in passed:
            if item[1] != chosen:
                heapq.heappush(line, item)
        return chosen

    def flush(self, signature: Signature, now: float, every: float) -> UnitKey | None:
        """One unit to try after a long time in any case; None: one of its equals was tried."""
        if now - self._flushed.get(signature, -every) < every / 2:
            return None
        if len(self._flushed) > 2 * len(self._lines) + 64:
            self._flushed.clear()
        self._flushed[signature] = now
        return self.next_of(signature, _any)

    def out(self, signature: Signature) -> None:
        """A unit was woken, and answers for its equals."""
        self._out[signature] += 1

    def back(self, signature: Signature) -> None:
        """It was tried, or will not be."""
        self._out[signature] -= 1
        if not self._out[signature]:
            del self._out[signature]

    def _stands(self, item: tuple[Rank, UnitKey], signature: Signature) -> bool:
        known = self._parked.get(item[1])
        return known is not None and known[:2] == (signature, item[0])

    def _classes_of(self, names: frozenset[Hashable]) -> Iterator[_EquivalenceClass]:
        return (self._classes[name] for name in names if name in self._classes)


def _any(_: UnitKey) -> bool:
    return True
