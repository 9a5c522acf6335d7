"""
Start times promised to units that wait for room, and who may go ahead of them meanwhile.

    does not fit, nobody goes for it
        ──first in order──▶ PROMISED a time and nodes ──placed, gone──▶ over
                                 │  ▲
           moved, with a reason ─┘  └─ others go ahead if they end before, or leave it its room

A few units at a time have a promise, each on nodes of its own. A promise is moved only because
work outlived its expected duration, a node was lost, or somebody of higher priority went ahead;
each time an Event says so. Work without an expected duration never ends, as far as is known here:
nothing is promised on it. What has overrun is evicted where the policy says so and the work is
marked as yielding; otherwise it is expected to overrun as long again.

Nothing is done while nobody waits, and nothing more often than once a second. Promises do not
survive a restart: the new leader makes them anew from what runs. The arithmetic is in `promises`,
`foresight` and `lengths`; room that is kept without any time is `holding`'s business.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self

from cluster.events import correlator
from scheduler.cache.cache import Cache
from scheduler.model.plan import NoFit, Placed, Placement, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan.memo import Memo
from scheduler.plan.planner import rows_of
from scheduler.queueing.entry import QueueState
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report import events
from scheduler.tenancy.backfill import lower_bound
from scheduler.tenancy.backfill.quota_forecast import QuotaForecast
from scheduler.tenancy.backfill.run_time import RunTimes
from scheduler.tenancy.backfill.start_time import ExpectedEnd, earliest, keeps, without
from scheduler.tenancy.fairshare.shares import FairShareOrder
from scheduler.tenancy.preemption.candidates import overdue_bundles
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimSearch
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.tree import Amounts, Pairs

DEPTH: Final = 4  # promises at a time
EVERY: Final = 1.0  # seconds between two looks
SLACK: Final = 10.0  # seconds that work may take to be gone when its time is up
LONGER: Final = 60.0  # for which work that overran is expected to run on, at the least
AGAIN: Final = 30.0  # seconds until a unit is looked at again for which no time can be said
MOST_WAITING: Final = 4096  # units remembered as waiting for a promise

_WAITING: Final = (
    QueueState.UNSCHEDULABLE,
    QueueState.BACKOFF,
    QueueState.ACTIVE,
    QueueState.PLANNING,
)
# A quota that is used up for now may be open when the time comes.
_HOPING: Final = (*_WAITING, QueueState.OVER_QUOTA)
_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class BackfillActions:
    """
    What is done through others. `plan` places a unit on the snapshot, away from the closed nodes;
    `oust` begins evictions for it, `ousting` says whether some are under way.
    """

    plan: Callable[[Unit, frozenset[str], Memo], Plan]
    with_placeholders: Callable[[Unit], Unit]
    oust: Callable[[Unit, PreemptionPlan], bool]
    ousting: Callable[[UnitKey], bool]
    record: Callable[[correlator.EventReport], None]
    wake: Callable[[], None]
    freed: Callable[[Iterable[str]], None]


@dataclass(frozen=True, slots=True)
class Review:
    """A plan beside the start reservations of other units; `avoid`: plan once more without these
    nodes, and `choose` between the two plans."""

    plan: Plan
    heeded: tuple[StartReservation, ...] = ()
    avoid: frozenset[str] = frozenset()


class BackfillController:
    """`epoch` is the time of day, in which promises are made; `now` a clock that never jumps."""

    def __init__(
        self,
        cache: Cache,
        accounts: QuotaAccounts,
        queue: SchedulingQueue,
        means: BackfillActions,
        *,
        fair_share_order: Callable[[str, Amounts], FairShareOrder],
        now: Callable[[], float],
        epoch: Callable[[], float],
        depth: int = DEPTH,
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._queue = queue
        self._means = means
        self._snapshot = cache.snapshot
        self._now, self._epoch, self._depth = now, epoch, depth
        self._fair_share_order = fair_share_order
        self._promised: dict[UnitKey, StartReservation] = {}
        self._blocked: dict[UnitKey, BlockedUnit] = {}
        self._lengths = RunTimes(cache.snapshot)
        self._allowances = QuotaForecast(
            cache, accounts, self._promised, self._unit, self._lengths, epoch
        )
        self._disturbed: dict[UnitKey, str] = {}  # -> who went ahead of the promise
        self._called: set[UnitKey] = set()  # units that were tried when their time came
        self._due = False  # somebody came to wait
        self._looked_at = float("-inf")
        self._statics = 0
        self._memo = Memo()

    def start_reservation(self, key: UnitKey) -> StartReservation | None:
        return self._promised.get(key)

    def start_reservations(self) -> Collection[StartReservation]:
        return self._promised.values()

    # --- in the cycle ---

    def review(self, unit: Unit, plan: Plan) -> Review:
        """Whether the plan leaves the start reservations of other units intact."""
        others = [one for one in self._promised.values() if one.key != unit.key]
        if not others or isinstance(plan, NoFit):
            return Review(plan)
        touched = [one for one in others if any(p.node in one.nodes for p in plan.placements)]
        if 0 < unit.bound < unit.size or unit.key in self._cache.reserved:
            self._note_disturbed(unit, touched)
            return Review(plan)
        ends = self._epoch() + self._lengths.of_unit(unit)
        heeded = [one for one in others if unit.priority <= one.priority and ends > one.start]
        if why := self._allowances.used_up(unit, heeded):
            return Review(NoFit(len(self._snapshot), over_quota=why))
        lower = [one for one in others if unit.priority > one.priority]
        used_up = [one for one in lower if self._allowances.used_up(unit, (one,))]
        self._note_disturbed(unit, [one for one in lower if one in touched or one in used_up])
        if not (heeded and touched):
            return Review(plan)
        return Review(plan, tuple(heeded), frozenset().union(*(one.nodes for one in heeded)))

    def choose(self, review: Review, elsewhere: Plan) -> Plan:
        """The plan that avoids reserved nodes, unless only the first one places the unit and leaves
        every start reservation intact."""
        first = review.plan
        if isinstance(elsewhere, Placed) or isinstance(first, NoFit):
            return elsewhere
        return first if all(self._leaves(first, one) for one in review.heeded) else elsewhere

    def _leaves(self, plan: Placed, promise: StartReservation) -> bool:
        """Whether the promise holds on its own nodes with this plan carried out."""
        ahead = [
            Placement(one.pod, one.node, one.assignment)
            for one in plan.placements
            if one.node in promise.nodes
        ]
        unit = self._unit(promise.key)
        if not ahead or unit is None:
            return True
        # To the second: whoever came late by the slack would make the unit as late.
        endings = self._gone_by(promise, slack=0.0)
        gone = [one.occupant for one in endings]
        if not lower_bound.room(unit, self._snapshot, promise.nodes, gone, ahead):
            return False
        there = self._only(promise.nodes)
        planned = partial(self._means.plan, unit, there)
        return keeps(promise, self._snapshot, endings, planned, ahead, statics=self._memo)

    def _note_disturbed(
        self, unit: Unit, touched: Iterable[StartReservation], why: str = "which has precedence"
    ) -> None:
        for promise in touched:
            self._disturbed[promise.key] = f"{unit.key}, {why}, took its capacity"

    def entitled(self, unit: Unit, found: Plan) -> None:
        """The unit is within what its tenant was promised: it goes before promises of a start."""
        if self._promised and isinstance(found, Placed):
            nodes = {one.node for one in found.placements}
            touched = [p for p in self._promised.values() if p.key != unit.key and nodes & p.nodes]
            self._note_disturbed(unit, touched, "within its tenant's guarantee")

    def misfit(self, unit: Unit) -> None:
        """The unit did not fit, and nobody goes for it."""
        if unit.key in self._blocked or not (self._cache.with_duration or self._lengths.usual):
            return
        if len(self._blocked) < MOST_WAITING:
            self._blocked[unit.key] = BlockedUnit.of(unit)
            self._due = True

    def placed(self, key: UnitKey) -> None:
        self._blocked.pop(key, None)
        if key in self._promised:
            self._end(key)

    def gone(self, pod: Pod) -> None:
        """The pod left its node; whoever was promised it for about now does not wait any longer."""
        self._lengths.forget(pod.uid)
        for promise in self._promised.values():
            if pod.node in promise.nodes and self._epoch() >= promise.start - SLACK:
                self._queue.retry(promise.key, self._now())
                self._means.wake()

    def tick(self) -> None:
        """Look after promises, and give those that can be given."""
        if not (self._blocked or self._promised):
            return
        now = self._now()
        if now < self._looked_at + EVERY:
            return
        self._looked_at = now
        for key in [key for key in self._promised if self._queue.state(key) not in _HOPING]:
            self._end(key)
        self._look_at_nodes()
        self._look_at_clock()
        if len(self._promised) < self._depth or self._due:
            self._due = False
            self._give()

    def next_at(self) -> float | None:
        """When `tick` next has something to do."""
        soonest = self._looked_at + EVERY
        if self._due:
            return soonest
        now, epoch = self._now(), self._epoch()
        due = [
            now + one.start + (SLACK if one.key in self._called else 0.0) - epoch
            for one in self._promised.values()
        ]
        again = [one.not_before for one in self._blocked.values() if one.not_before > now]
        if len(self._promised) < self._depth and again:
            due.append(min(again))
        return max(soonest, min(due)) if due else None

    # --- giving ---

    def _give(self) -> None:
        now, endings = self._now(), None
        for _ in range(self._depth):
            unit = self._first(now)
            if unit is None or not (len(self._promised) < self._depth or self._displace(unit)):
                return
            endings = self._endings() if endings is None else endings
            promise = self._foresee(unit, endings)
            if promise is None:
                self._blocked[unit.key].not_before = now + AGAIN
                continue
            self._keep(promise)
            self._means.record(events.start_estimated(unit, promise.start, promise.waits_for))

    def _first(self, now: float) -> Unit | None:
        """
        The first in order of those that wait without a promise.

        Units that need several things at once come before single ones: without a promise, gaps
        are filled by single ones before there is ever enough.
        """
        for key in [key for key in self._blocked if self._queue.state(key) not in _WAITING]:
            del self._blocked[key]
        standing: dict[tuple[str, Any], Any] = {}
        best: tuple[tuple[Any, ...], UnitKey] | None = None
        for key, one in self._blocked.items():
            if key in self._promised or one.not_before > now or self._means.ousting(key):
                continue
            who = (one.tenant, one.asked)
            if who not in standing:
                standing[who] = self._fair_share_order(one.tenant, dict(one.asked))
            place = (one.order[0], one.single, standing[who], one.order)
            if best is None or place < best[0]:
                best = place, key
        return None if best is None else self._unit(best[1])

    def _unit(self, key: UnitKey) -> Unit | None:
        """With the members that its leader is going to make: they need room at the same time."""
        unit = self._queue.unit(key)
        return unit and self._means.with_placeholders(unit)

    def _displace(self, unit: Unit) -> bool:
        """The unit takes the place of a promise of lower priority, the lowest and latest."""
        last = min(self._promised.values(), key=lambda one: (one.priority, -one.start))
        if last.priority >= unit.priority:
            return False
        self._moved(last, None, f"{unit.key} has higher priority")
        return True

    def _endings(self) -> list[ExpectedEnd]:
        """Of all that runs and is known to end."""
        return self._lengths.endings(self._cache.on(), self._epoch())

    def _foresee(self, unit: Unit, endings: Sequence[ExpectedEnd]) -> StartReservation | None:
        """On nodes that nobody else was promised."""
        taken = self._taken(unit.key)
        found = [one for one in endings if one.occupant.node not in taken]
        closed = rows_of(self._snapshot, taken)
        bound = lower_bound.bound(unit, self._snapshot, found, self._memo, closed=closed)
        if bound is None:
            return None
        promise = earliest(
            unit.key,
            self._snapshot,
            found,
            lambda memo: self._means.plan(unit, taken, memo),
            now=self._epoch(),
            priority=unit.priority,
            statics=self._memo,
            not_before=bound,
        )
        return promise if promise and self._allowances.open(unit, promise.start) else None

    def _taken(self, key: UnitKey) -> frozenset[str]:
        """Nodes that somebody else was promised."""
        return _NOTHING.union(*(p.nodes for p in self._promised.values() if p.key != key))

    def _keep(self, promise: StartReservation) -> None:
        self._promised[promise.key] = promise
        self._called.discard(promise.key)
        self._means.wake()

    def _end(self, key: UnitKey) -> None:
        promise = self._promised.pop(key)
        self._called.discard(key)
        self._disturbed.pop(key, None)
        self._due = bool(self._blocked)
        self._accounts.quota_changed()  # the forecast no longer counts the unit
        self._means.freed(promise.nodes)

    # --- looking after them ---

    def _look_at_nodes(self) -> None:
        """Nodes that went or changed, and who went ahead by right."""
        changed = self._statics != self._snapshot.table.statics
        self._statics = self._snapshot.table.statics
        for promise in list(self._promised.values()):
            why = self._disturbed.pop(promise.key, "")
            lost = sorted(name for name in promise.nodes if name not in self._snapshot)
            if lost:
                self._move(promise, f"node {lost[0]} was deleted")
            elif (changed or why) and not self._holds(promise):
                self._move(promise, why or "its nodes changed")

    def _holds(self, promise: StartReservation) -> bool:
        unit = self._unit(promise.key)
        if unit is None:
            return True
        if not self._allowances.open(unit, max(promise.start, self._epoch())):
            return False
        gone, there = [one.occupant for one in self._gone_by(promise)], self._only(promise.nodes)
        planned = partial(self._means.plan, unit, there)
        return without(self._snapshot, gone, planned, self._memo) is not None

    def _look_at_clock(self) -> None:
        epoch = self._epoch()
        for promise in list(self._promised.values()):
            if epoch >= promise.start and promise.key not in self._called:
                self._called.add(promise.key)
                self._queue.retry(promise.key, self._now())
                self._means.wake()
            if epoch > promise.start + SLACK:
                self._late(promise, epoch)

    def _late(self, promise: StartReservation, epoch: float) -> None:
        overdue = [
            (one, at)
            for one in self._cache.on(promise.nodes)
            if (at := self._lengths.end(one.pod, epoch)) is not None and at <= epoch
        ]
        if not overdue and epoch <= promise.start + 2 * SLACK and self._holds(promise):
            self._queue.retry(promise.key, self._now())  # the last one has just gone
            return
        if not overdue:
            self._move(promise, "other pods took its capacity")
            return
        first = overdue[0][0].pod.key
        if self._lengths.policy.overrun == "preempt" and self._oust(
            promise, [o for o, _ in overdue]
        ):
            self._moved(promise, None, f"{first} overran its expected duration and is evicted")
            return
        for one, _ in overdue:
            over = self._lengths.over(one.pod, epoch)
            self._lengths.overran(one.pod.uid, epoch + max(LONGER, over))
        self._move(promise, f"{first} overran its expected duration")

    def _oust(self, promise: StartReservation, overdue: Sequence[Placement]) -> bool:
        """Whether work that overran and yields is ended for the unit, as much as suffices."""
        unit, bundles = self._unit(promise.key), overdue_bundles(self._cache, overdue)
        if unit is None or not bundles:
            return False
        planned = partial(self._means.plan, unit, self._taken(unit.key))
        verdict = VictimSearch(self._snapshot, planned, unit.need, self._memo).run(bundles)
        return verdict is not None and self._means.oust(unit, verdict)

    def _move(self, promise: StartReservation, why: str) -> None:
        unit = self._unit(promise.key)
        found = None if unit is None else self._foresee(unit, self._endings())
        if found is not None:
            found = replace(found, start=max(found.start, self._epoch() + EVERY))
        self._moved(promise, found, why)

    def _moved(self, promise: StartReservation, found: StartReservation | None, why: str) -> None:
        unit = self._unit(promise.key)
        self._end(promise.key)
        if found is not None:
            self._keep(found)
        if unit is not None:
            start = None if found is None else found.start
            self._means.record(events.start_delayed(unit, start, why))

    # --- when work ends ---

    def _gone_by(self, promise: StartReservation, *, slack: float = SLACK) -> list[ExpectedEnd]:
        """What is expected to be gone from the promised nodes when the time comes."""
        epoch = self._epoch()
        latest = max(promise.start, epoch)
        return [
            ExpectedEnd(min(at, promise.start), one)
            for one in self._cache.on(promise.nodes)
            if (at := self._lengths.end(one.pod, epoch)) is not None and at <= latest + slack
        ]

    def _only(self, nodes: frozenset[str]) -> frozenset[str]:
        """All nodes but these."""
        return frozenset(name for name in self._snapshot.table.rows if name not in nodes)


@dataclass(slots=True)
class BlockedUnit:
    tenant: str
    order: tuple[int, float, str]
    asked: Pairs
    """What one of its pods asks for."""
    single: bool
    """Takes whatever comes free next: others take it all the same, and wait for nothing more."""
    not_before: float = 0.0
    """From when on it may be given a promise."""

    @classmethod
    def of(cls, unit: Unit) -> Self:
        single = unit.need <= 1 and unit.pods[0].spec.host_request.gpus <= 1
        return cls(unit.tenant, unit.order, unit.pods[0].spec.requests, single)
