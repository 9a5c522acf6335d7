"""
The interface of tenancy to the cycle: it calls quota, preemption, backfill and reservations.

    plan       a unit within its quota; its own reserved capacity counts as free
    misfit     a unit did not fit: preempt for it, or reserve a start
    placed     a unit has its nodes: its reservations end
    gone       a pod left its node
    tick       time passes

The parts decide.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

from cluster.informer import WatchEvent
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
            context.cache, context.accounts, lambda: self.preempting.attempts
        )
        self.decay = ShareDecay(context.cache.snapshot, context.shares, context.epoch)
        self.quotas = QuotaEnforcer(
            context.cache,
            context.accounts,
            context.queue,
            within_preemptor_quota=preemptor_quota.within_quota,
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
                freed=self._opened,
                tasks=context.tasks,
                start_reservations=lambda: self.backfill.start_reservations(),
            )
        )
        evictor, preempting = context.evictor, self.preempting
        means = BackfillActions(
            plan=self._attempt,
            with_placeholders=context.reservations.with_placeholders,
            evict=preempting.evict,
            is_preempting=preempting.in_progress,
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
        """A preemptor's reserved capacity ends, and so does its reserved quota."""
        self._context.accounts.quota_changed()
        self._context.freed(nodes)

    def start_reservation(self, key: UnitKey) -> StartReservation | None:
        """When and where backfill expects the unit to start."""
        return self.backfill.start_reservation(key)

    def on_reservation(self, event: WatchEvent[ReservationObject | None]) -> None:
        if self.reserving is not None:
            self.reserving.on_event(event)
            self._context.wake()

    def reservations_served(self, served: bool) -> None:
        """Whether the API server has the kind ResourceReservation."""
        if self.reservations.enable(served):
            for gang in self._context.queue.led():
                self._context.regrouped(gang)

    # --- planning ---

    def plan(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """The unit together with its members that are not created yet."""
        if closed:
            closed = self._open_own(unit, closed)
        with self.reservations.uncharged(unit.key):
            extended = self.reservations.with_placeholders(unit)
            found = self._within_limits(extended, closed)
        if isinstance(found, Placed) and (extended is not unit or unit.key in self._reserved):
            return self.reservations.without_placeholders(unit, found)
        return found

    def _within_limits(self, unit: Unit, closed: frozenset[str]) -> Plan:
        """
        Fold what limits the unit into the nodes and the members that a plan may use.

        1. Its quota bounds the members, and closes nodes whose kind of GPU is used up.
        2. Within its tenant's guarantee the unit goes ahead of start reservations.
        3. Else it must leave start reservations intact, if need be on other nodes.
        4. A quota of a kind of GPU that only the plan exceeds closes that kind: from 2. again.
        """
        quota: QuotaConstraint | Plan = self.quotas.constraint(unit)
        while isinstance(quota, QuotaConstraint):
            unit, shut = quota.unit, closed | quota.closed
            found: Plan | None = None
            beyond = self._beyond_guarantee(unit)
            if beyond is not None:
                found = self._attempt(unit, shut | beyond, self._memo)
                if beyond and isinstance(found, NoFit):
                    found = None
                else:
                    self.backfill.planned_within_guarantee(unit, found)
            if found is None:
                found = self._attempt(unit, shut, self._memo)
                review = self.backfill.review(unit, found)
                found = review.plan
                if review.avoid:
                    elsewhere = self._attempt(unit, shut | review.avoid, self._memo)
                    found = self.backfill.choose(review, elsewhere)
            quota = self.quotas.inspect(quota, found)
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
                trials.enter_context(self._reserved.lifted(key))
            if upcoming is not None:
                with cache.snapshot.trial():
                    for one in upcoming.charges:
                        cache.snapshot.suppose(one.pod, one.node)
                    shut = closed | upcoming.closed
                    found = plan(memo=memo.for_trial(), closed=shut)
                if isinstance(found, Placed) or not upcoming.optional:
                    return upcoming.explain(found, len(upcoming.closed - closed))
            # A rejection of an equal unit says nothing about one that has reserved capacity.
            return plan(memo=memo.for_trial() if own else memo, closed=closed)

    def _reservations_of(self, unit: Unit) -> tuple[list[UnitKey], UpcomingConstraint | None]:
        """The reservations that the unit may use, and those ahead that it must leave intact."""
        own = [unit.key] if unit.key in self._reserved else []
        if self.reserving is None or not len(self.reserving.tenants):
            return own, None
        tenants = self.reserving.tenants
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
        own = {one.node for one in self._reserved.of(unit.key)}
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
        return () if self.reserving is None else self.reserving.tenants.upcoming.reserved_from(pod)

    def misfit(self, unit: Unit) -> None:
        # Preemption for a leader alone is useless: it waits for the capacity of its members.
        whole = self.reservations.with_placeholders(unit)
        if not self.preempting.preempt(whole):
            self.backfill.misfit(whole)
            self.wanting.misfit(whole)

    def placed(self, unit: Unit, plan: Placed | None = None) -> None:
        """`plan`: the pods that are being bound, if any."""
        self.preempting.placed(unit.key, plan.placements if plan is not None else ())
        self.backfill.placed(unit.key)
        self.wanting.placed(unit.key)
        if self.reserving is not None:
            self.reserving.tenants.release_until_tick(unit.tenant)
        kept = self.reservations.get(unit.key)
        reports_binds = self.reserving is not None
        freed = self.reservations.placed(unit, self._context.now(), reports_binds=reports_binds)
        if kept is not None:
            self._context.freed(freed)
        if kept is not None and self.reservations.get(unit.key) is None:
            assert isinstance(unit.key, GangKey)
            self._context.reserved(unit.key, ALL_MEMBERS_EXIST)

    def gone(self, pod: Pod) -> None:
        self.preempting.gone(pod.uid)
        self.backfill.gone(pod)
        # Two preemptors on one node may need the victims of both. No node event activates them,
        # because their own reserved capacity uses up what is freed.
        for key in self._reserved if len(self._reserved) else ():
            if any(one.node == pod.node for one in self._reserved.of(key)):
                self._context.queue.retry(key, self._context.now())

    def tick(self, now: float) -> None:
        if self.reserving is not None:
            self.reserving.tick()
        self.decay.tick(now)
        self.quotas.tick(now)
        self.wanting.tick(now)
        self.preempting.tick()
        self.backfill.tick()
        for key, why in self.reservations.expired(self._context.leads, now):
            self._context.freed(self.reservations.release(key))
            self._context.reserved(key, why)
        self.moving.tick()

    def next_at(self) -> float | None:
        parts = (self.preempting, self.backfill, self.reservations, self.reserving)
        due = [part.next_at() for part in parts if part is not None]
        return min((at for at in due if at is not None), default=None)


def _reserving(context: SchedulingContext) -> ReservationController | None:
    if context.reservation_writer is None:
        return None
    return ReservationController(
        context.cache,
        context.reservations,
        context.reservation_writer,
        group=context.group,
        now=context.now,
        epoch=context.epoch,
        restored=context.regrouped,
        released=context.reserved,
        freed=context.freed,
        tasks=context.tasks,
        record=context.record,
    )
