"""
Who has to go for a unit, as things stand: rights, promises and budgets in one search.

    grounds   by what right a unit may ask whom; none: nobody has to be searched for
    look      a unit that does not fit: who goes for it
    again     a unit for which some are going already: where more have to go, those on the same
              nodes come first

The room of those who were asked to go counts as free, whoever it was for: what is kept for others
counts beside it. So it may be that nobody else has to go, and the unit only waits.
Pods whose eviction was refused are left out for a while. Nobody is evicted here: see `preempting`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from scheduler.cache.cache import Cache
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placement, Plan
from scheduler.model.pod import Pod
from scheduler.model.unit import StartReservation, Unit
from scheduler.plan.memo import Memo
from scheduler.report.metrics import Metrics
from scheduler.tenancy.preemption import candidates, pdb
from scheduler.tenancy.preemption.guarantees import GuaranteeKeeper
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.preemption.victims import PreemptionPlan, VictimGroup, VictimSearch
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.quota.ledger import Ledger
from scheduler.tenancy.quota.tree import total

_MOST_LEFT_ALONE: Final = 4096

Ground = tuple[candidates.PreemptionGrounds, frozenset[str]]


class Evaluator:
    """`plan` places a unit on the snapshot, away from closed nodes; `asked` lists pods who are
    being asked to go, `start_reservations` lists what backfill reserved, `epoch` the time of
    day."""

    def __init__(
        self,
        cache: Cache,
        *,
        accounts: QuotaAccounts,
        budgets: DisruptionBudgets,
        metrics: Metrics,
        scheduler: str,
        plan: Callable[[Unit, frozenset[str], Memo], Plan],
        rank: Callable[[str], int],
        group: Callable[[GangKey], PodGroup | None],
        now: Callable[[], float],
        epoch: Callable[[], float],
        asked: Callable[[], Iterable[str]],
        start_reservations: Callable[[], Iterable[StartReservation]],
    ) -> None:
        self._cache = cache
        self._accounts = accounts
        self._budgets = budgets
        self._metrics = metrics
        self._scheduler = scheduler
        self._plan, self._rank, self._group = plan, rank, group
        self._now, self._epoch, self._asked = now, epoch, asked
        self._start_reservations = start_reservations
        self._left_alone: dict[str, float] = {}  # pod uid -> until when

    def leave_alone(self, pod: Pod, seconds: float) -> None:
        if len(self._left_alone) >= _MOST_LEFT_ALONE:
            self._left_alone.clear()
        self._left_alone[pod.uid] = self._now() + seconds

    def forget(self, uid: str) -> None:
        """The pod left its node."""
        self._left_alone.pop(uid, None)

    def grounds(self, unit: Unit) -> list[Ground]:
        """
        By what right somebody may be asked to go, and the nodes on which it is none.

        That of its tenant's promise first, on the nodes that are within it; then the others, on any
        node on which no start was promised to somebody of at least this priority.
        """
        accounts = self._accounts
        beyond = accounts.beyond(unit, self._cache.snapshot.table.rows)
        rights = [(True, beyond)] if beyond is not None else []
        if beyond is None or beyond:
            rights.append((False, self._shut(unit)))
        claims = ((candidates.claim(unit, entitled=right), closed) for right, closed in rights)
        return [
            (asks, closed)
            for asks, closed in claims
            if asks is not None and self._somebody(asks, accounts.ledger)
        ]

    def _shut(self, unit: Unit) -> frozenset[str]:
        others = (one for one in self._start_reservations() if one.key != unit.key)
        return frozenset().union(*(one.nodes for one in others if one.priority >= unit.priority))

    def like(self, unit: Unit, grounds: Sequence[Ground]) -> Hashable:
        """Equal for units that a search answers alike."""
        if unit.bound:
            return unit.key
        specs = {pod.spec: pod for pod in unit.pods}
        signatures = frozenset((s, self._cache.snapshot.signature(p)) for s, p in specs.items())
        rights = tuple((asks.entitled, asks.yields) for asks, _ in grounds)
        return unit.tenant, unit.priority, unit.need, signatures, rights

    def look(self, unit: Unit, grounds: Sequence[Ground]) -> PreemptionPlan | None:
        """Who goes. Nobody, where those are enough who were asked to go for others."""
        going = self._going()
        plan = self._searched(unit, frozenset(), going).fits() if going else None
        return PreemptionPlan((), plan) if plan is not None else self._look(unit, grounds, going)

    def again(self, unit: Unit, nodes: frozenset[str]) -> PreemptionPlan | None:
        """Who else goes, maybe nobody; on these nodes first."""
        going = self._going()
        plan = self._searched(unit, frozenset(), going).fits()
        if plan is not None:
            return PreemptionPlan((), plan)
        grounds = self.grounds(unit)
        near = self._look(unit, grounds, going, near=nodes)
        return self._look(unit, grounds, going) if near is None else near

    def _going(self) -> list[Placement]:
        """Whoever was asked to go, and is still there."""
        found = (self._cache.held(uid) for uid in sorted(set(self._asked())))
        return [Placement(one.pod, one.node, one.assignment) for one in found if one is not None]

    def _look(
        self,
        unit: Unit,
        grounds: Sequence[Ground],
        going: Sequence[Placement],
        near: frozenset[str] | None = None,
    ) -> PreemptionPlan | None:
        found = (self._search(unit, asks, closed, going, near) for asks, closed in grounds)
        return next((one for one in found if one is not None), None)

    def _search(
        self,
        unit: Unit,
        asks: candidates.PreemptionGrounds,
        closed: frozenset[str],
        going: Sequence[Placement],
        near: frozenset[str] | None,
    ) -> PreemptionPlan | None:
        self._metrics.preemption.labels("search").inc()
        pods, now = self._cache.occupants(), self._now()
        waited = {one.pod.uid for one in going}
        view = candidates.CandidateContext(
            self._scheduler,
            self._epoch(),
            self._rank,
            self._group,
            lambda pod: pod.uid in waited or self._left_alone.get(pod.uid, 0.0) > now,
        )
        leaving = [one for one in pods if one.pod.terminating or one.pod.uid in waited]
        found = candidates.bundles(pods, asks, view)
        if near is not None:
            found = _near(found, near)
        accounts = self._accounts
        sparing = GuaranteeKeeper(
            accounts.ledger,
            lambda one: accounts.amounts(one.pod, one.node),
            unit=(unit.tenant, total(accounts.amounts(pod) for pod in unit.pods[: unit.need])),
            going=leaving,
        )
        return sparing.choose(
            found,
            lambda able: pdb.within(
                self._budgets,
                able,
                lambda: self._searched(unit, closed, going),
                asked=[one.pod for one in leaving if not one.pod.terminating],
            ),
        )

    def _searched(
        self, unit: Unit, closed: frozenset[str], going: Sequence[Placement]
    ) -> VictimSearch:
        return VictimSearch(
            self._cache.snapshot,
            lambda memo: self._plan(unit, closed, memo),
            unit.need,
            going=going,
        )

    def _somebody(self, asks: candidates.PreemptionGrounds, ledger: Ledger) -> bool:
        """A quick look: most units that do not fit have nobody to ask."""
        lowest = self._cache.lowest(asks.tenant)
        if lowest is not None and lowest < asks.priority:
            return True
        if self._cache.preemptible and not asks.yields:
            return True
        return asks.entitled and any(name != asks.tenant for name in ledger.members())


def _near(bundles: Sequence[VictimGroup], nodes: frozenset[str]) -> list[VictimGroup]:
    """Those with a pod on these nodes, and whatever else belongs to their gangs."""
    there = [b for b in bundles if any(one.node in nodes for one in b.pods)]
    keys, gangs = {b.key for b in there}, {b.gang for b in there if b.gang is not None}
    return [b for b in bundles if b.key in keys or b.gang in gangs]
