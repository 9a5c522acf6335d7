"""Gangs: their key, and what a pod says about its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from policies.json_fields import Json
from scheduler.errors import ModelError


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A gang is a name within a namespace; unlike a `PodKey`, so that the two never meet."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Gang:
    """A pod's membership: `min_available` members are placed in one plan, or none is."""

    key: GangKey
    min_available: int | None
    """None: a PodGroup object says it."""
    leader: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class PodGroup:
    """What a PodGroup object says."""

    size: int
    timeout: float | None = None


def read_native(obj: Json) -> PodGroup:
    """From a `scheduling.k8s.io` PodGroup; raises `ModelError` naming the object and the field."""
    policy = _map(_map(obj.get("spec")).get("schedulingPolicy"))
    if "gang" not in policy:
        return PodGroup(1)
    return PodGroup(_count(obj, _map(policy["gang"]), "minCount", "spec.schedulingPolicy.gang"))


def read_x(obj: Json) -> PodGroup:
    """From a `scheduling.x-k8s.io` PodGroup; raises `ModelError` naming the object and field."""
    spec = _map(obj.get("spec"))
    seconds = spec.get("scheduleTimeoutSeconds")
    timeout = float(seconds) if isinstance(seconds, int) and seconds > 0 else None
    return PodGroup(_count(obj, spec, "minMember", "spec"), timeout)


def _count(obj: Json, where: Json, field: str, path: str) -> int:
    found = where.get(field)
    if isinstance(found, int) and not isinstance(found, bool) and found >= 1:
        return found
    about = _map(obj.get("metadata"))
    name = f"{about.get('namespace')}/{about.get('name')}"
    raise ModelError(
        f"PodGroup {name}: {path}.{field} is {found!r}, want a whole number of at least 1"
    )


def _map(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
