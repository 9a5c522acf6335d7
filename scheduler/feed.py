"""One kind to watch: how its objects are read and where they are kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cluster.informer import EventKind, WatchEvent
from cluster.resources import Resource
from scheduler.model.fields import Json


@dataclass(frozen=True, slots=True)
class Feed:
    """One collection to watch: how an object is read, and what its events do."""

    resource: Resource
    read: Callable[[Json], Any]
    put: Callable[[Any], bool]
    drop: Callable[[Any], bool]

    def take(self, event: WatchEvent[Any]) -> bool:
        """Whether the event changed anything that a filter reads."""
        if event.kind is not EventKind.DELETED and event.object is not None:
            return self.put(event.object)
        gone = event.old if event.old is not None else event.object
        return gone is not None and self.drop(gone)
