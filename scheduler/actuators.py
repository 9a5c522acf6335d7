"""The writers that the scheduler acts through. Values only."""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.background import BackgroundTasks
from scheduler.bind.binder import Binder
from scheduler.gang.gates import GateRemover
from scheduler.gang.stale_gang_eviction import StaleGangEvictor
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.dra.prebind import ClaimPreBind
from scheduler.plugins.volumes.plugin import VolumePlugin
from scheduler.plugins.volumes.prebind import VolumePreBind
from scheduler.provisioning.writer import RequestWriter
from scheduler.report.reporter import Reporter
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.reservation.writer import ReservationWriter


@dataclass(frozen=True, slots=True)
class Actuators:
    """One writer for each kind of write; each asks whether this process still leads."""

    binder: Binder
    gates: GateRemover
    gang_evictor: StaleGangEvictor
    reporter: Reporter
    evictor: Evictor | None = None
    """None: no preemption."""
    reservation_writer: ReservationWriter | None = None
    """None: reservations for gang members live in memory only."""
    volume_prebind: Callable[[VolumePlugin], VolumePreBind] | None = None
    """Builds the PreBind step of PersistentVolumeClaims."""
    claim_prebind: (
        Callable[[DynamicResources, Callable[[], None], BackgroundTasks], ClaimPreBind] | None
    ) = None
    """Builds the PreBind step of ResourceClaims."""
    request_writer: RequestWriter | None = None
    """None: no ProvisioningRequests; autoscalers read the conditions of the pods."""
