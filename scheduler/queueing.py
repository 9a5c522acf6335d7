"""
Units waiting for a node. A unit is one pod or one whole gang.

              members complete            pop
    FORMING ───────────────────▶ ACTIVE ───────▶ being planned ──take──▶ gone (the cache has it)
       ▲                          ▲  ▲                │
       │ members went             │  │ due            │ park: did not fit
       └───────────────  BACKOFF ─┘  │                ▼
                            ▲        └──────────── PARKED
                            └──── put_back: bind failed; wake: an event may help, too early yet

Every unit is in exactly one of these places, so that none is lost or tried twice at once. Backoff
is 1 s after the first failure and doubles to 10 s; a parked unit is woken by what may help it, and
after five minutes in any case. While a gang forms nobody calls it unschedulable; it is due to be
told about when its membership has been still for a moment, and again at its timeout.

The order is priority, age, uid. No I/O and no clock of its own: `loop` drives it and passes the
time in. The queue holds what is *not* placed; what is placed belongs to `cache`.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from .model import GangKey, Pod
from .units import Unit, UnitKey, key_of, order

FIRST_BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 10.0
LONGEST_PARKING: Final = 300.0
STILL: Final = 1.0  # seconds without a new member after which a forming gang is told about


class State(StrEnum):
    FORMING = "forming"
    ACTIVE = "active"
    BACKOFF = "backoff"
    PARKED = "parked"
    PLANNING = "planning"


@dataclass(slots=True)
class _Entry:
    key: UnitKey
    since: float
    pods: dict[str, Pod] = field(default_factory=dict)  # uid -> pod
    state: State = State.FORMING
    attempts: int = 0
    ready_at: float = 0.0
    token: int = -1  # the latest timer or heap item of this entry; older ones are void


class Queue:
    """`bound` says how many members of a gang have a node already."""

    def __init__(self, *, bound: Callable[[GangKey], int]) -> None:
        self._bound = bound
        self._entries: dict[UnitKey, _Entry] = {}
        self._unit_of: dict[str, UnitKey] = {}  # pod uid -> its unit
        self._active: list[tuple[tuple[int, float, str], int, UnitKey]] = []
        self._timers: list[tuple[float, int, UnitKey]] = []
        self._tokens = itertools.count()

    def __len__(self) -> int:
        return len(self._unit_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._unit_of

    def state(self, key: UnitKey) -> State | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def counts(self) -> Counter[State]:
        """Pods by the state of their unit."""
        counts: Counter[State] = Counter()
        for entry in self._entries.values():
            counts[entry.state] += len(entry.pods)
        return counts

    # --- in ---

    def put(self, pod: Pod, now: float) -> None:
        """A pending pod, new or changed."""
        key = key_of(pod)
        if self._unit_of.get(pod.uid, key) != key:
            self.remove(pod.uid, now)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key, since=now)
        old = entry.pods.get(pod.uid)
        entry.pods[pod.uid] = pod
        self._unit_of[pod.uid] = key
        if old is None or _matters(old) != _matters(pod):
            self._reconsider(entry, now)

    def put_back(self, pod: Pod, now: float) -> None:
        """A pod whose bind failed: its unit waits out a backoff."""
        self.put(pod, now)
        entry = self._entries[key_of(pod)]
        if entry.state not in (State.BACKOFF, State.FORMING):
            self._fail(entry, now)
            self._back_off(entry)

    def remove(self, uid: str, now: float) -> None:
        """A pod that is gone, placed by somebody else, or no longer wants a node."""
        key = self._unit_of.pop(uid, None)
        if key is None:
            return
        entry = self._entries[key]
        del entry.pods[uid]
        if not entry.pods:
            del self._entries[key]
        elif entry.state is not State.PLANNING:
            self._reconsider(entry, now)

    def reconsider(self, gang: GangKey, now: float) -> None:
        """Members of the gang were bound or went."""
        entry = self._entries.get(gang)
        if entry is not None and (entry.state is State.FORMING or self._unit(entry).forming):
            self._reconsider(entry, now)

    # --- out ---

    def pop(self, now: float) -> Unit | None:
        """The next unit to plan; answer with `take` for who was placed and `park` for the rest."""
        while self._active:
            _, token, key = heapq.heappop(self._active)
            entry = self._entries.get(key)
            if entry is None or entry.token != token:
                continue
            unit = self._unit(entry)
            if unit.forming:
                self._form(entry, now)
                continue
            entry.state = State.PLANNING
            return unit
        return None

    def take(self, uid: str) -> None:
        """The pod has been given a node."""
        key = self._unit_of.pop(uid, None)
        entry = None if key is None else self._entries.get(key)
        if entry is not None:
            del entry.pods[uid]
            if not entry.pods:
                del self._entries[entry.key]

    def park(self, key: UnitKey, now: float) -> None:
        """The unit, or what is left of it, did not fit."""
        entry = self._entries.get(key)
        if entry is None:
            return
        self._fail(entry, now)
        entry.state = State.PARKED
        self._timer(entry, now + LONGEST_PARKING)

    def wake(self, now: float, helps: Callable[[Unit], bool]) -> int:
        """Parked units that a change may help are tried again, each not before its backoff ends."""
        woken = 0
        for entry in list(self._entries.values()):
            if entry.state is State.PARKED and helps(self._unit(entry)):
                self._ready(entry, now)
                woken += 1
        return woken

    def tick(self, now: float) -> list[Unit]:
        """Let time pass; the forming gangs that are due to be told about."""
        due: list[Unit] = []
        while self._timers and self._timers[0][0] <= now:
            _, token, key = heapq.heappop(self._timers)
            entry = self._entries.get(key)
            if entry is None or entry.token != token:
                continue
            if entry.state is State.FORMING:
                unit = self._unit(entry)
                due.append(unit)
                deadline = entry.since + unit.timeout
                if now < deadline:
                    self._timer(entry, deadline)
            else:
                self._activate(entry)
        return due

    def next_at(self) -> float | None:
        """When `tick` next has something to do; may be early, never late."""
        return self._timers[0][0] if self._timers else None

    # --- moves ---

    def _unit(self, entry: _Entry) -> Unit:
        bound = self._bound(entry.key) if isinstance(entry.key, GangKey) else 0
        return Unit(entry.key, tuple(sorted(entry.pods.values(), key=order)), bound)

    def _reconsider(self, entry: _Entry, now: float) -> None:
        """The unit itself changed: it forms, or is tried as soon as its backoff allows."""
        if self._unit(entry).forming:
            self._form(entry, now)
        elif entry.state is State.ACTIVE:
            self._activate(entry)
        elif entry.state is not State.BACKOFF:
            self._ready(entry, now)

    def _form(self, entry: _Entry, now: float) -> None:
        if entry.state is not State.FORMING:
            entry.since = now
        entry.state = State.FORMING
        self._timer(entry, now + STILL)

    def _ready(self, entry: _Entry, now: float) -> None:
        if now >= entry.ready_at:
            self._activate(entry)
        else:
            self._back_off(entry)

    def _activate(self, entry: _Entry) -> None:
        entry.state = State.ACTIVE
        entry.token = next(self._tokens)
        heapq.heappush(self._active, (self._unit(entry).order, entry.token, entry.key))

    def _back_off(self, entry: _Entry) -> None:
        entry.state = State.BACKOFF
        self._timer(entry, entry.ready_at)

    def _fail(self, entry: _Entry, now: float) -> None:
        entry.attempts += 1
        delay = min(FIRST_BACKOFF * 2 ** min(entry.attempts - 1, 10), LONGEST_BACKOFF)
        entry.ready_at = now + delay

    def _timer(self, entry: _Entry, at: float) -> None:
        entry.token = next(self._tokens)
        heapq.heappush(self._timers, (at, entry.token, entry.key))


def _matters(pod: Pod) -> tuple[object, ...]:
    """What can change where or when a pending pod is tried."""
    return pod.shape, pod.priority, pod.gang
