"""
PodGroup objects: how large a gang is when its pods do not say so themselves.

    scheduling.k8s.io PodGroup      spec.schedulingPolicy.gang.minCount; `basic` holds nobody back
    scheduling.x-k8s.io PodGroup    spec.minMember, spec.scheduleTimeoutSeconds

A gang is (namespace, name) whichever kind its object has; where both kinds have one of that name,
the larger size counts, so that nobody is bound too early. Only values are kept here: `discovery`
feeds them from watches, and `queueing` asks for them.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.informer import Event, Kind
from scheduler.errors import ModelError
from scheduler.model.pod import GangKey

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Group:
    """What a PodGroup object says."""

    size: int
    timeout: float | None = None


def read_native(obj: Json) -> Group:
    """From a `scheduling.k8s.io` PodGroup; raises `ModelError` naming the object and the field."""
    policy = _map(_map(obj.get("spec")).get("schedulingPolicy"))
    if "gang" not in policy:
        return Group(1)
    return Group(_count(obj, _map(policy["gang"]), "minCount", "spec.schedulingPolicy.gang"))


def read_x(obj: Json) -> Group:
    """From a `scheduling.x-k8s.io` PodGroup; raises `ModelError` naming the object and field."""
    spec = _map(obj.get("spec"))
    seconds = spec.get("scheduleTimeoutSeconds")
    timeout = float(seconds) if isinstance(seconds, int) and seconds > 0 else None
    return Group(_count(obj, spec, "minMember", "spec"), timeout)


class Groups:
    """The objects of both kinds; `on_change` hears of every gang whose size may be another now."""

    def __init__(self, on_change: Callable[[GangKey], None]) -> None:
        self._on_change = on_change
        self._native: dict[GangKey, Group] = {}
        self._x: dict[GangKey, Group] = {}

    def find(self, gang: GangKey) -> Group | None:
        found = [
            kind[gang] for kind in (self._native, self._x) if gang in kind
        ]  # native first: its timeout, of which it has none, yields to the other's
        if not found:
            return None
        timeouts = [group.timeout for group in found if group.timeout is not None]
        return Group(max(group.size for group in found), timeouts[0] if timeouts else None)

    def on_native(self, event: Event[Group | None]) -> None:
        self._take(self._native, event)

    def on_x(self, event: Event[Group | None]) -> None:
        self._take(self._x, event)

    def _take(self, kind: dict[GangKey, Group], event: Event[Group | None]) -> None:
        gang = GangKey(*event.key)
        before = kind.get(gang)
        if event.kind is Kind.DELETED or event.object is None:
            kind.pop(gang, None)
        else:
            kind[gang] = event.object
        if kind.get(gang) != before:
            self._on_change(gang)


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
