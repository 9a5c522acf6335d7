"""
PodGroup objects: the size of a gang whose pods do not state it.

    scheduling.k8s.io PodGroup      spec.schedulingPolicy.gang.minCount; `basic` has no minimum
    scheduling.x-k8s.io PodGroup    spec.minMember, spec.scheduleTimeoutSeconds

A gang is (namespace, name), whichever kind its object has. If both kinds have an object of that
name, the larger size counts, so that no member is bound too early. `wiring` feeds the objects from
watches, and `queueing` reads them.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from cluster.informer import EventKind, WatchEvent
from scheduler.model.gang import GangKey, PodGroup

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]


class PodGroups:
    """The objects of both kinds; `on_change` is called for gangs whose size may have changed."""

    def __init__(self, on_change: Callable[[GangKey], None]) -> None:
        self._on_change = on_change
        self._native: dict[GangKey, PodGroup] = {}
        self._x: dict[GangKey, PodGroup] = {}

    def find(self, gang: GangKey) -> PodGroup | None:
        groups = [kind[gang] for kind in (self._native, self._x) if gang in kind]
        if not groups:
            return None
        # At most one timeout: the native kind has none.
        timeouts = [group.timeout for group in groups if group.timeout is not None]
        return PodGroup(max(group.size for group in groups), timeouts[0] if timeouts else None)

    def on_native(self, event: WatchEvent[PodGroup | None]) -> None:
        self._update(self._native, event)

    def on_x(self, event: WatchEvent[PodGroup | None]) -> None:
        self._update(self._x, event)

    def _update(self, kind: dict[GangKey, PodGroup], event: WatchEvent[PodGroup | None]) -> None:
        gang = GangKey(*event.key)
        before = kind.get(gang)
        if event.kind is EventKind.DELETED or event.object is None:
            kind.pop(gang, None)
        else:
            kind[gang] = event.object
        if kind.get(gang) != before:
            self._on_change(gang)
