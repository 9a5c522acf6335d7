"""
Units waiting for a node. A unit is one pod or one whole gang.

              members complete          gates lifted            pop               take
    FORMING ──────────────────▶ GATED ──────────────▶ ACTIVE ───────▶ PLANNING ───────▶ BINDING
       ▲   (members went)                              ▲  ▲               │               │   │
       └───────────── from anywhere          due ┌─────┘  │ may help      │ park:         │   └▶
                                              BACKOFF   PARKED ◀──────────┘ did not fit   │ bound
                                                 ▲                                        │
                                                 └──────── put_back: a bind failed ───────┘
    REFUSED     the API server refuses to bind members for good: left alone for minutes
    SUSPENDED   bound members of a partial gang are being released: nobody plans it meanwhile
    HELD        the tenant's quota keeps it waiting, whatever is free: see `held_back`

Every unit is in exactly one of these places, so that none is lost or tried twice at once. Backoff
is 1 s after the first failure and doubles to 10 s; a parked unit is woken by what may help it
(`parking`), and after five minutes in any case. While a gang forms nobody calls it unschedulable;
it is due to be told about when its membership has been still for a moment, and at its timeout.

The order: gangs that stand half bound, then between tenants whose turn it is (`turns`), then
priority and its tier's boost, then what waits too long or runs short of members, then age, then
uid. No I/O and no clock of its own: `loop` drives it and passes the time in. The queue holds what
is *not* placed; what is placed belongs to `cache`.
"""

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import NoFit
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey, key_of
from scheduler.options import STARVING_AFTER
from scheduler.queueing.active import SPARE, ActiveQueue
from scheduler.queueing.entry import QueuedUnit, QueueState, matters
from scheduler.queueing.unschedulable import QueueingHint, Signature, UnschedulableUnits
from scheduler.queueing.view import QueueView, ReservedMembers

FIRST_BACKOFF: Final = 1.0
LONGEST_BACKOFF: Final = 10.0
LONGEST_PARKING: Final = 300.0
FIRST_REFUSAL: Final = 300.0  # how long a pod is left alone whose bind was refused for good
LONGEST_REFUSAL: Final = 3600.0
STILL: Final = 1.0  # seconds without a new member after which a forming gang is told about
ASK_AGAIN: Final = 30.0  # seconds after which a gate that is still there is to be lifted again


class SchedulingQueue(QueueView):
    """What `QueueView` says of how gangs are counted holds here too; `class_of` is equal for pods
    that fit the same nodes."""

    def __init__(
        self,
        *,
        bound: Callable[[GangKey], int],
        group: Callable[[GangKey], PodGroup | None] = lambda _: None,
        half_bound: Callable[[GangKey], bool] = lambda _: False,
        done: Callable[[GangKey], Mapping[str, str]] = lambda _: {},
        class_of: Callable[[Pod], Hashable] = lambda pod: pod.spec,
        starving_after: float = STARVING_AFTER,
        standing: Callable[[str, Mapping[str, int]], Any] = lambda tenant, asked: tenant,
        reserved: ReservedMembers | None = None,
    ) -> None:
        super().__init__(
            bound=bound,
            group=group,
            half_bound=half_bound,
            done=done,
            starving_after=starving_after,
            reserved=reserved,
        )
        self._active = ActiveQueue(
            self._stands, lambda who, key: standing(who, self._entries[key].asked)
        )
        self._timers: list[tuple[float, int, UnitKey]] = []
        self._parking = UnschedulableUnits(class_of)
        self._lifts: dict[str, Pod] = {}  # uid -> pod whose gang gate may be lifted
        self._tokens = itertools.count()

    # --- in ---

    def put(self, pod: Pod, now: float) -> None:
        """A pending pod, new or changed."""
        key = key_of(pod)
        if self._unit_of.get(pod.uid, key) != key:
            self.remove(pod.uid, now)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = QueuedUnit(key, since=now)
        old = entry.pods.get(pod.uid)
        entry.put(pod)
        self._unit_of[pod.uid] = key
        if old is None or matters(old) != matters(pod):
            entry.still = False
            self._reconsider(entry, now)

    def put_back(self, pods: Sequence[Pod], now: float) -> None:
        """Pods of one unit whose binds failed. A gang that stands half bound is tried at once,
        the first time; everybody else waits out a backoff."""
        entry = self._return(pods, now)
        self._fail(entry, now)
        if entry.attempts == 1 and self._is_half_bound(entry):
            entry.ready_at = now
        self._sort(entry, now)

    def put_back_refused(self, pods: Sequence[Pod], now: float) -> None:
        """Pods of one unit whose binds the API server will keep refusing."""
        entry = self._return(pods, now)
        for pod in pods:
            times = entry.refusals.get(pod.uid, (0, 0.0))[0]
            wait = min(FIRST_REFUSAL * 2 ** min(times, 10), LONGEST_REFUSAL)
            entry.refusals[pod.uid] = (times + 1, now + wait)
        self._sort(entry, now)

    def remove(self, uid: str, now: float) -> None:
        """A pod that is gone, has its node, or no longer wants one."""
        key = self._unit_of.pop(uid, None)
        self._lifts.pop(uid, None)
        if key is None:
            return
        entry = self._entries[key]
        flew = uid in entry.flying
        entry.drop(uid)
        if not entry.pods and not entry.flying:
            self._leave(entry, now)
            self._parking.discard(key)
            self._held.pop(key, None)
            del self._entries[key]
        elif flew and entry.pods:
            return  # the members that wait are as they were
        elif entry.state is not QueueState.PLANNING:
            self._reconsider(entry, now)

    def reconsider(self, gang: GangKey, now: float) -> None:
        """Members of the gang were bound or went."""
        entry = self._entries.get(gang)
        if entry is not None and (entry.state in _INCOMPLETE or self._unit(entry).forming):
            self._reconsider(entry, now)

    def regroup(self, gang: GangKey, now: float) -> None:
        """The gang's PodGroup object came, changed or went."""
        entry = self._entries.get(gang)
        if entry is not None and entry.state is not QueueState.PLANNING:
            self._reconsider(entry, now)

    def suspend(self, key: UnitKey, now: float) -> None:
        """Nobody plans the unit until `resume`."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.suspended = True
            self._sort(entry, now)

    def resume(self, key: UnitKey, now: float) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.suspended:
            entry.suspended = False
            self._fail(entry, now)
            self._sort(entry, now)

    # --- out ---

    def pop(self, now: float) -> Unit | None:
        """The next unit to plan; answer with `take` for who was placed and `park` for the rest."""
        while (key := self._active.pop()) is not None:
            entry = self._entries[key]
            entry.pardon(now)
            unit = self._unit(entry)
            if not unit.plannable:
                self._sort(entry, now)
                continue
            self._place(entry, QueueState.PLANNING)
            return unit
        return None

    def take(self, key: UnitKey, uids: Iterable[str], now: float) -> None:
        """These pods of the unit have been given nodes, and their binds are in flight."""
        entry = self._entries[key]
        for uid in uids:
            entry.fly(uid)
        self._leave(entry, now)
        entry.why = None
        self._sort(entry, now)

    def finish(self, uid: str, now: float) -> None:
        """The bind happened."""
        if uid in self._unit_of:
            entry = self._entries[self._unit_of[uid]]
            if uid in entry.flying:
                entry.attempts = 0
            self.remove(uid, now)

    def park(self, key: UnitKey, now: float, why: NoFit | None = None) -> None:
        """The unit, or what is left of it, did not fit."""
        entry = self._entries.get(key)
        if entry is None or not entry.pods:
            return
        self._fail(entry, now)
        self._come_in(entry)
        entry.why = why
        unit = self._unit(entry)
        if not unit.plannable:
            self._sort(entry, now)
            return
        self._place(entry, QueueState.PARKED)
        entry.signature = self._parking.add(unit, self._rank(entry, now))
        due = now + LONGEST_PARKING
        if unit.is_gang and entry.waiting_since is not None and not self._is_starving(entry, now):
            # Tried once more when it starves: nodes may be held for it then.
            due = min(due, entry.waiting_since + self._starving_after)
        self._timer(entry, due)

    def wake(self, now: float, helps: Callable[[Pod], QueueingHint]) -> int:
        """Parked units that a change may help are tried again, each not before its backoff ends.
        `helps` is asked about one pod of each class."""
        found = self._parking.helped(helps, lambda key: self._entries[key].ready_at <= now)
        for key, signature in found:
            self._wake(key, signature, now)
        return len(found)

    def hold_back(self, key: UnitKey, now: float, why: NoFit) -> None:
        """The unit's tenant may not have it now; `let_go` when it may."""
        entry = self._entries.get(key)
        if entry is None or not entry.pods:
            return
        self._leave(entry, now)
        entry.why = why
        if self._unit(entry).plannable:
            self._place(entry, QueueState.HELD)
            self._held[key] = None
            self._timer(entry, now + LONGEST_PARKING)
        else:
            self._sort(entry, now)

    def let_go(self, key: UnitKey, now: float) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.state is QueueState.HELD:
            self._sort(entry, now)

    def retry(self, key: UnitKey, now: float) -> None:
        """What the unit waits for has happened: it is tried at once."""
        entry = self._entries.get(key)
        if entry is not None and entry.state in (QueueState.PARKED, QueueState.BACKOFF):
            entry.ready_at = now
            self._ready(entry, now)

    def lifts(self) -> list[Pod]:
        """Pods whose gang is complete and whose gang gate is to be lifted, each told once."""
        found, self._lifts = list(self._lifts.values()), {}
        return found

    def tick(self, now: float) -> list[Unit]:
        """Let time pass; the forming gangs that are due to be told about."""
        due: list[Unit] = []
        while self._timers and self._timers[0][0] <= now:
            _, token, key = heapq.heappop(self._timers)
            if not self._stands(key, token):
                continue
            entry = self._entries[key]
            if entry.state is QueueState.PARKED:
                self._flush(entry, now)
                continue
            if entry.state is QueueState.FORMING:
                entry.still = True
                due.append(self._unit(entry))
            self._sort(entry, now, keep=True)
        return due

    def next_at(self) -> float | None:
        """When `tick` next has something to do; may be early, never late."""
        return self._timers[0][0] if self._timers else None

    # --- moves ---

    def _reconsider(self, entry: QueuedUnit, now: float) -> None:
        """The unit itself changed: it forms, or is tried as soon as its backoff allows."""
        self._leave(entry, now)
        if self._plainly_forming(entry):
            self._form(entry, now)
        else:
            self._sort(entry, now)

    def _sort(self, entry: QueuedUnit, now: float, *, keep: bool = False) -> None:
        """Put the unit where it belongs; `keep`: a forming gang has not changed."""
        entry.pardon(now)
        if not entry.pods:
            self._place(entry, QueueState.BINDING)
            return
        if entry.suspended:
            self._place(entry, QueueState.SUSPENDED)
            return
        unit = self._unit(entry)
        if not unit.forming:
            self._lifts.update((pod.uid, pod) for pod in unit.gated)
        if unit.plannable:
            self._ready(entry, now)
        elif unit.gated and not unit.forming:
            self._place(entry, QueueState.GATED)
            self._timer(entry, now + ASK_AGAIN)
        elif unit.refused and unit.exist + unit.refused >= unit.size and not unit.size_unknown:
            self._place(entry, QueueState.REFUSED)
            self._timer(entry, entry.pardoned_at())
        else:
            self._form(entry, now, told=unit if keep else None)

    def _form(self, entry: QueuedUnit, now: float, *, told: Unit | None = None) -> None:
        """Told about when it stands still, then at its timeout."""
        if entry.state is not QueueState.FORMING:
            entry.forming_since = now
        self._place(entry, QueueState.FORMING)
        if told is None:
            self._timer(entry, now + STILL)
        elif now < (deadline := entry.forming_since + told.timeout):
            self._timer(entry, deadline)
        elif entry.refusals:
            self._timer(entry, entry.pardoned_at())

    def _ready(self, entry: QueuedUnit, now: float) -> None:
        if entry.waiting_since is None:
            entry.waiting_since = now
        if now >= entry.ready_at:
            self._place(entry, QueueState.ACTIVE)
            item = (self._rank(entry, now), entry.token, entry.key)
            self._active.push(entry.tenant, item, units=len(self._entries))
        else:
            self._place(entry, QueueState.BACKOFF)
            self._timer(entry, entry.ready_at)

    def _place(self, entry: QueuedUnit, state: QueueState) -> None:
        if entry.state is QueueState.PARKED:
            self._parking.discard(entry.key)
        if entry.state is QueueState.HELD:
            self._held.pop(entry.key, None)
        if state is QueueState.FORMING:
            entry.waiting_since = None
        entry.state = state
        entry.token = next(self._tokens)

    def _wake(self, key: UnitKey, signature: Signature, now: float) -> None:
        entry = self._entries[key]
        entry.woken = signature
        self._parking.out(signature)
        self._ready(entry, now)

    def _come_in(self, entry: QueuedUnit) -> Signature | None:
        """The unit answers for its equals no more."""
        signature, entry.woken = entry.woken, None
        if signature is not None:
            self._parking.back(signature)
        return signature

    def _leave(self, entry: QueuedUnit, now: float) -> None:
        """The unit that was woken is tried no more, or was placed: the next one follows."""
        signature = self._come_in(entry)
        if signature is None:
            return
        key = self._parking.next_of(signature, lambda key: self._entries[key].ready_at <= now)
        if key is not None:
            self._wake(key, signature, now)

    def _flush(self, entry: QueuedUnit, now: float) -> None:
        """Parked for long: one of its equals is tried in any case."""
        self._timer(entry, now + LONGEST_PARKING)
        signature = entry.signature or ()
        key = self._parking.flush(signature, now, LONGEST_PARKING)
        if key is not None:
            self._wake(key, signature, now)

    def _return(self, pods: Iterable[Pod], now: float) -> QueuedUnit:
        entry: QueuedUnit | None = None
        for pod in pods:
            key = key_of(pod)
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = QueuedUnit(key, since=now)
            entry.put(pod)
            self._unit_of[pod.uid] = key
        if entry is None:
            raise ValueError("no pods")
        return entry

    def _fail(self, entry: QueuedUnit, now: float) -> None:
        entry.attempts += 1
        delay = min(FIRST_BACKOFF * 2 ** min(entry.attempts - 1, 10), LONGEST_BACKOFF)
        entry.ready_at = now + delay

    def _timer(self, entry: QueuedUnit, at: float) -> None:
        """What is void is thrown away now and then: a standby sets timers for weeks."""
        heap = self._timers
        heapq.heappush(heap, (at, entry.token, entry.key))
        if len(heap) > 4 * len(self._entries) + SPARE:
            heap[:] = [one for one in heap if self._stands(one[2], one[1])]
            heapq.heapify(heap)

    def _stands(self, key: UnitKey, token: int) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.token == token


_INCOMPLETE: Final = (QueueState.FORMING, QueueState.GATED, QueueState.REFUSED)
