"""
The options of a scheduler process, and tunables that several modules share. Values only.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from policies import vocabulary
from policies.engine import loader

# More binds than connections would only wait, on plans that grow stale.
MAX_IN_FLIGHT: Final = 128


class StaleGangPolicy(StrEnum):
    """What happens to bound members of a gang that stays partial past its timeout."""

    EVICT = "evict"
    HOLD = "hold"


HOLD_SECONDS: Final = 300.0
STARVING_AFTER: Final = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    kubeconfig: Path | None = None
    """None: KUBECONFIG, the service account of the pod, ~/.kube/config."""
    port: int = 10259
    """Of the HTTP endpoints: health, metrics, explanations."""
    host: str = "127.0.0.1"
    """The address of the HTTP endpoints."""
    scheduler_name: str = vocabulary.SCHEDULER_NAME
    """The scheduler places pods with this spec.schedulerName."""
    leader_elect: bool = False
    """Several replicas run; the one that holds the lease plans and binds."""
    lease_namespace: str = vocabulary.SYSTEM_NAMESPACE
    """The namespace of the lease."""
    stale_gang_policy: StaleGangPolicy = StaleGangPolicy.EVICT
    """What happens to bound members of a gang that stays partial past its timeout."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a waiting unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a starving gang."""
    policies: tuple[Path, ...] = (loader.LIBRARY,)
    """Files and folders with the policies that placement uses."""
    policy_objects: bool = True
    """Watch PlatformPolicy and TenantPolicy objects as well."""
    provisioning_class: str = ""
    """Create ProvisioningRequests of this class for gangs; empty: never."""


@dataclass(frozen=True, slots=True)
class CycleSettings:
    max_in_flight: int = MAX_IN_FLIGHT
    """Pods whose binds may be in flight; at the limit, planning waits."""
    starving_after: float = STARVING_AFTER
    """Seconds after which a waiting unit goes before others of its priority."""
    hold_seconds: float = HOLD_SECONDS
    """How long nodes are held for a starving gang."""
