"""
Making room for a unit that does not fit: deciding, evicting, and keeping the room until it binds.

    does not fit ──may ask, somebody could go──▶ search ──▶ evictions asked for, room kept
                                                   │              │
                                                   └─ nobody ──▶ waits     victims gone ──▶ planned
                                                                  │
          refused by a budget: the pod stays, and is left out of the next search for a while
          too long: the room is open again, and it waits like others

One search for a unit at a time, and none while its victims are going: evicting more would not make
them go faster. The room is kept by counting the unit's pods on their nodes (`holds`), so that
nobody takes what was freed for it. The pods are told these nodes (nominatedNodeName), and by that
a successor keeps the same room: what was evicted before a crash is not lost for the unit. A search
that found nobody is made again after a while (`pacing`).
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..cache import Cache
from ..filters import Memo
from ..groups import Group
from ..hardware.assignment import NOWHERE
from ..metrics import Metrics
from ..model import GangKey, Pod
from ..outcome import Plan
from ..queueing import Queue
from ..units import Unit, UnitKey
from . import budgets, eligible
from .evicting import Evictor, Outcome
from .holds import Holds
from .ledger import Ledger
from .pacing import Pacing
from .victims import Occupant, Search, Verdict, spared

WAIT_SECONDS: Final = 60.0  # for victims to go, beyond their grace
LEFT_ALONE: Final = 60.0  # a pod whose eviction was refused

_Ground = tuple[eligible.Claim, frozenset[str]]


@dataclass(slots=True)
class _Attempt:
    unit: Unit
    victims: set[str]  # uids that have not gone yet
    until: float
    places: tuple[Occupant, ...] = ()
    task: asyncio.Task[None] | None = None
    evicted: list[Pod] = field(default_factory=list)
    nominated: bool = False


class Preempting:
    """`plan` places a unit on the snapshot as it stands; `epoch` is the time of day."""

    def __init__(
        self,
        *,
        cache: Cache,
        queue: Queue,
        holds: Holds,
        evictor: Evictor | None,
        metrics: Metrics,
        scheduler: str,
        plan: Callable[[Unit, frozenset[str], Memo], Plan],
        rank: Callable[[str], int],
        group: Callable[[GangKey], Group | None],
        now: Callable[[], float],
        epoch: Callable[[], float],
        wake: Callable[[], None],
        freed: Callable[[Iterable[str]], None],
    ) -> None:
        self._cache, self._queue, self._holds, self._evictor = cache, queue, holds, evictor
        self._metrics, self._scheduler, self._plan = metrics, scheduler, plan
        self._rank, self._group = rank, group
        self._now, self._epoch, self._wake, self._freed = now, epoch, wake, freed
        self._attempts: dict[UnitKey, _Attempt] = {}
        self._pacing = Pacing()
        self._owed: dict[UnitKey, tuple[int, float]] = {}  # pods gone for a unit, until when
        self._left_alone: dict[str, float] = {}  # pod uid -> until when
        self._clearing: set[asyncio.Task[None]] = set()
        self._resumed = False
        self.broken: BaseException | None = None

    def __len__(self) -> int:
        """Units whose victims are going."""
        return len(self._attempts)

    @property
    def asking(self) -> bool:
        """Whether evictions are being asked for."""
        tasks = (attempt.task for attempt in self._attempts.values())
        return bool(self._clearing) or any(task is not None and not task.done() for task in tasks)

    # --- in the cycle ---

    def consider(self, unit: Unit) -> bool:
        """Called for a unit that did not fit; whether somebody goes for it."""
        now = self._now()
        if self._evictor is None or unit.key in self._attempts:
            return unit.key in self._attempts
        grounds = self._grounds(unit)
        if not grounds:
            return False
        like = self._like(unit, grounds)
        if not self._pacing.may(unit.key, like, now):
            return False
        found = (self._search(unit, asks, closed) for asks, closed in grounds)
        verdict = next((one for one in found if one is not None), None)
        self._pacing.took(now, self._now())
        if verdict is None:
            self._pacing.failed(unit.key, like, now)
            return False
        self._begin(unit, verdict, now)
        return True

    def _grounds(self, unit: Unit) -> list[_Ground]:
        """
        By what right somebody may be asked to go, and the nodes on which it is none.

        That of the promise first, on the nodes that are within it; then the others, on any node.
        """
        accounts = self._cache.accounts
        beyond = accounts.beyond(unit, self._cache.snapshot.columns.rows)
        rights = [(True, beyond)] if beyond is not None else []
        if beyond is None or beyond:
            rights.append((False, frozenset()))
        claims = ((eligible.claim(unit, entitled=right), closed) for right, closed in rights)
        return [
            (asks, closed)
            for asks, closed in claims
            if asks is not None and self._somebody(asks, accounts.ledger)
        ]

    def _like(self, unit: Unit, grounds: Sequence[_Ground]) -> Hashable:
        """Equal for units that a search answers alike."""
        if unit.bound:
            return unit.key
        shapes = {pod.shape: pod for pod in unit.pods}
        signatures = frozenset((s, self._cache.snapshot.signature(p)) for s, p in shapes.items())
        rights = tuple((asks.entitled, asks.yields) for asks, _ in grounds)
        return unit.tenant, unit.priority, unit.need, signatures, rights

    def oust(self, unit: Unit, verdict: Verdict) -> bool:
        """Who goes was decided elsewhere; whether they do."""
        if self._evictor is None:
            return False
        if unit.key not in self._attempts:
            self._begin(unit, verdict, self._now())
        return True

    def asked(self, key: UnitKey) -> bool:
        """Whether somebody goes for the unit."""
        return key in self._attempts

    def _search(self, unit: Unit, asks: eligible.Claim, closed: frozenset[str]) -> Verdict | None:
        view = eligible.View(
            self._scheduler, self._epoch(), self._rank, self._group, self._is_left_alone
        )
        found = eligible.bundles(self._cache.occupants(), asks, view)
        accounts, snapshot = self._cache.accounts, self._cache.snapshot
        able = spared(found, accounts.ledger, lambda one: accounts.amounts(one.pod, one.node))
        self._metrics.preemption.labels("search").inc()
        return budgets.within(
            self._cache.budgets,
            able,
            lambda: Search(snapshot, lambda memo: self._plan(unit, closed, memo), unit.need),
        )

    def _somebody(self, asks: eligible.Claim, ledger: Ledger) -> bool:
        """A quick look: most units that do not fit have nobody to ask."""
        lowest = self._cache.lowest(asks.tenant)
        if lowest is not None and lowest < asks.priority:
            return True
        if self._cache.yielding and not asks.yields:
            return True
        return asks.entitled and any(name != asks.tenant for name in ledger.members())

    def _is_left_alone(self, pod: Pod) -> bool:
        return self._left_alone.get(pod.uid, 0.0) > self._now()

    def _begin(self, unit: Unit, verdict: Verdict, now: float) -> None:
        victims = [one.pod for one in verdict.pods]
        places = tuple(
            Occupant(one.pod, one.node, one.assignment) for one in verdict.plan.placements
        )
        self._holds.put(unit.key, places)
        grace = max(pod.terms.grace for pod in victims)
        until = now + grace + WAIT_SECONDS
        attempt = _Attempt(unit, {pod.uid for pod in victims}, until, places)
        self._attempts[unit.key] = attempt
        attempt.task = asyncio.create_task(self._evict(attempt, victims))
        attempt.task.add_done_callback(self._done)

    async def _evict(self, attempt: _Attempt, victims: Sequence[Pod]) -> None:
        assert self._evictor is not None
        outcome = await self._evictor.evict(attempt.unit, victims)
        self._take(attempt, outcome)
        if self._stands(attempt):
            attempt.nominated = True
            places = [(one.pod, one.node) for one in attempt.places]
            await self._evictor.nominate(places, wanted=lambda: self._stands(attempt))

    def _stands(self, attempt: _Attempt) -> bool:
        return self._attempts.get(attempt.unit.key) is attempt

    def _take(self, attempt: _Attempt, outcome: Outcome) -> None:
        now = self._now()
        attempt.evicted += outcome.going
        self._metrics.preemption.labels("evicted").inc(len(outcome.going))
        for pod in outcome.staying:
            self._left_alone[pod.uid] = now + LEFT_ALONE
        if outcome.staying:
            self._metrics.preemption.labels("refused").inc(len(outcome.staying))
            if outcome.going:
                gone = self._owed.pop(attempt.unit.key, (0, 0.0))[0] + len(outcome.going)
                self._owed[attempt.unit.key] = (gone, now + WAIT_SECONDS)
            self._end(attempt.unit.key)
            self._pacing.free(attempt.unit.key)
            self._queue.retry(attempt.unit.key, now)
        self._wake()

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            self.broken = exc
        self._wake()

    # --- after a restart ---

    def resume(self) -> None:
        """Keep what a predecessor kept, as far as the pods still say so."""
        self._resumed = True
        if self._evictor is None:
            return
        for key, pods in sorted(self._queue.nominated().items(), key=lambda row: str(row[0])):
            unit = self._queue.unit(key)
            places = tuple(
                Occupant(pod, pod.nominated, NOWHERE)
                for pod in sorted(pods, key=lambda pod: pod.uid)
                if pod.nominated in self._cache.snapshot
            )
            if unit is None or not unit.plannable or len(places) < unit.need:
                self._clear(places)
            else:
                self._resume(unit, places)

    def _resume(self, unit: Unit, places: tuple[Occupant, ...]) -> None:
        nodes = {one.node for one in places}
        going = [
            one.pod for one in self._cache.occupants() if one.pod.terminating and one.node in nodes
        ]
        self._holds.put(unit.key, places)
        grace = max((pod.terms.grace for pod in going), default=0.0)
        until = self._now() + grace + WAIT_SECONDS
        uids = {pod.uid for pod in going}
        self._attempts[unit.key] = _Attempt(unit, uids, until, places, nominated=True)

    # --- what happens meanwhile ---

    def gone(self, uid: str) -> None:
        """The pod left its node."""
        self._left_alone.pop(uid, None)
        for key, attempt in self._attempts.items():
            if uid in attempt.victims:
                attempt.victims.discard(uid)
                if not attempt.victims:
                    self._queue.retry(key, self._now())
                    self._wake()

    def placed(self, key: UnitKey) -> None:
        """The unit has its nodes: what was kept for it is its own now."""
        self._pacing.forget(key)
        if self._owed:
            self._owed.pop(key, None)
        if self._attempts.pop(key, None) is not None:
            self._holds.end(key)
            self._metrics.preemption.labels("placed").inc()

    def tick(self) -> None:
        """Open what was kept too long; search again where it is time."""
        now = self._now()
        if not self._resumed:
            self.resume()
        for key in self._pacing.due(now):
            if self._queue.unit(key) is None:
                self._pacing.forget(key)
            else:
                self._queue.retry(key, now)
        for key, (gone, until) in list(self._owed.items()):
            if key not in self._attempts and (self._queue.unit(key) is None or now >= until):
                del self._owed[key]
                self._metrics.preemption.labels("in_vain").inc(gone)
        for key, attempt in list(self._attempts.items()):
            forming = self._queue.unit(key) is None
            if forming or now >= attempt.until:
                if attempt.evicted:
                    self._metrics.preemption.labels("in_vain").inc(len(attempt.evicted))
                self._end(key)

    def next_at(self) -> float | None:
        """When `tick` next has something to do."""
        due = [attempt.until for attempt in self._attempts.values()]
        due += [until for _, until in self._owed.values()]
        if (at := self._pacing.next_at()) is not None:
            due.append(at)
        return min(due, default=None)

    def _end(self, key: UnitKey) -> None:
        attempt = self._attempts.pop(key, None)
        self._freed(self._holds.end(key))
        if attempt is not None and attempt.nominated:
            self._clear(attempt.places, after=attempt.task)

    def _clear(
        self, places: Sequence[Occupant], *, after: asyncio.Task[None] | None = None
    ) -> None:
        """The pods are promised no node any more."""
        if places:
            task = asyncio.create_task(self._clear_all([one.pod for one in places], after))
            self._clearing.add(task)
            task.add_done_callback(self._cleared)

    async def _clear_all(self, pods: Sequence[Pod], after: asyncio.Task[None] | None) -> None:
        assert self._evictor is not None
        if after is not None:
            await asyncio.wait([after])
        await self._evictor.nominate([(pod, "") for pod in pods], wanted=lambda: True)

    def _cleared(self, task: asyncio.Task[None]) -> None:
        self._clearing.discard(task)
        self._done(task)
