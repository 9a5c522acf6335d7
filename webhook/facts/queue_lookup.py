"""
Which queue of Kueue the work of a review stands in.

    pod ──▶ Job ──▶ JobSet ──▶ TrainJob      the highest that names a queue says it,
                                             else the object itself, or what it makes

Kueue charges the workload at the top, whatever its parts say, and so does the tier follow. Those
above are read from the API server, and only where the namespace has queues; what they say is kept
for a few seconds, because one controller makes many pods.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from policies.engine import kueue
from policies.engine.kueue import Queue
from policies.json_fields import mapping
from policies.pods import workloads
from webhook.admission import decide
from webhook.review.codec import Review

Json = Mapping[str, Any]

GENERATIONS: Final = 3  # a pod's Job, its JobSet, its TrainJob
REMEMBERED_SECONDS: Final = 5.0  # a workload changes its queue only while it waits
REMEMBERED: Final = 4_096  # controllers, more than make pods within that time

Key = tuple[str, ...]


class KnownQueues(Protocol):
    """What is known of queues without asking anybody."""

    def may_hold(self, namespace: str) -> bool:
        """Whether work of the namespace may stand in a queue."""

    def known(self, namespace: str, name: str) -> Queue | None:
        """The queue, where it is all at hand."""


class QueueLookup:
    """
    `controller` reads the controller of an object in a namespace, `look` a queue by namespace and
    name; both may wait, and raise where nobody answers.
    """

    def __init__(
        self,
        known: KnownQueues,
        *,
        controller: Callable[[Json, str], Json | None],
        look: Callable[[str, str], Queue],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known, self._controller, self._look, self._now = known, controller, look, now
        self._above: dict[Key, tuple[float, str]] = {}  # controller -> until when, queue

    def waits(self, asked: Review) -> bool:
        """Whether somebody has to be asked."""
        if not decide.needs_queue(asked):
            return False
        obj, namespace = asked.object or {}, asked.namespace
        key = self._key(obj, namespace)
        if key is not None and self._remembered(key) is None:
            return True
        name = self._name(obj, namespace)
        return bool(name) and self._known.known(namespace, name) is None

    def queue(self, asked: Review) -> Queue | None:
        """The queue; None: in none, or it does not matter."""
        if not decide.needs_queue(asked):
            return None
        namespace = asked.namespace
        name = self._name(asked.object or {}, namespace)
        if not name:
            return None
        return self._known.known(namespace, name) or self._look(namespace, name)

    def _name(self, obj: Json, namespace: str) -> str:
        key = self._key(obj, namespace)
        if key is None:
            return kueue.name_in(obj)
        name = self._remembered(key)
        if name is None:
            name = self._read_above(obj, namespace)
            self._remember(key, name)
        return name or kueue.name_in(obj)

    def _read_above(self, obj: Json, namespace: str) -> str:
        name, found = "", self._controller(obj, namespace)
        for _ in range(GENERATIONS):
            if found is None:
                break
            name = kueue.name_of(found) or name
            found = self._controller(found, namespace)
        return name

    def _key(self, obj: Json, namespace: str) -> Key | None:
        """The controller whose queue counts, as far as there is one; None: nobody above counts."""
        if not self._known.may_hold(namespace):
            return None
        above = controller_of(obj)
        if above is None:
            return None
        # All that a reference says, so that a false one is not taken for a true one.
        return namespace, *kind_of(above), str(above.get("name")), str(above.get("uid"))

    def _remembered(self, key: Key) -> str | None:
        until, name = self._above.get(key, (0.0, ""))
        return name if self._now() < until else None

    def _remember(self, key: Key, name: str) -> None:
        if len(self._above) >= REMEMBERED:
            self._above.clear()
        self._above[key] = (self._now() + REMEMBERED_SECONDS, name)


def controller_of(obj: Json) -> Json | None:
    """The reference to the object's controller, where that is of a kind that makes pods."""
    found = mapping(obj.get("metadata")).get("ownerReferences")
    for row in found if isinstance(found, list) else ():
        reference = mapping(row)
        group, _, kind = kind_of(reference)
        if reference.get("controller") is True and (group, kind) in workloads.KINDS:
            return reference
    return None


def kind_of(reference: Json) -> tuple[str, str, str]:
    """Group, version and kind that a reference names."""
    group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
    return group, version, str(reference.get("kind") or "")
