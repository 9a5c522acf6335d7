"""What the parts of the scheduler share: state, clocks and callbacks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.events import correlator
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache
from scheduler.fork import ForkPolicy
from scheduler.isolation import Isolation
from scheduler.model.gang import GangKey, PodGroup
from scheduler.queueing.scheduling_queue import SchedulingQueue
from scheduler.report.metrics import Metrics
from scheduler.tenancy.fairshare.shares import FairShares
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.preemption.pdb import DisruptionBudgets
from scheduler.tenancy.quota.accounting import QuotaAccounts
from scheduler.tenancy.reservation.members import MemberReservations
from scheduler.tenancy.reservation.writer import ReservationWriter


@dataclass(frozen=True, slots=True)
class SchedulingContext:
    """`now` is a clock that never jumps back, `epoch` the time of day; `wake` starts a cycle,
    `freed` names nodes with more free capacity."""

    scheduler: str
    cache: Cache
    accounts: QuotaAccounts
    shares: FairShares
    budgets: DisruptionBudgets
    reservations: MemberReservations
    queue: SchedulingQueue
    metrics: Metrics
    evictor: Evictor | None
    group: Callable[[GangKey], PodGroup | None]
    tasks: BackgroundTasks
    isolation: Isolation
    now: Callable[[], float]
    epoch: Callable[[], float]
    wake: Callable[[], None]
    freed: Callable[[Iterable[str]], None]
    is_live: Callable[[str], bool]
    """Whether the pod with this uid waits for a node, or has one and is not terminating."""
    reservation_ended: Callable[[GangKey, str], None]
    """The gang has no reserved capacity any more, for this reason."""
    gang_changed: Callable[[GangKey], None] = lambda gang: None
    """The gang has another size or other reserved capacity."""
    record: Callable[[correlator.EventReport], None] = lambda report: None
    """Writes an Event."""
    reservation_writer: ReservationWriter | None = None
    """None: reservations for gang members live in memory only."""
    fork: ForkPolicy | None = None
    """Runs long computations beside the event loop; None: they run in it."""
