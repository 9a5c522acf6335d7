"""
Start reservations for units that wait for capacity, and which units may backfill ahead of them.

    does not fit, no victims
        ──first in order──▶ RESERVED: a time and nodes ──placed, deleted──▶ removed
                                 │  ▲
          delayed, with an Event ┘  └─ a unit backfills if it ends before that time, or leaves the
                                       reserved start its capacity

A few units at a time have a start reservation, each on nodes of its own. The controller moves one
only if a pod outlived its expected duration, a node was lost, or a unit of higher priority or
within its tenant's guarantee took the capacity; each time it records an Event. A pod without an
expected duration never ends here: no start is estimated from its end. Where the policy says so, the
controller evicts overdue pods that are marked as preemptible; otherwise it expects them to overrun
as long again.

The controller does nothing while no unit is blocked, and ticks at most once per second. Start
reservations do not survive a restart: the new leader estimates them from the pods that run. The
arithmetic is in `start_time`, `lower_bound` and `run_time`. `gang/starvation` holds nodes without
any time.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from cluster.events import correlator
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache
from scheduler.errors import ErrorStep
from scheduler.fork import ForkError, ForkPolicy
from scheduler.isolation import Isolation
from scheduler.model.plan import NoFit, Placed, Placement, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan.memo import Memo
from scheduler.plan.planner import rows_of
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report import events
from scheduler.tenancy.backfill.blocked_units import BlockedUnit, Estimates
from scheduler.tenancy.backfill.lower_bound import has_capacity, lower_bound
from scheduler.tenancy.backfill.quota_forecast import QuotaForecast
from scheduler.tenancy.backfill.run_time import RunTimes
from scheduler.tenancy.backfill.start_time import (
    ExpectedEnd,
    earliest_start,
    plan_without,
    starts_in_time,
)
from scheduler.tenancy.fairshare.shares import FairShareOrder
from scheduler.tenancy.preemption.candidates import overdue_victim_groups
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimSearch
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.tree import Amounts

logger = logging.getLogger(__name__)

MAX_RESERVATIONS: Final = 4  # start reservations at a time
TICK_SECONDS: Final = 1.0  # between two checks
SLACK: Final = 10.0  # seconds that a pod may take to leave its node after its expected end
MIN_EXTENSION: Final = 60.0  # seconds for which an overdue pod is expected to run on, at least
RETRY_SECONDS: Final = 30.0  # until the next estimate for a unit without an estimated start
MAX_BLOCKED: Final = 4096  # units remembered as waiting for a start reservation

_WAITING: Final = (
    QueueState.UNSCHEDULABLE,
    QueueState.BACKOFF,
    QueueState.ACTIVE,
    QueueState.PLANNING,
)
# A unit that is over quota now may be within it at its reserved start.
_MAY_START: Final = (*_WAITING, QueueState.OVER_QUOTA)
_NO_NODES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class BackfillActions:
    """
    What the controller does through other components. `plan` places a unit on the snapshot, away
    from the closed nodes; `with_placeholders` adds the members that a leader will create; `evict`
    begins evictions for a unit, and `is_preempting` tells whether some are in progress.
    """

    plan: Callable[[Unit, frozenset[str], Memo], Plan]
    with_placeholders: Callable[[Unit], Unit]
    evict: Callable[[Unit, PreemptionPlan], bool]
    is_preempting: Callable[[UnitKey], bool]
    record: Callable[[correlator.EventReport], None]
    wake: Callable[[], None]
    freed: Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class PlanReview:
    """A plan beside the start reservations of other units; `avoid`: plan once more without these
    nodes, and `choose` between the two plans."""

    plan: Plan
    binding: tuple[StartReservation, ...] = ()
    avoid: frozenset[str] = frozenset()


class BackfillController:
    """`epoch` is the time of day, used for start times; `now` is a clock that never jumps."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        actions: BackfillActions,
        *,
        fair_share_order: Callable[[str, Amounts], FairShareOrder],
        now: Callable[[], float],
        epoch: Callable[[], float],
        isolation: Isolation,
        tasks: BackgroundTasks,
        fork: ForkPolicy | None = None,
        max_reservations: int = MAX_RESERVATIONS,
    ) -> None:
        self._isolation = isolation
        self._cache = cache
        self._snapshot = cache.snapshot
        self._accounts = accounts
        self._queue = queue
        self._actions = actions
        self._fair_share_order = fair_share_order
        self._now = now
        self._epoch = epoch
        self._max_reservations = max_reservations
        self._reservations: dict[UnitKey, StartReservation] = {}
        self._blocked: dict[UnitKey, BlockedUnit] = {}
        self._run_times = RunTimes(cache.snapshot)
        self._quota_forecast = QuotaForecast(
            cache, accounts, self._reservations, self._unit, self._run_times, epoch
        )
        self._taken_by: dict[UnitKey, str] = {}  # -> which unit took reserved capacity, as a text
        self._moving: dict[UnitKey, str] = {}  # start reservations to estimate again -> why
        self._fork = fork
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._retried: set[UnitKey] = set()  # units that were retried at their reserved start
        self._unit_blocked = False  # since the last tick
        self._ticked_at = float("-inf")
        self._statics = 0
        self._memo = Memo()

    def start_reservation(self, key: UnitKey) -> StartReservation | None:
        return self._reservations.get(key)

    def start_reservations(self) -> Collection[StartReservation]:
        return self._reservations.values()

    # --- in the cycle ---

    def review(self, unit: Unit, plan: Plan) -> PlanReview:
        """Whether the plan leaves the start reservations of other units intact."""
        others = [other for other in self._reservations.values() if other.key != unit.key]
        if not others or isinstance(plan, NoFit):
            return PlanReview(plan)
        touched = [other for other in others if any(p.node in other.nodes for p in plan.placements)]
        has_precedence = 0 < unit.bound < unit.size or unit.key in self._cache.reserved
        if has_precedence:
            self._note_taken(unit, touched)
            return PlanReview(plan)
        end = self._epoch() + self._run_times.of_unit(unit)
        binding = [
            other for other in others if unit.priority <= other.priority and end > other.start
        ]
        if why := self._quota_forecast.conflict(unit, binding):
            return PlanReview(NoFit(len(self._snapshot), over_quota=why))
        lower = [other for other in others if unit.priority > other.priority]
        over_quota = [other for other in lower if self._quota_forecast.conflict(unit, (other,))]
        self._note_taken(
            unit, [other for other in lower if other in touched or other in over_quota]
        )
        if not (binding and touched):
            return PlanReview(plan)
        nodes = _NO_NODES.union(*(other.nodes for other in binding))
        return PlanReview(plan, tuple(binding), nodes)

    def choose(self, review: PlanReview, elsewhere: Plan) -> Plan:
        """The plan that avoids reserved nodes, unless only the first one places the unit and leaves
        every start reservation intact."""
        first = review.plan
        if isinstance(elsewhere, Placed) or isinstance(first, NoFit):
            return elsewhere
        intact = all(self._stays_intact(reservation, first) for reservation in review.binding)
        return first if intact else elsewhere

    def _stays_intact(self, reservation: StartReservation, plan: Placed) -> bool:
        """A reservation whose own unit cannot be planned binds no other unit."""
        try:
            return self._starts_in_time(reservation, plan)
        except Exception as error:
            self._isolation.unit_failed(ErrorStep.BACKFILL, reservation.key, error)
            return True

    def _starts_in_time(self, reservation: StartReservation, plan: Placed) -> bool:
        """Whether the reserved start holds on its own nodes after this plan is carried out."""
        ahead = [placement for placement in plan.placements if placement.node in reservation.nodes]
        unit = self._unit(reservation.key)
        if not ahead or unit is None:
            return True
        # Without slack: a pod that used the slack would delay the unit by as much.
        ends = self._ends_by_start(reservation, slack=0.0)
        ended = [end.placement for end in ends]
        if not has_capacity(unit, self._snapshot, reservation.nodes, ended, ahead):
            return False
        plan_there = partial(self._actions.plan, unit, self._all_but(reservation.nodes))
        return starts_in_time(
            reservation, self._snapshot, ends, plan_there, ahead, statics=self._memo
        )

    def _note_taken(
        self,
        unit: Unit,
        reservations: Iterable[StartReservation],
        why: str = "which has precedence",
    ) -> None:
        for reservation in reservations:
            self._taken_by[reservation.key] = f"{unit.key}, {why}, took its capacity"

    def planned_within_guarantee(self, unit: Unit, plan: Plan) -> None:
        """A unit within its tenant's guarantee may take capacity of start reservations."""
        if self._reservations and isinstance(plan, Placed):
            nodes = {placement.node for placement in plan.placements}
            others = (other for other in self._reservations.values() if other.key != unit.key)
            touched = [other for other in others if nodes & other.nodes]
            self._note_taken(unit, touched, "within its tenant's guarantee")

    def misfit(self, unit: Unit) -> None:
        """The unit did not fit, and preemption found no victims for it."""
        durations_known = self._cache.with_duration or self._run_times.durations
        if unit.key in self._blocked or not durations_known:
            return
        if len(self._blocked) < MAX_BLOCKED:
            self._blocked[unit.key] = BlockedUnit.of(unit)
            self._unit_blocked = True

    def placed(self, key: UnitKey) -> None:
        self._blocked.pop(key, None)
        if key in self._reservations:
            self._remove(key)

    def gone(self, pod: Pod) -> None:
        """The pod left its node: retry units that are to start there about now."""
        self._run_times.forget(pod.uid)
        for reservation in self._reservations.values():
            if pod.node in reservation.nodes and self._epoch() >= reservation.start - SLACK:
                self._queue.retry(reservation.key, self._now())
                self._actions.wake()

    def tick(self) -> None:
        """Check the start reservations, and add new ones."""
        if not (self._blocked or self._reservations):
            return
        now = self._now()
        if now < self._ticked_at + TICK_SECONDS:
            return
        self._ticked_at = now
        for key in [k for k in self._reservations if self._queue.state(k) not in _MAY_START]:
            self._remove(key)
        self._check_nodes()
        self._check_clock()
        if self.estimating:
            return
        wanted = len(self._reservations) < self._max_reservations or self._unit_blocked
        if not (wanted or self._moving):
            return
        self._unit_blocked = False
        if not self._in_fork():
            self._reserve()
        elif self._moving or self._next_blocked(now) is not None:
            self._start_estimates()

    def next_at(self) -> float | None:
        """When `tick` next has something to do."""
        soonest = self._ticked_at + TICK_SECONDS
        if self._unit_blocked:
            return soonest
        now, epoch = self._now(), self._epoch()
        due = [
            now + reservation.start + (SLACK if reservation.key in self._retried else 0.0) - epoch
            for reservation in self._reservations.values()
        ]
        retries = [unit.not_before for unit in self._blocked.values() if unit.not_before > now]
        if len(self._reservations) < self._max_reservations and retries:
            due.append(min(retries))
        return max(soonest, min(due)) if due else None

    # --- add and remove ---

    def _reserve(self) -> None:
        now, ends = self._now(), None
        for _ in range(self._max_reservations):
            unit = self._next_blocked(now)
            if unit is None:
                return
            if len(self._reservations) >= self._max_reservations and not self._displace(unit):
                return
            ends = self._expected_ends() if ends is None else ends
            # Quarantined, the unit is no longer blocked, and has no start reservation.
            with self._isolation.unit(ErrorStep.BACKFILL, unit.key):
                self._reserve_start(unit, self._estimate(unit, ends))

    def _reserve_start(self, unit: Unit, reservation: StartReservation | None) -> None:
        """None: no start can be estimated for the unit now."""
        blocked = self._blocked[unit.key]
        blocked.not_before = self._now() + RETRY_SECONDS if reservation is None else 0.0
        if reservation is not None:
            self._add(reservation)
            report = events.start_estimated(unit, reservation.start, reservation.waits_for)
            self._actions.record(report)

    # --- estimates in a fork ---

    @property
    def estimating(self) -> bool:
        """Whether estimates run in a fork."""
        return self._task is not None and not self._task.done()

    def _in_fork(self) -> bool:
        """Whether an estimate takes too long for the event loop."""
        return self._fork is not None and len(self._cache) > self._fork.pods_in_loop

    def _start_estimates(self) -> None:
        if not self.estimating:
            self._task = self._tasks.start(self._estimate_in_fork())

    async def _estimate_in_fork(self) -> None:
        assert self._fork is not None
        moving, estimates = dict(self._moving), Estimates()
        try:
            estimates = await self._fork.run(self._estimate_all, seconds=self._fork.seconds)
        except ForkError as error:
            logger.warning("start estimates abandoned", extra={"why": str(error)})
            self._unit_blocked = bool(self._blocked)
        for key, text in estimates.failed.items():
            with self._isolation.unit(ErrorStep.BACKFILL, key):
                raise ForkError(text)
        for key, why in moving.items():
            self._moving.pop(key, None)
            old = self._reservations.get(key)
            if old is not None:
                with self._isolation.unit(ErrorStep.BACKFILL, key):
                    self._replace(old, self._confirmed(estimates.moved.get(key)), why)
        for key, reservation in estimates.first.items():
            unit = self._unit(key) if key in self._blocked else None
            if unit is None or key in self._reservations:
                continue
            if len(self._reservations) >= self._max_reservations and not self._displace(unit):
                break
            with self._isolation.unit(ErrorStep.BACKFILL, key):
                self._reserve_start(unit, self._confirmed(reservation))
        self._actions.wake()

    def _estimate_all(self) -> Estimates:
        """In the fork: its state is a copy, in which each estimate counts for the next one."""
        result, ends = Estimates(), self._expected_ends()

        def estimate(key: UnitKey, unit: Unit | None) -> StartReservation | None:
            try:
                new = None if unit is None else self._estimate(unit, ends)
            except Exception:
                result.failed[key] = traceback.format_exc()
                new = None
            self._reservations.pop(key, None)
            if new is not None:
                self._reservations[key] = new
            return new

        for key in self._moving:
            if (new := estimate(key, self._unit(key))) is not None:
                soonest = self._epoch() + TICK_SECONDS
                result.moved[key] = replace(new, start=max(new.start, soonest))
        for _ in range(self._max_reservations):
            unit = self._next_blocked(self._now())
            if unit is None:
                break
            if len(self._reservations) >= self._max_reservations and not self._displace(unit):
                break
            self._blocked[unit.key].not_before = float("inf")
            result.first[unit.key] = estimate(unit.key, unit)
        return result

    def _confirmed(self, reservation: StartReservation | None) -> StartReservation | None:
        """The estimate of a fork, if it holds on the present cluster."""
        if reservation is None or not reservation.nodes.isdisjoint(
            self._reserved_nodes(reservation.key)
        ):
            return None
        known = all(node in self._snapshot for node in reservation.nodes)
        return reservation if known and self._is_valid(reservation) else None

    def _next_blocked(self, now: float) -> Unit | None:
        """
        The first unit in order that has no start reservation.

        Gangs and pods with several GPUs come before pods with one: without a start reservation,
        single pods fill every gap before enough capacity is free at once.
        """
        for key in [key for key in self._blocked if self._queue.state(key) not in _WAITING]:
            del self._blocked[key]
        fair_share: dict[tuple[str, Any], Any] = {}
        first: tuple[tuple[Any, ...], UnitKey] | None = None
        for key, blocked in self._blocked.items():
            if key in self._reservations or blocked.not_before > now:
                continue
            if self._actions.is_preempting(key):
                continue
            share_key = (blocked.tenant, blocked.requests)
            if share_key not in fair_share:
                requests = dict(blocked.requests)
                fair_share[share_key] = self._fair_share_order(blocked.tenant, requests)
            order = (blocked.order[0], blocked.single, fair_share[share_key], blocked.order)
            if first is None or order < first[0]:
                first = order, key
        return None if first is None else self._unit(first[1])

    def _unit(self, key: UnitKey) -> Unit | None:
        """With the members that its leader will create: they need capacity at the same time."""
        unit = self._queue.unit(key)
        return unit and self._actions.with_placeholders(unit)

    def _displace(self, unit: Unit) -> bool:
        """Remove the start reservation of the lowest priority, the latest of those, if the unit
        has higher priority."""
        last = min(
            self._reservations.values(),
            key=lambda reservation: (reservation.priority, -reservation.start),
        )
        if last.priority >= unit.priority:
            return False
        self._replace(last, None, f"{unit.key} has higher priority")
        return True

    def _expected_ends(self) -> list[ExpectedEnd]:
        return self._run_times.ends(self._cache.pods_on(), self._epoch())

    def _estimate(self, unit: Unit, ends: Sequence[ExpectedEnd]) -> StartReservation | None:
        """On nodes without another start reservation."""
        closed = self._reserved_nodes(unit.key)
        ends = [end for end in ends if end.placement.node not in closed]
        rows = rows_of(self._snapshot, closed)
        not_before = lower_bound(unit, self._snapshot, ends, self._memo, closed=rows)
        if not_before is None:
            return None
        reservation = earliest_start(
            unit.key,
            self._snapshot,
            ends,
            lambda memo: self._actions.plan(unit, closed, memo),
            now=self._epoch(),
            priority=unit.priority,
            statics=self._memo,
            not_before=not_before,
        )
        return (
            reservation
            if reservation and self._quota_forecast.allows(unit, reservation.start)
            else None
        )

    def _reserved_nodes(self, excluded: UnitKey) -> frozenset[str]:
        """Nodes of all start reservations but this unit's."""
        others = (
            reservation
            for reservation in self._reservations.values()
            if reservation.key != excluded
        )
        return _NO_NODES.union(*(reservation.nodes for reservation in others))

    def _add(self, reservation: StartReservation) -> None:
        self._reservations[reservation.key] = reservation
        self._retried.discard(reservation.key)
        self._actions.wake()

    def _remove(self, key: UnitKey) -> None:
        reservation = self._reservations.pop(key)
        self._retried.discard(key)
        self._moving.pop(key, None)
        self._taken_by.pop(key, None)
        self._unit_blocked = bool(self._blocked)
        self._accounts.quota_changed()  # the forecast no longer counts the unit
        self._actions.freed(reservation.nodes)

    # --- check ---

    def _check_nodes(self) -> None:
        """Move start reservations whose nodes were deleted, changed or taken."""
        changed = self._statics != self._snapshot.table.statics
        self._statics = self._snapshot.table.statics
        for reservation in list(self._reservations.values()):
            with self._isolation.unit(ErrorStep.BACKFILL, reservation.key):
                self._check_nodes_of(reservation, changed=changed)

    def _check_nodes_of(self, reservation: StartReservation, *, changed: bool) -> None:
        taken = self._taken_by.pop(reservation.key, "")
        deleted = sorted(name for name in reservation.nodes if name not in self._snapshot)
        if deleted:
            self._move(reservation, f"node {deleted[0]} was deleted")
        elif (changed or taken) and not self._is_valid(reservation):
            self._move(reservation, taken or "its nodes changed")

    def _is_valid(self, reservation: StartReservation) -> bool:
        """Whether the unit still fits the reserved nodes at its start, within its quota."""
        unit = self._unit(reservation.key)
        if unit is None:
            return True
        if not self._quota_forecast.allows(unit, max(reservation.start, self._epoch())):
            return False
        ended = [end.placement for end in self._ends_by_start(reservation)]
        plan_there = partial(self._actions.plan, unit, self._all_but(reservation.nodes))
        return plan_without(self._snapshot, ended, plan_there, self._memo) is not None

    def _check_clock(self) -> None:
        epoch = self._epoch()
        for reservation in list(self._reservations.values()):
            with self._isolation.unit(ErrorStep.BACKFILL, reservation.key):
                if epoch >= reservation.start and reservation.key not in self._retried:
                    self._retried.add(reservation.key)
                    self._queue.retry(reservation.key, self._now())
                    self._actions.wake()
                if epoch > reservation.start + SLACK and reservation.key not in self._moving:
                    self._handle_late(reservation, epoch)

    def _handle_late(self, reservation: StartReservation, epoch: float) -> None:
        overdue = [
            placement
            for placement in self._cache.pods_on(reservation.nodes)
            if (at := self._run_times.end(placement.pod, epoch)) is not None and at <= epoch
        ]
        just_freed = not overdue and epoch <= reservation.start + 2 * SLACK
        if just_freed and self._is_valid(reservation):
            self._queue.retry(reservation.key, self._now())
            return
        if not overdue:
            self._move(reservation, "other pods took its capacity")
            return
        why = f"{overdue[0].pod.key} overran its expected duration"
        evicts = self._run_times.policy.overrun == "preempt"
        if evicts and self._evict_overdue(reservation, overdue):
            self._replace(reservation, None, f"{why} and is evicted")
            return
        for placement in overdue:
            overrun = self._run_times.overrun(placement.pod, epoch)
            self._run_times.extend(placement.pod.uid, epoch + max(MIN_EXTENSION, overrun))
        self._move(reservation, why)

    def _evict_overdue(self, reservation: StartReservation, overdue: Sequence[Placement]) -> bool:
        """Whether enough preemptible pods that overran are evicted for the unit."""
        unit, groups = self._unit(reservation.key), overdue_victim_groups(self._cache, overdue)
        if unit is None or not groups:
            return False
        plan = partial(self._actions.plan, unit, self._reserved_nodes(unit.key))
        victims = VictimSearch(self._snapshot, plan, unit.need, self._memo).run(groups)
        return victims is not None and self._actions.evict(unit, victims)

    def _move(self, reservation: StartReservation, why: str) -> None:
        """Estimate the start again."""
        if self._in_fork():
            self._moving.setdefault(reservation.key, why)
            return
        unit = self._unit(reservation.key)
        new = None if unit is None else self._estimate(unit, self._expected_ends())
        if new is not None:
            new = replace(new, start=max(new.start, self._epoch() + TICK_SECONDS))
        self._replace(reservation, new, why)

    def _replace(self, old: StartReservation, new: StartReservation | None, why: str) -> None:
        unit = self._unit(old.key)
        self._remove(old.key)
        if new is not None:
            self._add(new)
        if unit is not None:
            start = None if new is None else new.start
            self._actions.record(events.start_delayed(unit, start, why))

    def _ends_by_start(
        self, reservation: StartReservation, *, slack: float = SLACK
    ) -> list[ExpectedEnd]:
        """Pods on the reserved nodes that are expected to have ended at the start."""
        epoch = self._epoch()
        latest = max(reservation.start, epoch)
        return [
            ExpectedEnd(min(at, reservation.start), placement)
            for placement in self._cache.pods_on(reservation.nodes)
            if (at := self._run_times.end(placement.pod, epoch)) is not None
            and at <= latest + slack
        ]

    def _all_but(self, nodes: frozenset[str]) -> frozenset[str]:
        return frozenset(name for name in self._snapshot.table.rows if name not in nodes)
