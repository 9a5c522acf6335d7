"""
Attributes of a pod for queueing and preemption: tenant, tier, workload type, duration, grace.

They come from the labels and annotations that the admission webhook writes. A pod that the webhook
did not admit has no tenant and no expected duration. No attribute decides which nodes fit: that is
`pod.SchedulingSpec`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policies import quantity, vocabulary
from policies.json_fields import Json, mapping
from scheduler.model.fields import instant, lasting, whole
from scheduler.model.resources import capped

SYSTEM_CRITICAL: Final = 2_000_000_000
"""The lowest priority of system-critical pods."""
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class PodAttributes:
    tenant: str = ""
    tier: str = ""
    workload_type: str = ""
    preemptible: bool = False
    """Other tenants' pods may preempt it."""
    backfill: bool = False
    may_preempt: bool = True
    """`preemptionPolicy` is not `Never`."""
    mirror: bool = False
    """The mirror of a static pod: an eviction has no effect on it."""
    duration: float | None = None
    """Expected run time in seconds, where the pod declares one; at most `fields.LONGEST`."""
    started_at: float = 0.0
    """Seconds of the epoch; 0: not yet started."""
    grace_period: float = 30.0
    """Seconds that it may take to terminate."""
    member_requests: tuple[tuple[str, int], ...] = ()
    """For a leader: the requests of each member that it creates, where it declares them."""


NO_ATTRIBUTES: Final = PodAttributes()


def read(
    labels: Mapping[str, str], annotations: Mapping[str, str], obj: Json, duration: float | None
) -> PodAttributes:
    """`duration` is the expected run time, where the pod declares a valid one."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    return PodAttributes(
        tenant=labels.get(vocabulary.TENANT_LABEL, ""),
        tier=labels.get(vocabulary.TIER_LABEL, ""),
        workload_type=labels.get(vocabulary.WORKLOAD_TYPE_LABEL, ""),
        preemptible=labels.get(vocabulary.PREEMPTIBLE_LABEL) == "true",
        backfill=labels.get(vocabulary.BACKFILL_LABEL) == "true",
        may_preempt=spec.get("preemptionPolicy") != "Never",
        mirror=MIRROR_ANNOTATION in annotations,
        duration=_shortest(duration, spec.get("activeDeadlineSeconds")),
        started_at=instant(status.get("startTime")),
        grace_period=lasting(whole(spec.get("terminationGracePeriodSeconds", 30))),
        member_requests=_amounts(annotations.get(vocabulary.GANG_MEMBERS_ANNOTATION)),
    )


def _amounts(text: str | None) -> tuple[tuple[str, int], ...]:
    """Sorted. Admission denies an invalid text, so it counts as absent here."""
    if text is None:
        return ()
    try:
        amounts = quantity.amounts(text)
    except quantity.QuantityError:
        return ()
    return tuple(sorted((name, capped(count)) for name, count in amounts.items()))


def _shortest(declared: float | None, deadline: object) -> float | None:
    """The kubelet ends the pod at its deadline, even when it declares a longer duration."""
    limits = [] if declared is None else [lasting(declared)]
    if isinstance(deadline, int) and not isinstance(deadline, bool) and deadline > 0:
        limits.append(lasting(deadline))
    return min(limits, default=None)
