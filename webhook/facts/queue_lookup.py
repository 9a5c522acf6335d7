"""
Finds the Kueue queue of the workload under review.

    pod ──▶ Job ──▶ JobSet ──▶ TrainJob      the highest object that names a queue decides,
                                             else the object itself, or the pods it creates

Kueue charges the workload at the top, so the tier follows the top as well. The objects above are
read from the API server, and only where the namespace has queues. The result is cached for a few
seconds, because one controller creates many pods.
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
CACHE_SECONDS: Final = 5.0  # a workload changes its queue only while it is suspended
CACHE_SIZE: Final = 4_096  # more controllers than create pods within that time

Key = tuple[str, ...]


class KnownQueues(Protocol):
    """Queues in memory."""

    def may_hold(self, namespace: str) -> bool:
        """Whether workloads of the namespace may name a queue."""

    def known(self, namespace: str, name: str) -> Queue | None:
        """The queue, where all of it is in memory."""


class QueueLookup:
    """
    `controller` reads the controller of an object in a namespace, `read_queue` a queue by namespace
    and name; both may wait for the API server, and raise where it does not answer.
    """

    def __init__(
        self,
        known: KnownQueues,
        *,
        controller: Callable[[Json, str], Json | None],
        read_queue: Callable[[str, str], Queue],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = known
        self._controller = controller
        self._read_queue = read_queue
        self._now = now
        self._cache: dict[Key, tuple[float, str]] = {}  # controller -> expiry, queue

    def needs_lookup(self, review: Review) -> bool:
        """Whether the API server must be review for the queue."""
        if not decide.needs_queue(review):
            return False
        obj, namespace = review.object or {}, review.namespace
        key = self._key(obj, namespace)
        if key is not None and self._cached(key) is None:
            return True
        name = self._name(obj, namespace)
        return bool(name) and self._known.known(namespace, name) is None

    def queue(self, review: Review) -> Queue | None:
        """The queue; None: the workload names none, or the tier does not depend on it."""
        if not decide.needs_queue(review):
            return None
        namespace = review.namespace
        name = self._name(review.object or {}, namespace)
        if not name:
            return None
        return self._known.known(namespace, name) or self._read_queue(namespace, name)

    def _name(self, obj: Json, namespace: str) -> str:
        key = self._key(obj, namespace)
        if key is None:
            return kueue.name_in(obj)
        name = self._cached(key)
        if name is None:
            name = self._read_above(obj, namespace)
            self._put(key, name)
        return name or kueue.name_in(obj)

    def _read_above(self, obj: Json, namespace: str) -> str:
        name = ""
        controller = self._controller(obj, namespace)
        for _ in range(GENERATIONS):
            if controller is None:
                break
            name = kueue.name_of(controller) or name
            controller = self._controller(controller, namespace)
        return name

    def _key(self, obj: Json, namespace: str) -> Key | None:
        """The controller whose queue counts; None: the object has no such controller."""
        if not self._known.may_hold(namespace):
            return None
        reference = controller_of(obj)
        if reference is None:
            return None
        # The whole reference, so that a forged one does not hit the entry of a true one.
        return namespace, *kind_of(reference), str(reference.get("name")), str(reference.get("uid"))

    def _cached(self, key: Key) -> str | None:
        expiry, name = self._cache.get(key, (0.0, ""))
        return name if self._now() < expiry else None

    def _put(self, key: Key, name: str) -> None:
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (self._now() + CACHE_SECONDS, name)


def controller_of(obj: Json) -> Json | None:
    """The reference to the controller of the object, where its kind creates pods."""
    references = mapping(obj.get("metadata")).get("ownerReferences")
    for row in references if isinstance(references, list) else ():
        reference = mapping(row)
        group, _, kind = kind_of(reference)
        if reference.get("controller") is True and (group, kind) in workloads.KINDS:
            return reference
    return None


def kind_of(reference: Json) -> tuple[str, str, str]:
    """Group, version and kind that a reference names."""
    group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
    return group, version, str(reference.get("kind") or "")
