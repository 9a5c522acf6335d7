"""
What is decided between tenants, as the cycle meets it: one place for quotas, room kept, evictions.

    plan       within the quota, as if nothing were kept for the unit itself
    misfit     somebody may have to go for it, or it is told when it can start
    placed     what was kept for it is its own now
    gone       a pod left its node
    tick       time passes

Each part knows its own business; nothing is decided here.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from cluster.informer import WatchEvent
from scheduler.model.gang import GangKey
from scheduler.model.plan import Placed, Plan
from scheduler.model.pod import Pod
from scheduler.model.start_reservation import StartReservation
from scheduler.model.unit import Unit, UnitKey
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.controller import BackfillActions, BackfillController
from scheduler.tenancy.context import PlanFunction, SchedulingContext
from scheduler.tenancy.fairshare.decay import ShareDecay
from scheduler.tenancy.preemption.controller import PreemptionController
from scheduler.tenancy.preemption.preemptor_quota import PreemptorQuota
from scheduler.tenancy.quota.enforcer import QuotaEnforcer
from scheduler.tenancy.quota.entitlement import EntitlementTracker
from scheduler.tenancy.reservation.controller import ReservationController
from scheduler.tenancy.reservation.members import ALL_CAME
from scheduler.tenancy.reservation.objects import Reservation
from scheduler.tenancy.reservation.relocation import Relocation


class TenancyManager:
    """`plan` places a unit on the snapshot as it stands, away from the closed nodes."""

    def __init__(self, context: SchedulingContext, plan: PlanFunction, memo: Memo) -> None:
        self._context, self._plan, self._memo = context, plan, memo
        self._holds = context.cache.reserved
        pledges = PreemptorQuota(context.cache, context.accounts, lambda: self.preempting.attempts)
        self.decay = ShareDecay(context.cache.snapshot, context.shares, context.epoch)
        self.quotas = QuotaEnforcer(
            context.cache, context.accounts, context.queue, pledged=pledges.allow
        )
        self.wanting = EntitlementTracker(context.cache, context.accounts, context.queue)
        self.reservations = context.reservations
        self.reserving = _reserving(context)
        self.moving = Relocation(
            context.cache,
            context.reservations,
            plan=self._replan,
            group=context.group,
            freed=context.freed,
            regrouped=context.regrouped,
            record=context.record,
        )
        self.preempting = PreemptionController(
            cache=context.cache,
            accounts=context.accounts,
            budgets=context.budgets,
            reservations=context.reservations,
            queue=context.queue,
            holds=self._holds,
            evictor=context.evictor,
            metrics=context.metrics,
            scheduler=context.scheduler,
            plan=self._lifted,
            rank=lambda tier: context.cache.snapshot.tables.rank(tier) or 0,
            group=context.group,
            now=context.now,
            epoch=context.epoch,
            wake=context.wake,
            freed=self._opened,
            start_reservations=lambda: self.backfill.start_reservations(),
        )
        evictor, preempting = context.evictor, self.preempting
        means = BackfillActions(
            plan=self._lifted,
            with_placeholders=context.reservations.extended,
            oust=preempting.oust,
            ousting=preempting.asked,
            record=(lambda report: None) if evictor is None else evictor.record,
            wake=context.wake,
            freed=context.freed,
        )
        self.backfill = BackfillController(
            context.cache,
            context.accounts,
            context.queue,
            means,
            fair_share_order=context.shares.order,
            now=context.now,
            epoch=context.epoch,
        )

    def _opened(self, nodes: Iterable[str]) -> None:
        """Nothing is kept any more for a unit for which others went, of its quota either."""
        self._context.accounts.quota_changed()
        self._context.freed(nodes)

    def start_reservation(self, key: UnitKey) -> StartReservation | None:
        """When and where backfill expects the unit to start."""
        return self.backfill.start_reservation(key)

    @property
    def broken(self) -> BaseException | None:
        return self.preempting.broken or (self.reserving.broken if self.reserving else None)

    def on_reservation(self, event: WatchEvent[Reservation | None]) -> None:
        if self.reserving is not None:
            self.reserving.on_event(event)
            self._context.wake()

    def reservations_served(self, served: bool) -> None:
        """Whether the API server has the kind in which room is written down."""
        if self.reservations.enable(served):
            for gang in self._context.queue.led():
                self._context.regrouped(gang)

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """Members that do not exist yet are planned along, for what their leader makes."""
        shut = self._shut(unit, closed) if closed else closed
        with self.reservations.uncounted(unit.key):
            extended = self.reservations.extended(unit)
            found = self.quotas.plan(extended, self._promised, closed=shut)
        if isinstance(found, Placed) and (extended is not unit or unit.key in self._holds):
            return self.reservations.taken(unit, found)
        return found

    def _shut(self, unit: Unit, closed: frozenset[str]) -> frozenset[str]:
        """Nobody closes nodes on which room is kept for the unit, is promised to it, or is within
        its tenant's promise."""
        promise, beyond = self.start_reservation(unit.key), self._beyond(unit)
        own = {one.node for one in self._holds.of(unit.key)}
        own |= promise.nodes if promise is not None else frozenset()
        return (closed if beyond is None else closed & beyond) - own

    def _replan(self, unit: Unit) -> Plan:
        """Members to come alone, as if no room were kept for them."""
        with self.reservations.uncounted(unit.key):
            return self.quotas.plan(unit, self._promised, closed=frozenset())

    def _promised(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """As far as no promise to another unit is broken; a tenant's guarantee goes before them."""
        beyond = self._beyond(unit)
        if beyond is not None:
            found = self._lifted(unit, closed | beyond, self._memo)
            if not beyond or isinstance(found, Placed):
                self.backfill.entitled(unit, found)
                return found
        return self.backfill.plan(unit, closed, lambda shut: self._lifted(unit, shut, self._memo))

    def _beyond(self, unit: Unit) -> frozenset[str] | None:
        accounts = self._context.accounts
        if accounts.plain:
            return None
        return accounts.beyond(unit, self._context.cache.snapshot.table.rows)

    def _lifted(self, unit: Unit, closed: frozenset[str], memo: Memo) -> Plan:
        """As if nothing were kept for it; what is going to be kept for others is left alone."""
        if self.reserving is None or not len(self.reserving.allotments):
            return self._alone(unit, (), closed, memo)
        allotments = self.reserving.allotments
        allotted = allotments.of(unit.tenant)
        return allotments.coming.plan(
            unit, closed, memo, lambda shut, memo: self._alone(unit, allotted, shut, memo)
        )

    def _alone(
        self, unit: Unit, allotted: Sequence[UnitKey], closed: frozenset[str], memo: Memo
    ) -> Plan:
        if unit.key not in self._holds and not allotted:
            return self._plan(unit, closed, memo)
        # What did not fit an equal unit says nothing about one for which room is kept.
        with ExitStack() as stack:
            for key in (unit.key, *allotted):
                stack.enter_context(self._holds.lifted(key))
            return self._plan(unit, closed, Memo(statics=memo.statics))

    def reserved_later(self, pod: Pod) -> Iterable[str]:
        """Capacity that will be reserved for other tenants than the pod's, as sentences."""
        return () if self.reserving is None else self.reserving.allotments.coming.kept_from(pod)

    def misfit(self, unit: Unit) -> None:
        # Nobody goes for a leader alone: it would wait on for room for its members.
        whole = self.reservations.extended(unit)
        if not self.preempting.consider(whole):
            self.backfill.misfit(whole)
            self.wanting.misfit(whole)

    def placed(self, unit: Unit, plan: Placed | None = None) -> None:
        """`plan`: what is being bound, where somebody does that."""
        self.preempting.placed(unit.key, plan.placements if plan is not None else ())
        self.backfill.placed(unit.key)
        self.wanting.placed(unit.key)
        if self.reserving is not None:
            self.reserving.allotments.lend(unit.tenant)
        kept = self.reservations.get(unit.key)
        answered = self.reserving is not None
        freed = self.reservations.placed(unit, self._context.now(), answered=answered)
        if kept is not None:
            self._context.freed(freed)
        if kept is not None and self.reservations.get(unit.key) is None:
            assert isinstance(unit.key, GangKey)
            self._context.reserved(unit.key, ALL_CAME)

    def gone(self, pod: Pod) -> None:
        self.preempting.gone(pod.uid)
        self.backfill.gone(pod)
        # Two who share a node may have to wait for the victims of both, and no node calls them:
        # what is kept for them is in their own way.
        for key in self._holds if len(self._holds) else ():
            if any(one.node == pod.node for one in self._holds.of(key)):
                self._context.queue.retry(key, self._context.now())

    def tick(self, now: float) -> None:
        if self.reserving is not None:
            self.reserving.tick()
        self.decay.tick(now)
        self.quotas.tick(now)
        self.wanting.tick(now)
        self.preempting.tick()
        self.backfill.tick()
        for key, why in self.reservations.over(self._context.leads, now):
            self._context.freed(self.reservations.end(key))
            self._context.reserved(key, why)
        self.moving.tick()

    def next_at(self) -> float | None:
        parts = (self.preempting, self.backfill, self.reservations, self.reserving)
        due = [part.next_at() for part in parts if part is not None]
        return min((at for at in due if at is not None), default=None)


def _reserving(context: SchedulingContext) -> ReservationController | None:
    if context.recorder is None:
        return None
    return ReservationController(
        context.cache,
        context.reservations,
        context.recorder,
        group=context.group,
        now=context.now,
        epoch=context.epoch,
        kept=context.regrouped,
        opened=context.reserved,
        freed=context.freed,
        record=context.record,
    )
