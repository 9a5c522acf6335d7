"""
On what terms a pod runs: for whom, of what kind, how long, and whether it yields to others.

What the webhook stamped is read as it stands; a pod that it never saw has no tenant, and says
nothing of time. None of it decides where the pod *may* go: see `model.Shape` for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policies import quantity, vocabulary
from scheduler.model.fields import Json, instant, mapping, whole

# From this priority on a pod is of the cluster itself.
SYSTEM_CRITICAL: Final = 2_000_000_000
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class PodAttributes:
    tenant: str = ""
    tier: str = ""
    type: str = ""
    """Workload type."""
    preemptible: bool = False
    """Yields to work of other tenants."""
    backfill: bool = False
    preempts: bool = True
    """May have others evicted: `preemptionPolicy` is not `Never`."""
    fixed: bool = False
    """A mirror of what the node itself runs: nobody can evict it."""
    lasts: float | None = None
    """Seconds that it is expected to run, as it says itself."""
    started: float = 0.0
    """Seconds of the epoch; 0: not yet."""
    grace: float = 30.0
    """Seconds that it may take to end."""
    members: tuple[tuple[str, int], ...] = ()
    """What each pod asks for that it is going to make, where it says so."""


NO_TERMS: Final = PodAttributes()


def read(
    labels: Mapping[str, str], annotations: Mapping[str, str], obj: Json, lasts: float | None
) -> PodAttributes:
    """`lasts` is the expected duration, where the pod states one that can be read."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    return PodAttributes(
        tenant=labels.get(vocabulary.TENANT_LABEL, ""),
        tier=labels.get(vocabulary.TIER_LABEL, ""),
        type=labels.get(vocabulary.WORKLOAD_TYPE_LABEL, ""),
        preemptible=labels.get(vocabulary.PREEMPTIBLE_LABEL) == "true",
        backfill=labels.get(vocabulary.BACKFILL_LABEL) == "true",
        preempts=spec.get("preemptionPolicy") != "Never",
        fixed=MIRROR_ANNOTATION in annotations,
        lasts=_shortest(lasts, spec.get("activeDeadlineSeconds")),
        started=instant(status.get("startTime")),
        grace=float(whole(spec.get("terminationGracePeriodSeconds", 30))),
        members=_amounts(annotations.get(vocabulary.GANG_MEMBERS_ANNOTATION)),
    )


def _amounts(text: str | None) -> tuple[tuple[str, int], ...]:
    """What cannot be read says nothing: admission refuses it."""
    if text is None:
        return ()
    try:
        return tuple(sorted(quantity.amounts(text).items()))
    except quantity.QuantityError:
        return ()


def _shortest(stated: float | None, deadline: object) -> float | None:
    """A deadline ends the pod, whatever it expects of itself."""
    known = [] if stated is None else [stated]
    if isinstance(deadline, int) and not isinstance(deadline, bool) and deadline > 0:
        known.append(float(deadline))
    return min(known, default=None)
