"""
How a scheduler process is started. Values only.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from policies import vocabulary
from policies.engine import loader

# Binds beyond what the connections carry would only wait there, grow old, and be decided too early.
MOST_IN_FLIGHT: Final = 128


class StaleGangPolicy(StrEnum):
    """What is done about bound members of a gang that cannot be completed in time."""

    EVICT = "evict"
    HOLD = "hold"


HOLD_SECONDS: Final = 300.0


STARVING_AFTER: Final = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    kubeconfig: Path | None = None
    """How to reach the API server; None: KUBECONFIG, the pod's own account, ~/.kube/config."""
    port: int = 10259
    """Where health and metrics are served."""
    host: str = "127.0.0.1"
    """The address they are served on."""
    scheduler_name: str = vocabulary.SCHEDULER_NAME
    """Pods whose spec.schedulerName is this are placed."""
    leader_elect: bool = False
    """Run several, of which the one that holds the lease plans and binds."""
    lease_namespace: str = vocabulary.SYSTEM_NAMESPACE
    """Where the lease lives."""
    stale_gang_policy: StaleGangPolicy = StaleGangPolicy.EVICT
    """What is done about bound members of a gang that cannot be completed in time."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a gang that starves."""
    policies: tuple[Path, ...] = (loader.LIBRARY,)
    """Files and folders with the policies whose tables placement goes by."""
    policy_objects: bool = True
    """Follow PlatformPolicy and TenantPolicy objects as well."""
    provisioning_class: str = ""
    """Ask for nodes for gangs with ProvisioningRequests of this class; empty: never."""


@dataclass(frozen=True, slots=True)
class CycleSettings:
    most_in_flight: int = MOST_IN_FLIGHT
    """Pods whose binds are in flight; planning waits beyond."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a gang that starves."""
