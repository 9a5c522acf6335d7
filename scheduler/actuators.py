"""
What a scheduler acts through, and how it is set up. Values only.
"""

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
    """Whatever the scheduler acts through."""

    binder: Binder
    gates: GateRemover
    gang_evictor: StaleGangEvictor
    reporter: Reporter
    evictor: Evictor | None = None
    """None: nobody is evicted for others."""
    recorder: ReservationWriter | None = None
    """None: room that is kept for members to come is written nowhere."""
    preparing: Callable[[VolumePlugin], VolumePreBind] | None = None
    """Makes what gives claims their volumes before a bind."""
    claiming: (
        Callable[[DynamicResources, Callable[[], None], BackgroundTasks], ClaimPreBind] | None
    ) = None
    """Makes what gives claims their devices before a bind."""
    provisioner: RequestWriter | None = None
    """None: no nodes are asked for; autoscalers see the pods' conditions."""
