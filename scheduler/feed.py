"""One resource to watch for the plugins, with the store that keeps its objects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.informer import EventKind, WatchEvent
from cluster.resources import Resource
from policies.json_fields import Json


@dataclass(frozen=True, slots=True)
class Feed:
    """Reads the objects of one resource and applies their watch events to a store."""

    resource: Resource
    read: Callable[[Json], Any]
    put: Callable[[Any], bool]
    drop: Callable[[Any], bool]
    optional: bool = False
    """An API server may not serve the resource, or serve it later."""

    def apply(self, event: WatchEvent[Any]) -> bool:
        """True when the event changed something that a filter reads."""
        if event.kind is not EventKind.DELETED and event.object is not None:
            return self.put(event.object)
        deleted = event.old if event.old is not None else event.object
        return deleted is not None and self.drop(deleted)
