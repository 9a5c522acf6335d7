"""What preemption needs of the scheduler around it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache
from scheduler.fork import ForkPolicy
from scheduler.isolation import Isolation
from scheduler.model.gang import GangKey, PodGroup
from scheduler.model.plan import Placement, Plan
from scheduler.model.unit import StartReservation, Unit, UnitKey
from scheduler.plan.memo import Memo
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.quota.accounting import QuotaAccounts


class PendingMembers(Protocol):
    """Reservations for gang members that are not created yet."""

    def with_placeholders(self, unit: Unit) -> Unit:
        """The unit with placeholders for these members."""
        ...

    def placements(self, key: UnitKey) -> tuple[Placement, ...]: ...

    def get(self, key: UnitKey) -> object | None: ...


@dataclass(frozen=True, slots=True)
class PreemptionContext:
    """`now` is the scheduler's clock, `epoch` the time of day."""

    scheduler: str
    cache: Cache
    accounts: QuotaAccounts
    budgets: DisruptionBudgets
    reservations: PendingMembers
    queue: SchedulingQueue
    metrics: Metrics
    evictor: Evictor | None
    """None: the scheduler evicts no pod."""
    plan: Callable[[Unit, frozenset[str], Memo], Plan]
    """Places a unit on the snapshot, away from closed nodes."""
    tier_rank: Callable[[str], int]
    pod_group: Callable[[GangKey], PodGroup | None]
    now: Callable[[], float]
    epoch: Callable[[], float]
    wake: Callable[[], None]
    freed: Callable[[Iterable[str]], None]
    """Called with the nodes on which reserved capacity ends."""
    tasks: BackgroundTasks
    isolation: Isolation
    start_reservations: Callable[[], Iterable[StartReservation]]
    no_victims: Callable[[Unit], None]
    """Called for a unit whose search in a fork found no victims."""
    fork: ForkPolicy | None = None
    """Runs long searches; None: every search runs in the event loop."""
