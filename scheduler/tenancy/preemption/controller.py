"""
Preempts for a unit that does not fit: finds victims, evicts them, and reserves the capacity.

    does not fit ──victims found──▶ dry run ──▶ nominated ──▶ evicted ──▶ victims gone
         ▲                             │ refused                 │            │
         └──── no pod was evicted ─────┘                         │      planned, bound
                                                                 ▼            │ failed
            refused after evictions, or it still does not fit ──▶ searched again ◀┘
            deadline passed ──▶ the reserved capacity is freed; the evictions were wasted

Searches run one at a time (`search`), and none for a unit whose victims terminate: more evictions
would not make them faster. If more victims are needed, terminating ones count as gone and the
smallest additional set is evicted. The preemptor's pods are charged on their nodes
(`reserved_capacity`), so that no other unit takes the freed capacity before they are bound. The
preemptor's nodes are written before the first eviction (nominatedNodeName): a successor reserves
the same capacity and goes on with the remaining victims. A preemptor may take the capacity that is
reserved for the surplus of a running gang, or evict the whole gang: the gang's own preemption ends,
and its victims become those of the preemptor.

Capacity stays reserved for a minute beyond the victims' grace period. A pod that outlives its grace
period cannot be brought back, and no other unit can use its capacity. As long as it terminates, and
the preemptor fits without it, the capacity stays reserved for up to ten minutes. By then the node
lifecycle controller has detected a dead node.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cluster import backoff
from scheduler.errors import ErrorStep
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.gang import GangKey
from scheduler.model.placeholder import is_placeholder
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit, UnitKey
from scheduler.tenancy.preemption.context import PreemptionContext
from scheduler.tenancy.preemption.evaluator import Evaluator, RuleOnNodes, VictimNames
from scheduler.tenancy.preemption.executor import EvictionProgress, NominationClearer
from scheduler.tenancy.preemption.rate_limit import FIRST, LATEST, SearchRateLimit
from scheduler.tenancy.preemption.search import IN_FORK, SearchRunner
from scheduler.tenancy.preemption.victims import PreemptionPlan

WAIT_SECONDS: Final = 60.0  # for victims, beyond their grace period
LONGEST_WAIT: Final = 600.0  # for victims that outlive their grace period
RESUMED_WAIT: Final = 15.0  # for a preemptor of a predecessor to be complete
PROTECTED: Final = 60.0  # a pod whose eviction was refused
PROTECTED_AFTER_EVICTIONS: Final = 5.0  # the same, after other victims were evicted
FIRST_PAUSE: Final = 1.0  # between searches while victims are not sufficient; doubles
LONGEST_PAUSE: Final = 10.0


@dataclass(slots=True)
class Attempt:
    """One preemption in progress."""

    unit: Unit
    """The preemptor."""
    deadline: float
    """Until then the capacity stays reserved, and longer only while victims terminate."""
    last_deadline: float
    """Until then the capacity stays reserved at the most."""
    placements: tuple[Placement, ...] = ()
    victims: set[str] = field(default_factory=set)
    """uids of victims that have not left their nodes"""
    nominated: tuple[Placement, ...] = ()
    """Pods of the preemptor with a nominated node in their status."""
    evicted: int = 0
    task: asyncio.Task[None] | None = None
    search_at: float = math.inf
    """When the controller checks whether the victims are sufficient."""
    search_pause: float = 0.0
    """The last pause between two searches."""

    @property
    def evicting(self) -> bool:
        """Whether eviction calls are in progress."""
        return self.task is not None and not self.task.done()

    def nominate(self) -> list[tuple[Pod, str]]:
        """Nominations that are not written yet; from now on they count as written."""
        known = {placement.pod.uid: placement.node for placement in self.nominated}
        self.nominated = tuple(
            placement for placement in self.placements if not is_placeholder(placement.pod)
        )
        return [
            (placement.pod, placement.node)
            for placement in self.nominated
            if known.get(placement.pod.uid) != placement.node
        ]


class PreemptionController:
    def __init__(self, context: PreemptionContext) -> None:
        self._context = context
        self._cache = context.cache
        self._queue = context.queue
        self._reserved = context.cache.reserved
        self._reservations = context.reservations
        self._evictor = context.evictor
        self._metrics = context.metrics
        self._now = context.now
        self._evaluator = Evaluator(
            context, nominated=self.nominated_victims, displaceable=self._displaceable
        )
        self._attempts: dict[UnitKey, Attempt] = {}
        self._binding: dict[UnitKey, tuple[Attempt, tuple[Placement, ...]]] = {}
        self._rate_limit = SearchRateLimit()
        self._searches = SearchRunner(
            context.tasks,
            fork=context.fork,
            abandoned=context.metrics.preemption.labels("abandoned").inc,
            wake=context.wake,
            failed=partial(context.isolation.unit_failed, ErrorStep.PREEMPTION),
        )
        self._nomination_clearer = NominationClearer(
            context.evictor, self._task_done, context.tasks
        )
        self._resumed = False

    def __len__(self) -> int:
        """Preemptors whose victims terminate."""
        return len(self._attempts)

    @property
    def attempts(self) -> Collection[Attempt]:
        return self._attempts.values()

    @property
    def writing(self) -> bool:
        """Whether a search, or calls to the API server, are in progress."""
        evicting = any(attempt.evicting for attempt in self._attempts.values())
        return self._nomination_clearer.busy or evicting or self._searches.busy

    def nominated_victims(self) -> Iterator[str]:
        """uids of victims that have not left their nodes, of all preemptors."""
        for attempt in self._attempts.values():
            yield from attempt.victims

    def _nominated_victims_on(self, nodes: set[str]) -> list[str]:
        held = ((uid, self._cache.get(uid)) for uid in self.nominated_victims())
        return [uid for uid, pod in held if pod is not None and pod.node in nodes]

    def _displaceable(self) -> dict[GangKey, tuple[Placement, ...]]:
        """Pending members of gangs with reserved capacity, if all their victims terminate."""
        return {
            key: self._reserved.of(key)
            for key, attempt in self._attempts.items()
            if isinstance(key, GangKey)
            and not attempt.evicting
            and all(map(self._is_terminating, attempt.victims))
            and not any(is_placeholder(placement.pod) for placement in attempt.placements)
        }

    # --- in the cycle ---

    def preempt(self, unit: Unit) -> bool:
        """Called for a unit that did not fit; whether a preemption is in progress for it."""
        now = self._now()
        if self._evictor is None:
            return False
        attempt = self._attempts.get(unit.key)
        if attempt is not None:
            # It should fit by now: the next tick searches again.
            if not (attempt.victims or attempt.evicting or attempt.search_pause):
                attempt.search_at = now
            return True
        if self._searches.is_for(unit.key):
            return True
        rules = self._evaluator.rules(unit)
        if not rules:
            return False
        if self._searches.busy:
            self._rate_limit.postpone(unit.key, now)
            return False
        unit_class, state = self._evaluator.unit_class(unit, rules), self._evaluator.state()
        if not self._rate_limit.may_search(unit.key, unit_class, now, state):
            return False
        latest = FIRST if any(rule.reclaims for rule, _ in rules) else LATEST

        def ended(plan: PreemptionPlan | None) -> bool:
            ended_at = self._now()
            self._rate_limit.searched(now, ended_at)
            if plan is None:
                self._rate_limit.failed(unit.key, unit_class, ended_at, state, latest=latest)
            else:
                self._start(unit, plan, ended_at)
            return plan is not None

        return self._search(unit, rules, ended)

    def _search(
        self,
        unit: Unit,
        rules: Sequence[RuleOnNodes],
        ended: Callable[[PreemptionPlan | None], bool],
    ) -> bool:
        """Whether the search found victims or goes on in a fork; `ended` acts on its plan."""

        def ended_in_fork(names: VictimNames | None) -> None:
            if unit.key in self._attempts or not self._is_unchanged(unit):
                return
            if not ended(self._confirmed(unit, names)):
                self._context.no_victims(unit)

        self._metrics.preemption.labels("search").inc()
        search = partial(self._evaluator.search, unit, rules)
        plan = self._searches.run(unit.key, search, ended_in_fork)
        return plan is IN_FORK or ended(plan)

    def _confirmed(self, unit: Unit, names: VictimNames | None) -> PreemptionPlan | None:
        """The victims that a fork found, if they are right on the present cluster."""
        if names is None:
            return None
        plan = self._evaluator.confirm(unit, names)
        if plan is None:  # it may fit without victims by now
            self._queue.retry(unit.key, self._now())
        return plan

    def _is_unchanged(self, unit: Unit) -> bool:
        """Whether the unit still waits with the same pods."""
        current = self._queue.unit(unit.key)
        if current is None or not current.plannable:
            return False
        whole = self._reservations.with_placeholders(current)
        return [pod.uid for pod in whole.pods] == [pod.uid for pod in unit.pods]

    def evict(self, unit: Unit, plan: PreemptionPlan) -> bool:
        """Evict victims that the caller chose; whether a preemption is in progress for the unit."""
        if self._evictor is None:
            return False
        if unit.key not in self._attempts:
            self._start(unit, plan, self._now())
        return True

    def in_progress(self, key: UnitKey) -> bool:
        return key in self._attempts

    def _start(self, unit: Unit, plan: PreemptionPlan, now: float) -> None:
        attempt = Attempt(unit, now, now + longest_grace_period(plan) + LONGEST_WAIT)
        self._attempts[unit.key] = attempt
        self._execute(attempt, plan, now)

    def _execute(self, attempt: Attempt, plan: PreemptionPlan, now: float) -> None:
        """Reserve the capacity of the plan, and evict its victims."""
        attempt.placements = plan.plan.placements
        self._reserved.put(attempt.unit.key, attempt.placements)
        attempt.victims.update(self._nominated_victims_on({p.node for p in attempt.placements}))
        if plan.groups:
            attempt.victims.update(victim.pod.uid for victim in plan.victims)
            deadline = max(attempt.deadline, now + longest_grace_period(plan) + WAIT_SECONDS)
            attempt.deadline = min(deadline, attempt.last_deadline)
            attempt.search_pause = 0.0
            if not plan.victims:
                self._displace(attempt, plan)
            attempt.task = self._context.tasks.start(
                self._evict(attempt, plan), lambda error: self._failed(attempt, error)
            )
            attempt.task.add_done_callback(self._task_done)
        elif attempt.evicted == 0:
            attempt.deadline = min(now + WAIT_SECONDS, attempt.last_deadline)
        attempt.search_at = max(attempt.deadline, now + LONGEST_PAUSE)

    def _displace(self, attempt: Attempt, plan: PreemptionPlan) -> None:
        """End the preemptions of gangs from which the plan takes their purpose."""
        nodes = {placement.node for placement in attempt.placements}
        for key in plan.displaced:
            displaced = self._attempts.get(key)
            if displaced is None or displaced is attempt:
                continue
            if any(placement.node in nodes for placement in displaced.placements):
                attempt.evicted += displaced.evicted
                displaced.evicted = 0
                attempt.deadline = max(attempt.deadline, displaced.deadline)
                attempt.last_deadline = max(attempt.last_deadline, displaced.last_deadline)
            self._give_up(key, displaced)

    # --- evictions ---

    async def _evict(self, attempt: Attempt, plan: PreemptionPlan) -> None:
        assert self._evictor is not None
        victims = [victim.pod for victim in plan.victims]
        left = {pod.uid for pod in victims}

        def evicted(pod: Pod) -> None:
            left.discard(pod.uid)
            # Another preemptor that counted on the pod may have ended meanwhile.
            if self._cache.get(pod.uid) is not None:
                attempt.victims.add(pod.uid)
            attempt.evicted += 1
            self._metrics.preemption.labels("evicted").inc()

        progress = EvictionProgress(
            is_needed=lambda: self._is_current(attempt) and self._now() < attempt.deadline,
            is_leaving=self._is_leaving,
            has_budget=lambda pod: bool(self._context.budgets.of(pod)),
            evicted=evicted,
            any_evicted=lambda: attempt.evicted > 0,
        )
        refused = await self._evictor.dry_run(victims)
        if victims and not refused and self._is_current(attempt):
            self._displace(attempt, plan)
        if not refused and await self._evictor.nominate(
            attempt.nominate(), is_needed=progress.is_needed
        ):
            refused = await self._evictor.evict(
                attempt.unit, victims, progress, reasons=plan.reasons
            )
        if self._is_current(attempt):
            self._victims_stay(left)
            self._evictions_answered(attempt, refused, all_evicted=not left)
        self._context.wake()

    def _is_current(self, attempt: Attempt) -> bool:
        return self._attempts.get(attempt.unit.key) is attempt

    def _is_leaving(self, pod: Pod) -> bool:
        held = self._cache.get(pod.uid)
        return held is None or held.pod.terminating

    def _evictions_answered(
        self, attempt: Attempt, refused: Sequence[Pod], *, all_evicted: bool
    ) -> None:
        now, key = self._now(), attempt.unit.key
        for pod in refused:
            self._metrics.preemption.labels("refused").inc()
            self._evaluator.protect(
                pod, PROTECTED_AFTER_EVICTIONS if attempt.evicted else PROTECTED
            )
        if all_evicted:
            if not attempt.victims:
                self._victims_gone(attempt)
        elif attempt.evicted:
            attempt.search_at = now
        else:
            self._end(key)
            if refused:
                self._rate_limit.reset(key)
                self._queue.retry(key, now)
            else:
                self._rate_limit.failed(key, key, now)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._context.wake()

    # --- cluster events ---

    def gone(self, uid: str) -> None:
        """The pod left its node."""
        self._evaluator.forget(uid)
        for attempt in self._attempts.values():
            if uid in attempt.victims:
                attempt.victims.discard(uid)
                if not attempt.victims:
                    self._victims_gone(attempt)

    def _victims_gone(self, attempt: Attempt) -> None:
        """Plan the preemptor, also after its deadline."""
        now = self._now()
        attempt.deadline = max(attempt.deadline, now + LONGEST_PAUSE)
        attempt.last_deadline = max(attempt.last_deadline, attempt.deadline)
        self._queue.retry(attempt.unit.key, now)
        self._context.wake()

    def placed(self, key: UnitKey, placements: Sequence[Placement] = ()) -> None:
        """The unit has its nodes; its reserved capacity ends while its pods are bound."""
        self._rate_limit.forget(key)
        self._searches.cancel(key)
        attempt = self._attempts.pop(key, None)
        if attempt is None:
            return
        self._victims_stay(uid for uid in attempt.victims if not self._is_terminating(uid))
        self._reserved.end(key)
        self._binding[key] = attempt, tuple(placements)

    def tick(self) -> None:
        """End attempts after their deadline; search again where it is time."""
        now = self._now()
        if not self._resumed:
            self._resume(now)
        for key in self._rate_limit.due(now):
            if self._queue.unit(key) is None:
                self._rate_limit.forget(key)
            else:
                self._queue.retry(key, now)
        if self._binding:
            for key in list(self._binding):
                with self._context.isolation.unit(ErrorStep.PREEMPTION, key):
                    self._check_binds(key, now)
        if self._attempts:
            for key, attempt in list(self._attempts.items()):
                try:
                    self._check_attempt(key, attempt, now)
                except Exception as error:
                    self._failed(attempt, error)

    def _check_binds(self, key: UnitKey, now: float) -> None:
        """Reserve the capacity again for pods whose bind failed."""
        attempt, placements = self._binding[key]
        held = [self._cache.get(placement.pod.uid) for placement in placements]
        if any(pod is not None and pod.assumed for pod in held):
            return
        del self._binding[key]
        failed = tuple(
            placement
            for placement, pod in zip(placements, held, strict=True)
            if pod is None and placement.pod.uid in self._queue
        )
        if not failed or key in self._attempts or key in self._reserved:
            self._metrics.preemption.labels("placed").inc()
            return
        placeholders = (p for p in attempt.placements if is_placeholder(p.pod))
        attempt.placements = (*failed, *placeholders)
        attempt.victims = set()
        attempt.deadline = max(attempt.deadline, now + WAIT_SECONDS)
        attempt.last_deadline = max(attempt.last_deadline, attempt.deadline)
        attempt.search_at = attempt.deadline
        self._reserved.put(key, attempt.placements)
        self._attempts[key] = attempt

    def _check_attempt(self, key: UnitKey, attempt: Attempt, now: float) -> None:
        late = now >= attempt.deadline and not any(map(self._is_terminating, attempt.victims))
        if late or now >= attempt.last_deadline or self._queue.unit(key) is None:
            self._give_up(key, attempt)
        elif now >= attempt.search_at and not attempt.evicting:
            self._search_again(key, attempt, now)

    def _is_terminating(self, uid: str) -> bool:
        held = self._cache.get(uid)
        return held is not None and held.pod.terminating

    def _search_again(self, key: UnitKey, attempt: Attempt, now: float) -> None:
        """The victims are not sufficient, take too long, or are a predecessor's."""
        attempt.search_pause = backoff.doubled(
            attempt.search_pause, first=FIRST_PAUSE, most=LONGEST_PAUSE
        )
        attempt.search_at = now + attempt.search_pause
        unit = self._queue.unit(key)
        if unit is None or not unit.plannable:
            return
        if self._searches.busy:
            return
        whole = attempt.unit = self._reservations.with_placeholders(unit)
        nodes = frozenset(placement.node for placement in attempt.placements)

        def ended(plan: PreemptionPlan | None) -> None:
            if plan is not None:
                self._execute(attempt, plan, self._now())
                if not (attempt.victims or attempt.evicting):
                    self._queue.retry(key, self._now())
            elif not (attempt.victims or attempt.evicted):
                self._give_up(key, attempt)

        def ended_in_fork(names: VictimNames | None) -> None:
            if self._is_current(attempt) and not attempt.evicting and self._is_unchanged(whole):
                ended(self._confirmed(whole, names))

        search = partial(self._evaluator.search_again, whole, nodes)
        plan = self._searches.run(key, search, ended_in_fork)
        if plan is not IN_FORK:
            ended(plan)

    def next_at(self) -> float | None:
        """When `tick` next has work."""
        due = [self._rate_limit.next_at()]
        for attempt in self._attempts.values():
            passed = attempt.deadline <= self._now()
            ends = attempt.last_deadline if passed else attempt.deadline
            due.append(ends if attempt.evicting else min(ends, attempt.search_at))
        return min((at for at in due if at is not None), default=None)

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        """Victims that terminate cannot be brought back, but nothing is reserved any more."""
        key = attempt.unit.key
        if self._is_current(attempt):
            self._give_up(key, attempt)
        self._context.isolation.unit_failed(ErrorStep.PREEMPTION, key, error)

    def _give_up(self, key: UnitKey, attempt: Attempt) -> None:
        if attempt.evicted:
            self._metrics.preemption.labels("wasted").inc(attempt.evicted)
        self._end(key)

    def _victims_stay(self, uids: Iterable[str]) -> None:
        """These pods are not evicted after all: attempts that count on them search again."""
        staying = set(uids)
        for attempt in self._attempts.values() if staying else ():
            if not attempt.victims.isdisjoint(staying):
                attempt.victims -= staying
                attempt.search_at = min(attempt.search_at, self._now())

    def _end(self, key: UnitKey) -> None:
        attempt = self._attempts.pop(key)
        self._victims_stay(uid for uid in attempt.victims if not self._is_terminating(uid))
        members = self._reservations.placements(key)
        self._context.freed(self._reserved.end(key))
        if members and self._reservations.get(key) is not None:
            self._reserved.put(key, members)
        if attempt.nominated:
            self._nomination_clearer.clear(attempt.nominated, after=attempt.task)

    # --- after a restart ---

    def _resume(self, now: float) -> None:
        """Reserve the capacity that a predecessor nominated, and go on with its victims."""
        self._resumed = True
        if self._evictor is None:
            return
        for key, pods in sorted(self._queue.nominated().items(), key=lambda row: str(row[0])):
            unit = self._queue.unit(key)
            placements = tuple(
                Placement(pod, pod.nominated, NO_ASSIGNMENT)
                for pod in sorted(pods, key=lambda pod: pod.uid)
            )
            if unit is None or key in self._reserved:
                self._nomination_clearer.clear(placements)
                continue
            nodes = {placement.node for placement in placements}
            victims = [
                placement.pod
                for placement in self._cache.bound_pods()
                if placement.pod.terminating and placement.node in nodes
            ]
            wait = max(
                (pod.attributes.grace_period + WAIT_SECONDS for pod in victims),
                default=RESUMED_WAIT,
            )
            self._reserved.put(key, placements)
            self._attempts[key] = Attempt(
                unit,
                now + wait,
                now + wait + LONGEST_WAIT,
                placements,
                {pod.uid for pod in victims},
                placements,
                len(victims),
                search_at=now,
            )


def longest_grace_period(plan: PreemptionPlan) -> float:
    return max((victim.pod.attributes.grace_period for victim in plan.victims), default=0.0)
