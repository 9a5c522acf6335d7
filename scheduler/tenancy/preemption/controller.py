"""
Making room for a unit that does not fit: deciding, evicting, and keeping the room until it binds.

    does not fit ──somebody could go──▶ rehearsed ──▶ nominated ──▶ evicted ──▶ victims gone
         ▲                                  │ refused                   │            │
         └───── nobody went: as before ─────┘                           │       planned, bound
                                                                        ▼            │ failed
           refused after others went, or it does not fit after all ──▶ looked for again ◀┘
           too long ──▶ the room is open, it waits like others; evictions were in vain

One search for a unit at a time, and none while its victims are going: evicting more would not make
them go faster. Where more have to go, those who are going count as gone, and the fewest more go.
The room is kept by counting the unit's pods on their nodes (`holds`), so that nobody takes what was
freed for it, until its binds are answered. For whom it is kept is written down before anybody goes
(nominatedNodeName): a successor keeps the same room and goes on with the victims that are left.

Room is kept for a minute beyond the victims' grace. A pod that ignores its grace cannot be taken
back, and nobody else can use its room: as long as it is ending, and the unit would fit without it,
the room is kept on, up to ten minutes, by which time a node that died has been found out.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from cluster import backoff
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache
from scheduler.cache.reserved_capacity import ReservedCapacity
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.placeholder import is_placeholder
from scheduler.model.plan import Placement, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan.memo import Memo
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics
from scheduler.tenancy.preemption.evaluator import Evaluator
from scheduler.tenancy.preemption.executor import EvictionProgress, Evictor, NominationClearer
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.preemption.rate_limit import FIRST, LATEST, SearchRateLimit
from scheduler.tenancy.preemption.victims import PreemptionPlan
from scheduler.tenancy.quota.accounting import QuotaAccounts

WAIT_SECONDS: Final = 60.0  # for victims to go, beyond their grace
LONGEST_WAIT: Final = 600.0  # for victims that ignore their grace
INHERITED: Final = 15.0  # for a unit to be complete that a predecessor promised nodes
LEFT_ALONE: Final = 60.0  # a pod whose eviction was refused
LEFT_ALONE_SHORTLY: Final = 5.0  # the same, while others are going already
NEXT_LOOK: Final = 1.0  # for a unit whose victims were not enough; doubled every time
LATEST_LOOK: Final = 10.0


@dataclass(slots=True)
class Attempt:
    unit: Unit
    until: float
    """The room is kept so long, and longer only while somebody is ending."""
    latest: float
    """The room is kept so long at the most."""
    places: tuple[Placement, ...] = ()
    victims: set[str] = field(default_factory=set)
    """uids of those who have to go and have not gone yet"""
    told: tuple[Placement, ...] = ()
    """Where pods were told that they are to be."""
    evicted: int = 0
    task: asyncio.Task[None] | None = None
    look_at: float = math.inf
    """When it is looked at whether those who go are enough."""
    pause: float = 0.0
    """How long it was until then, after a look."""

    @property
    def busy(self) -> bool:
        """Whether evictions are being asked for."""
        return self.task is not None and not self.task.done()


class PendingMembers(Protocol):
    """Reservations for gang members that are not created yet."""

    def extended(self, unit: Unit) -> Unit:
        """The unit with placeholders for these members."""
        ...

    def kept(self, key: UnitKey) -> tuple[Placement, ...]: ...

    def get(self, key: UnitKey) -> object | None: ...


class PreemptionController:
    """`plan` places a unit on the snapshot, away from closed nodes; `epoch` is the time of day."""

    def __init__(
        self,
        *,
        cache: Cache,
        accounts: QuotaAccounts,
        budgets: DisruptionBudgets,
        reservations: PendingMembers,
        queue: SchedulingQueue,
        holds: ReservedCapacity,
        evictor: Evictor | None,
        metrics: Metrics,
        scheduler: str,
        plan: Callable[[Unit, frozenset[str], Memo], Plan],
        rank: Callable[[str], int],
        group: Callable[[GangKey], PodGroup | None],
        now: Callable[[], float],
        epoch: Callable[[], float],
        wake: Callable[[], None],
        freed: Callable[[Iterable[str]], None],
        start_reservations: Callable[[], Iterable[StartReservation]],
        tasks: BackgroundTasks,
    ) -> None:
        self._tasks = tasks
        self._cache, self._queue, self._holds, self._evictor = cache, queue, holds, evictor
        self._metrics, self._now, self._wake, self._freed = metrics, now, wake, freed
        self._budgets = budgets
        self._reservations = reservations
        self._searching = Evaluator(
            cache,
            accounts=accounts,
            budgets=budgets,
            metrics=metrics,
            scheduler=scheduler,
            plan=plan,
            rank=rank,
            group=group,
            now=now,
            epoch=epoch,
            asked=self._asked,
            start_reservations=start_reservations,
        )
        self._attempts: dict[UnitKey, Attempt] = {}
        self._flying: dict[UnitKey, tuple[Attempt, tuple[Placement, ...]]] = {}  # being bound
        self._pacing = SearchRateLimit()
        self._nominating = NominationClearer(evictor, self._done, tasks)
        self._resumed = False

    def __len__(self) -> int:
        """Units whose victims are going."""
        return len(self._attempts)

    @property
    def attempts(self) -> Collection[Attempt]:
        return self._attempts.values()

    @property
    def asking(self) -> bool:
        """Whether evictions are being asked for."""
        return self._nominating.busy or any(one.busy for one in self._attempts.values())

    def _asked(self) -> Iterator[str]:
        for attempt in self._attempts.values():
            yield from attempt.victims

    def _asked_on(self, nodes: set[str]) -> list[str]:
        """Whoever was asked to go from these nodes, for anybody, and is still there."""
        found = ((uid, self._cache.held(uid)) for uid in self._asked())
        return [uid for uid, held in found if held is not None and held.node in nodes]

    # --- in the cycle ---

    def consider(self, unit: Unit) -> bool:
        """Called for a unit that did not fit; whether somebody goes for it."""
        now = self._now()
        if self._evictor is None:
            return False
        attempt = self._attempts.get(unit.key)
        if attempt is not None:
            # It should have fitted by now: looked at in the next tick.
            if not (attempt.victims or attempt.busy or attempt.pause):
                attempt.look_at = now
            return True
        grounds = self._searching.grounds(unit)
        like = self._searching.like(unit, grounds) if grounds else None
        if not grounds or not self._pacing.may(unit.key, like, now):
            return False
        verdict = self._searching.look(unit, grounds)
        self._pacing.took(now, self._now())
        if verdict is None:
            entitled = any(asks.entitled for asks, _ in grounds)
            self._pacing.failed(unit.key, like, now, latest=FIRST if entitled else LATEST)
            return False
        self._begin(unit, verdict, now)
        return True

    def oust(self, unit: Unit, verdict: PreemptionPlan) -> bool:
        """Who goes was decided elsewhere; whether they do."""
        if self._evictor is None:
            return False
        if unit.key not in self._attempts:
            self._begin(unit, verdict, self._now())
        return True

    def asked(self, key: UnitKey) -> bool:
        """Whether somebody goes for the unit."""
        return key in self._attempts

    def _begin(self, unit: Unit, verdict: PreemptionPlan, now: float) -> None:
        attempt = Attempt(unit, now, now + grace(verdict) + LONGEST_WAIT)
        self._attempts[unit.key] = attempt
        self._pursue(attempt, verdict, now)

    def _pursue(self, attempt: Attempt, verdict: PreemptionPlan, now: float) -> None:
        """Keep the room that the verdict gives, and ask whoever has to go for it."""
        attempt.places = tuple(
            Placement(one.pod, one.node, one.assignment) for one in verdict.plan.placements
        )
        self._holds.put(attempt.unit.key, attempt.places)
        victims = [one.pod for one in verdict.pods]
        attempt.victims.update(self._asked_on({one.node for one in attempt.places}))
        if victims:
            attempt.victims.update(pod.uid for pod in victims)
            until = max(attempt.until, now + grace(verdict) + WAIT_SECONDS)
            attempt.until = min(until, attempt.latest)
            attempt.pause = 0.0
            attempt.task = self._tasks.start(self._carry_out(attempt, victims))
            attempt.task.add_done_callback(self._done)
        elif attempt.evicted == 0:
            attempt.until = min(now + WAIT_SECONDS, attempt.latest)
        attempt.look_at = max(attempt.until, now + LATEST_LOOK)

    # --- asking ---

    async def _carry_out(self, attempt: Attempt, victims: Sequence[Pod]) -> None:
        assert self._evictor is not None
        left = {pod.uid for pod in victims}

        def went(pod: Pod) -> None:
            left.discard(pod.uid)
            attempt.evicted += 1
            self._metrics.preemption.labels("evicted").inc()

        watched = EvictionProgress(
            wanted=lambda: self._stands(attempt) and self._now() < attempt.until,
            ends=self._ends,
            guarded=lambda pod: bool(self._budgets.of(pod)),
            went=went,
            anybody=lambda: attempt.evicted > 0,
        )
        staying = await self._evictor.rehearse(victims)
        if not staying and await self._evictor.nominate(newly_told(attempt), wanted=watched.wanted):
            staying = await self._evictor.evict(attempt.unit, victims, watched)
        if self._stands(attempt):
            self._stay(left)
            self._take(attempt, staying, whole=not left)
        self._wake()

    def _stands(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.unit.key) is attempt

    def _ends(self, pod: Pod) -> bool:
        """As far as the watch has said."""
        held = self._cache.held(pod.uid)
        return held is None or held.pod.terminating

    def _take(self, attempt: Attempt, staying: Sequence[Pod], *, whole: bool) -> None:
        """`whole`: everybody is going; those who stay were refused."""
        now, key = self._now(), attempt.unit.key
        for pod in staying:
            self._metrics.preemption.labels("refused").inc()
            seconds = LEFT_ALONE_SHORTLY if attempt.evicted else LEFT_ALONE
            self._searching.leave_alone(pod, seconds)
        if whole:
            if not attempt.victims:
                self._all_gone(attempt)
        elif attempt.evicted:
            attempt.look_at = now
        else:
            self._end(key)
            if staying:
                self._pacing.free(key)
                self._queue.retry(key, now)
            else:
                self._pacing.failed(key, key, now)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._wake()

    # --- what happens meanwhile ---

    def gone(self, uid: str) -> None:
        """The pod left its node."""
        self._searching.forget(uid)
        for attempt in self._attempts.values():
            if uid in attempt.victims:
                attempt.victims.discard(uid)
                if not attempt.victims:
                    self._all_gone(attempt)

    def _all_gone(self, attempt: Attempt) -> None:
        """Time to be planned, however long they took."""
        now = self._now()
        attempt.until = max(attempt.until, now + LATEST_LOOK)
        attempt.latest = max(attempt.latest, attempt.until)
        self._queue.retry(attempt.unit.key, now)
        self._wake()

    def placed(self, key: UnitKey, placements: Sequence[Placement] = ()) -> None:
        """The unit has its nodes; what was kept for it is its own, if it is bound."""
        self._pacing.forget(key)
        attempt = self._attempts.pop(key, None)
        if attempt is None:
            return
        self._stay(uid for uid in attempt.victims if not self._is_ending(uid))
        self._holds.end(key)
        places = tuple(Placement(one.pod, one.node, one.assignment) for one in placements)
        self._flying[key] = attempt, places

    def tick(self) -> None:
        """Open what was kept too long; look again where it is time."""
        now = self._now()
        if not self._resumed:
            self._resume(now)
        for key in self._pacing.due(now):
            if self._queue.unit(key) is None:
                self._pacing.forget(key)
            else:
                self._queue.retry(key, now)
        if self._flying:
            for key in list(self._flying):
                self._land(key, now)
        if self._attempts:
            for key, attempt in list(self._attempts.items()):
                self._look_after(key, attempt, now)

    def _land(self, key: UnitKey, now: float) -> None:
        """Binds were answered: the room of those that failed is kept once more."""
        attempt, places = self._flying[key]
        held = [self._cache.held(one.pod.uid) for one in places]
        if any(one is not None and one.assumed for one in held):
            return
        del self._flying[key]
        failed = tuple(
            one
            for one, there in zip(places, held, strict=True)
            if there is None and one.pod.uid in self._queue
        )
        if not failed or key in self._attempts or key in self._holds:
            self._metrics.preemption.labels("placed").inc()
            return
        to_come = (one for one in attempt.places if is_placeholder(one.pod))
        attempt.places, attempt.victims = (*failed, *to_come), set()
        attempt.until = max(attempt.until, now + WAIT_SECONDS)
        attempt.latest = max(attempt.latest, attempt.until)
        attempt.look_at = attempt.until
        self._holds.put(key, attempt.places)
        self._attempts[key] = attempt

    def _look_after(self, key: UnitKey, attempt: Attempt, now: float) -> None:
        late = now >= attempt.until and not any(map(self._is_ending, attempt.victims))
        if late or now >= attempt.latest or self._queue.unit(key) is None:
            self._give_up(key, attempt)
        elif now >= attempt.look_at and not attempt.busy:
            self._look_again(key, attempt, now)

    def _is_ending(self, uid: str) -> bool:
        held = self._cache.held(uid)
        return held is not None and held.pod.terminating

    def _look_again(self, key: UnitKey, attempt: Attempt, now: float) -> None:
        """Those who go were not enough, or take too long, or a predecessor chose them."""
        attempt.pause = backoff.doubled(attempt.pause, first=NEXT_LOOK, most=LATEST_LOOK)
        attempt.look_at = now + attempt.pause
        unit = self._queue.unit(key)
        if unit is None or not unit.plannable:
            return
        attempt.unit = self._reservations.extended(unit)
        nodes = frozenset(one.node for one in attempt.places)
        verdict = self._searching.again(attempt.unit, nodes)
        if verdict is not None:
            self._pursue(attempt, verdict, now)
            if not (attempt.victims or attempt.busy):
                self._queue.retry(key, now)
        elif not (attempt.victims or attempt.evicted):
            self._give_up(key, attempt)

    def next_at(self) -> float | None:
        """When `tick` next has something to do."""
        due = [self._pacing.next_at()]
        for one in self._attempts.values():
            ends = one.latest if one.until <= self._now() else one.until
            due.append(ends if one.busy else min(ends, one.look_at))
        return min((at for at in due if at is not None), default=None)

    def _give_up(self, key: UnitKey, attempt: Attempt) -> None:
        if attempt.evicted:
            self._metrics.preemption.labels("wasted").inc(attempt.evicted)
        self._end(key)

    def _stay(self, uids: Iterable[str]) -> None:
        """They do not go after all: whoever counted on it looks again."""
        staying = set(uids)
        for attempt in self._attempts.values() if staying else ():
            if not attempt.victims.isdisjoint(staying):
                attempt.victims -= staying
                attempt.look_at = min(attempt.look_at, self._now())

    def _end(self, key: UnitKey) -> None:
        attempt = self._attempts.pop(key)
        self._stay(uid for uid in attempt.victims if not self._is_ending(uid))
        kept = self._reservations.kept(key)
        self._freed(self._holds.end(key))
        if kept and self._reservations.get(key) is not None:
            self._holds.put(key, kept)
        if attempt.told:
            self._nominating.clear(attempt.told, after=attempt.task)

    # --- after a restart ---

    def _resume(self, now: float) -> None:
        """Keep what a predecessor kept, as far as the pods still say so, and go on from there."""
        self._resumed = True
        if self._evictor is None:
            return
        for key, pods in sorted(self._queue.nominated().items(), key=lambda row: str(row[0])):
            unit = self._queue.unit(key)
            places = tuple(
                Placement(pod, pod.nominated, NO_ASSIGNMENT)
                for pod in sorted(pods, key=lambda pod: pod.uid)
            )
            if unit is None or key in self._holds:
                self._nominating.clear(places)
                continue
            nodes = {one.node for one in places}
            going = [
                one.pod
                for one in self._cache.occupants()
                if one.pod.terminating and one.node in nodes
            ]
            wait = max(
                (pod.attributes.grace_period + WAIT_SECONDS for pod in going), default=INHERITED
            )
            attempt = Attempt(
                unit,
                now + wait,
                now + wait + LONGEST_WAIT,
                places,
                {pod.uid for pod in going},
                places,
                len(going),
                look_at=now,
            )
            self._holds.put(key, places)
            self._attempts[key] = attempt


def grace(verdict: PreemptionPlan) -> float:
    """The longest of those who go."""
    return max((one.pod.attributes.grace_period for one in verdict.pods), default=0.0)


def newly_told(attempt: Attempt) -> list[tuple[Pod, str]]:
    """Pods that exist and were not told yet where they are to be; from now on they are."""
    known = {one.pod.uid: one.node for one in attempt.told}
    attempt.told = tuple(one for one in attempt.places if not is_placeholder(one.pod))
    return [(one.pod, one.node) for one in attempt.told if known.get(one.pod.uid) != one.node]
