"""What the parts of tenancy need of the scheduler around them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.events import correlator
from scheduler.background import BackgroundTasks
from scheduler.cache.cache import Cache
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
    """What the parts share. `now` is the scheduler's clock, `epoch` the time of day."""

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
    now: Callable[[], float]
    epoch: Callable[[], float]
    wake: Callable[[], None]
    freed: Callable[[Iterable[str]], None]
    leads: Callable[[str], bool]
    """Whether the pod with this uid waits for a node, or has one and goes on."""
    reserved: Callable[[GangKey, str], None]
    """Told when nothing is kept for the gang any more, and why."""
    regrouped: Callable[[GangKey], None] = lambda gang: None
    """Told when something is kept for the gang that was not."""
    record: Callable[[correlator.EventReport], None] = lambda report: None
    """Takes Events."""
    reservation_writer: ReservationWriter | None = None
    """None: what is kept for members to come is written nowhere."""
