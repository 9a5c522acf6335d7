"""
What a scheduler acts through, and how it is set up. Values only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.binder import Binder
from scheduler.dra.preparing import Claiming
from scheduler.gates import Gates
from scheduler.holding import HOLD_SECONDS
from scheduler.provisioning.writing import Writer
from scheduler.queueing import STARVING_AFTER
from scheduler.release import Releaser
from scheduler.rules.devices import Devices
from scheduler.rules.volumes import Volumes
from scheduler.telling import Telling
from scheduler.tenancy.evicting import Evictor
from scheduler.tenancy.recording import Recorder
from scheduler.volumes.preparing import Preparing

# Binds beyond what the connections carry would only wait there, grow old, and be decided too early.
MOST_IN_FLIGHT: Final = 128


@dataclass(frozen=True, slots=True)
class Settings:
    most_in_flight: int = MOST_IN_FLIGHT
    """Pods whose binds are in flight; planning waits beyond."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a gang that starves."""


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
