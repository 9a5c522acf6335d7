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
from typing import Any

from cluster.informer import EventKind, WatchEvent
from scheduler.model.gang import GangKey, PodGroup

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]


class PodGroups:
    """The objects of both kinds; `on_change` hears of every gang whose size may be another now."""

    def __init__(self, on_change: Callable[[GangKey], None]) -> None:
        self._on_change = on_change
        self._native: dict[GangKey, PodGroup] = {}
        self._x: dict[GangKey, PodGroup] = {}

    def find(self, gang: GangKey) -> PodGroup | None:
        found = [
            kind[gang] for kind in (self._native, self._x) if gang in kind
        ]  # native first: its timeout, of which it has none, yields to the other's
        if not found:
            return None
        timeouts = [group.timeout for group in found if group.timeout is not None]
        return PodGroup(max(group.size for group in found), timeouts[0] if timeouts else None)

    def on_native(self, event: WatchEvent[PodGroup | None]) -> None:
        self._take(self._native, event)

    def on_x(self, event: WatchEvent[PodGroup | None]) -> None:
        self._take(self._x, event)

    def _take(self, kind: dict[GangKey, PodGroup], event: WatchEvent[PodGroup | None]) -> None:
        gang = GangKey(*event.key)
        before = kind.get(gang)
        if event.kind is EventKind.DELETED or event.object is None:
            kind.pop(gang, None)
        else:
            kind[gang] = event.object
        if kind.get(gang) != before:
            self._on_change(gang)
