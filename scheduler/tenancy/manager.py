"""
Tenancy as the cycle sees it: one interface to quota, reservations, preemption and backfill.

    plan       a unit within its quota, its guarantee and the reservations of others
    misfit     preempt for the unit, or compute when it can start
    placed     what was reserved for the unit is used now
    gone       a pod left its node
    tick       time passes

Each part decides in its own module; this one folds their constraints and passes on what happens.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from cluster.informer import WatchEvent
from scheduler.errors import ErrorStep
from scheduler.isolation import IsolatedPart
from scheduler.model.gang import GangKey
from scheduler.model.plan import NoFit, Placed, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.controller import BackfillActions, BackfillController
from scheduler.tenancy.context import SchedulingContext
from scheduler.tenancy.fairshare.decay import ShareDecay
from scheduler.tenancy.preemption.context import PreemptionContext
from scheduler.tenancy.preemption.controller import PreemptionController
from scheduler.tenancy.preemption.preemptor_quota import PreemptorQuota
from scheduler.tenancy.quota.enforcer import QuotaConstraint, QuotaEnforcer
from scheduler.tenancy.quota.entitlement import EntitlementTracker
from scheduler.tenancy.reservation.controller import ReservationController
from scheduler.tenancy.reservation.members import ALL_MEMBERS_EXIST
from scheduler.tenancy.reservation.objects import ReservationObject
from scheduler.tenancy.reservation.relocation import Relocation
from scheduler.tenancy.reservation.tenant_upcoming import UpcomingConstraint


class TenancyManager:
    """The parts of tenancy behind one interface; `memo` is the cycle's."""

    def __init__(self, context: SchedulingContext, memo: Memo) -> None:
        self._context = context
        self._memo = memo
        self._reserved = context.cache.reserved
        preemptor_quota = PreemptorQuota(
            context.cache, context.accounts, lambda: self.preemption.attempts
        )
        self.share_decay = ShareDecay(context.cache.snapshot, context.shares, context.epoch)
        self.quota = QuotaEnforcer(
            context.cache,
            context.accounts,
            context.queue,
            isolation=context.isolation,
            within_preemptor_quota=preemptor_quota.within_quota,
        )
        self.entitlement = EntitlementTracker(
            context.cache, context.accounts, context.queue, isolation=context.isolation
        )
        self.reservations = context.reservations
        self.reservation_controller = _reservation_controller(context)
        self.relocation = Relocation(
            context.cache,
            context.reservations,
            plan=self._replan,
            group=context.group,
            freed=context.freed,
            regrouped=context.gang_changed,
            record=context.record,
            isolation=context.isolation,
        )
        self.preemption = PreemptionController(
            PreemptionContext(
                scheduler=context.scheduler,
                cache=context.cache,
                accounts=context.accounts,
                budgets=context.budgets,
                reservations=context.reservations,
                queue=context.queue,
                metrics=context.metrics,
                evictor=context.evictor,
                plan=self._attempt,
                tier_rank=lambda tier: context.cache.snapshot.tables.rank(tier) or 0,
                pod_group=context.group,
                now=context.now,
                epoch=context.epoch,
                wake=context.wake,
                freed=self._preemption_ended,
                tasks=context.tasks,
                isolation=context.isolation,
                start_reservations=lambda: self.backfill.start_reservations(),
                no_victims=self._no_victims,
                fork=context.fork,
            )
        )
        evictor = context.evictor
        actions = BackfillActions(
            plan=self._attempt,
            with_placeholders=context.reservations.with_placeholders,
            evict=self.preemption.evict,
            is_preempting=self.preemption.in_progress,
            record=(lambda report: None) if evictor is None else evictor.record,
            wake=context.wake,
            freed=context.freed,
        )
        self.backfill = BackfillController(
            context.cache,
            context.accounts,
            context.queue,
            actions,
            fair_share_order=context.shares.order,
            now=context.now,
            epoch=context.epoch,
            isolation=context.isolation,
            tasks=context.tasks,
            fork=context.fork,
        )
        self._parts = self._isolated_parts()

    def _isolated_parts(self) -> tuple[IsolatedPart, ...]:
        """In the order in which they act; an error of one pauses it, and the others go on."""
        now, controller = self._context.now, self.reservation_controller
        part = partial(IsolatedPart, self._context.isolation, now=now)
        first = (
            ()
            if controller is None
            else (part(ErrorStep.RESERVATION, controller.tick, next_at=controller.next_at),)
        )
        return (
            *first,
            part(ErrorStep.FAIR_SHARE, lambda: self.share_decay.tick(now())),
            part(ErrorStep.QUOTA, lambda: self.quota.tick(now()), next_at=self.quota.next_at),
            part(
                ErrorStep.QUOTA,
                lambda: self.entitlement.tick(now()),
                next_at=self.entitlement.next_at,
            ),
            part(ErrorStep.PREEMPTION, self.preemption.tick, next_at=self.preemption.next_at),
            part(ErrorStep.BACKFILL, self.backfill.tick, next_at=self.backfill.next_at),
            part(
                ErrorStep.RESERVATION,
                self._end_expired,
                next_at=self.reservations.next_at,
            ),
            part(ErrorStep.RESERVATION, self.relocation.tick),
        )

    def _preemption_ended(self, nodes: Iterable[str]) -> None:
        """The capacity and the quota that were reserved for a preemptor are free again."""
        self._context.accounts.quota_changed()
        self._context.freed(nodes)

    def start_reservation(self, key: UnitKey) -> StartReservation | None:
        """When and where backfill expects the unit to start."""
        return self.backfill.start_reservation(key)

    def on_reservation(self, event: WatchEvent[ReservationObject | None]) -> None:
        if self.reservation_controller is not None:
            self.reservation_controller.on_event(event)
            self._context.wake()

    def reservations_served(self, served: bool) -> None:
        """Whether the API server serves ResourceReservations."""
        if self.reservations.enable(served):
            for gang in self._context.queue.led():
                self._context.gang_changed(gang)

    # --- planning ---

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """The unit together with its members that are not created yet."""
        if closed:
            closed = self._open_own(unit, closed)
        if (rejection := self.reservations.too_many(unit)) is not None:
            return replace(rejection, nodes=len(self._context.cache.snapshot))
        with self.reservations.uncharged(unit.key):
            extended = self.reservations.with_placeholders(unit)
            result = self._within_limits(extended, closed)
        if isinstance(result, Placed) and (extended is not unit or unit.key in self._reserved):
            return self.reservations.without_placeholders(unit, result)
        return result

    def _within_limits(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """
        Fold what limits the unit into the nodes and the members that a plan may use.

        1. Its quota bounds the members, and closes nodes whose kind of GPU is used up.
        2. Within its tenant's guarantee the unit goes ahead of start reservations.
        3. Else it must leave start reservations intact, if need be on other nodes.
        4. A quota of a kind of GPU that only the plan exceeds closes that kind: from 2. again.
        """
        quota: QuotaConstraint | Plan = self.quota.constraint(unit)
        while isinstance(quota, QuotaConstraint):
            unit, shut = quota.unit, closed | quota.closed
            plan: Plan | None = None
            beyond = self._beyond_guarantee(unit)
            if beyond is not None:
                plan = self._attempt(unit, shut | beyond, self._memo)
                if beyond and isinstance(plan, NoFit):
                    plan = None
                else:
                    self.backfill.planned_within_guarantee(unit, plan)
            if plan is None:
                plan = self._attempt(unit, shut, self._memo)
                review = self.backfill.review(unit, plan)
                plan = review.plan
                if review.avoid:
                    elsewhere = self._attempt(unit, shut | review.avoid, self._memo)
                    plan = self.backfill.choose(review, elsewhere)
            quota = self.quota.inspect(quota, plan)
        return quota

    def _attempt(self, unit: Unit, closed: frozenset[str], memo: Memo) -> Plan:
        """
        One plan on the snapshot. What is reserved for the unit or its tenant counts as free;
        what will be reserved for other tenants before the unit ends counts as used.
        """
        cache = self._context.cache
        own, upcoming = self._reservations_of(unit)
        gang = unit.key if isinstance(unit.key, GangKey) and unit.bound else None
        bound_members = cache.bound_members(gang) if gang is not None else ()
        plan = partial(planner.plan, unit, cache.snapshot, bound_members=bound_members)
        with ExitStack() as trials:
            for key in own:
                trials.enter_context(self._reserved.without(key))
            if upcoming is not None:
                with cache.snapshot.trial():
                    for placement in upcoming.charges:
                        cache.snapshot.suppose(placement.pod, placement.node)
                    shut = closed | upcoming.closed
                    result = plan(memo=memo.for_trial(), closed=shut)
                if isinstance(result, Placed) or not upcoming.optional:
                    return upcoming.explain(result, len(upcoming.closed - closed))
            # A rejection of an equal unit says nothing about one that has reserved capacity.
            return plan(memo=memo.for_trial() if own else memo, closed=closed)

    def _reservations_of(self, unit: Unit) -> tuple[list[UnitKey], UpcomingConstraint | None]:
        """The reservations that the unit may use, and those ahead that it must leave intact."""
        own = [unit.key] if unit.key in self._reserved else []
        if self.reservation_controller is None or not len(self.reservation_controller.tenants):
            return own, None
        tenants = self.reservation_controller.tenants
        return [*own, *tenants.keys_of(unit.tenant)], tenants.upcoming.constraint(unit)

    def _replan(self, unit: Unit) -> Plan:
        """Members that are not created yet, without what is reserved for them now."""
        with self.reservations.uncharged(unit.key):
            return self._within_limits(unit, frozenset())

    def _open_own(self, unit: Unit, closed: frozenset[str]) -> frozenset[str]:
        """Nodes stay open on which the unit has reserved capacity or a start reservation, or is
        within its tenant's guarantee."""
        start = self.start_reservation(unit.key)
        beyond = self._beyond_guarantee(unit)
        own = {placement.node for placement in self._reserved.of(unit.key)}
        own |= start.nodes if start is not None else frozenset()
        return (closed if beyond is None else closed & beyond) - own

    def _beyond_guarantee(self, unit: Unit) -> frozenset[str] | None:
        """Nodes on which the unit exceeds its tenant's guarantee; None: on all."""
        accounts = self._context.accounts
        if accounts.tree.empty:
            return None
        return accounts.nodes_beyond_guarantee(unit, self._context.cache.snapshot.table.rows)

    # --- what becomes of units and pods ---

    def reserved_later(self, pod: Pod) -> Iterable[str]:
        """Capacity that will be reserved for other tenants than the pod's, as sentences."""
        return (
            ()
            if self.reservation_controller is None
            else self.reservation_controller.tenants.upcoming.reserved_from(pod)
        )

    def misfit(self, unit: Unit) -> None:
        """Preempt for the unit, or reserve its start."""
        if self.reservations.too_many(unit) is not None:
            return
        # With its members: a leader alone would evict victims and then wait for capacity for them.
        whole = self.reservations.with_placeholders(unit)
        if not self.preemption.preempt(whole):
            self._no_victims(whole)

    def _no_victims(self, unit: Unit) -> None:
        self.backfill.misfit(unit)
        self.entitlement.misfit(unit)

    def placed(self, unit: Unit, plan: Placed | None = None) -> None:
        """`plan`: its binds are in flight; None: the pods are bound."""
        self.preemption.placed(unit.key, plan.placements if plan is not None else ())
        self.backfill.placed(unit.key)
        self.entitlement.placed(unit.key)
        if self.reservation_controller is not None:
            self.reservation_controller.tenants.release_until_tick(unit.tenant)
        had_reservation = self.reservations.get(unit.key) is not None
        reports_binds = self.reservation_controller is not None
        freed = self.reservations.placed(unit, self._context.now(), reports_binds=reports_binds)
        if had_reservation:
            self._context.freed(freed)
        if had_reservation and self.reservations.get(unit.key) is None:
            assert isinstance(unit.key, GangKey)
            self._context.reservation_ended(unit.key, ALL_MEMBERS_EXIST)

    def gone(self, pod: Pod) -> None:
        self.preemption.gone(pod.uid)
        self.backfill.gone(pod)
        # Two preemptors on one node may need the victims of both to terminate. The freed node
        # requeues neither, because the reservation of each takes the capacity of the other.
        for key in self._reserved if len(self._reserved) else ():
            if any(placement.node == pod.node for placement in self._reserved.of(key)):
                self._context.queue.retry(key, self._context.now())

    def tick(self, now: float) -> None:
        for part in self._parts:
            part.tick()

    def _end_expired(self) -> None:
        now = self._context.now()
        for key, why in self.reservations.expired(self._context.is_live, now):
            with self._context.isolation.step(ErrorStep.RESERVATION, key):
                self._context.freed(self.reservations.release(key))
                self._context.reservation_ended(key, why)

    def next_at(self) -> float | None:
        due = [part.next_at() for part in self._parts]
        return min((at for at in due if at is not None), default=None)


def _reservation_controller(context: SchedulingContext) -> ReservationController | None:
    if context.reservation_writer is None:
        return None
    return ReservationController(
        context.cache,
        context.reservations,
        context.reservation_writer,
        group=context.group,
        now=context.now,
        epoch=context.epoch,
        restored=context.gang_changed,
        released=context.reservation_ended,
        freed=context.freed,
        tasks=context.tasks,
        isolation=context.isolation,
        record=context.record,
    )
