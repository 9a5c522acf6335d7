"""
What a scheduler acts through, and how it is set up. Values only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.bind.binder import Binder
from scheduler.gang.gates import Gates
from scheduler.gang.stale_gang_eviction import Releaser
from scheduler.plugins.dra.plugin import Devices
from scheduler.plugins.dra.prebind import Claiming
from scheduler.plugins.volumes.plugin import Volumes
from scheduler.plugins.volumes.prebind import Preparing
from scheduler.provisioning.writer import Writer
from scheduler.report.reporter import Telling
from scheduler.tenancy.preemption.executor import Evictor
from scheduler.tenancy.reservation.writer import Recorder


@dataclass(frozen=True, slots=True)
class Hands:
    """Whatever the scheduler acts through."""

    binder: Binder
    gates: Gates
    releaser: Releaser
    telling: Telling
    evictor: Evictor | None = None
    """None: nobody is evicted for others."""
    recorder: Recorder | None = None
    """None: room that is kept for members to come is written nowhere."""
    preparing: Callable[[Volumes], Preparing] | None = None
    """Makes what gives claims their volumes before a bind."""
    claiming: Callable[[Devices, Callable[[], None]], Claiming] | None = None
    """Makes what gives claims their devices before a bind."""
    provisioner: Writer | None = None
    """None: no nodes are asked for; autoscalers see the pods' conditions."""
