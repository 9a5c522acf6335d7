"""Gangs: their key, a pod's membership, and PodGroup objects."""

from dataclasses import dataclass

from policies import bounds
from policies.json_fields import Json, mapping
from policies.text import shown
from scheduler.errors import ModelError
from scheduler.model.fields import lasting


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A gang is a name within a namespace; a class of its own, so never equal to a `PodKey`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Gang:
    """A pod's membership: `min_available` members are placed in one plan, or none is."""

    key: GangKey
    min_available: int | None
    """None: the gang's PodGroup object gives the size."""
    leader: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Size and timeout of a PodGroup object."""

    size: int
    timeout: float | None = None


def read_native_pod_group(obj: Json) -> PodGroup:
    """From a `scheduling.k8s.io` PodGroup; raises `ModelError` naming the object and the field."""
    policy = mapping(mapping(obj.get("spec")).get("schedulingPolicy"))
    if "gang" not in policy:
        return PodGroup(1)
    return PodGroup(
        _pod_group_size(obj, mapping(policy["gang"]), "minCount", "spec.schedulingPolicy.gang")
    )


def read_x_k8s_pod_group(obj: Json) -> PodGroup:
    """From a `scheduling.x-k8s.io` PodGroup; raises `ModelError` naming the object and field."""
    spec = mapping(obj.get("spec"))
    seconds = spec.get("scheduleTimeoutSeconds")
    timeout = lasting(seconds) if isinstance(seconds, int) and seconds > 0 else None
    return PodGroup(_pod_group_size(obj, spec, "minMember", "spec"), timeout)


def _pod_group_size(obj: Json, parent: Json, field: str, path: str) -> int:
    value = parent.get(field)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return bounds.GANG_SIZE.clamp(value)
    about = mapping(obj.get("metadata"))
    name = f"{about.get('namespace')}/{about.get('name')}"
    raise ModelError(
        f"PodGroup {name}: {path}.{field} is {shown(value)}, want a whole number of at least 1"
    )
