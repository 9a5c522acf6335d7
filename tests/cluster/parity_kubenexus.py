"""
Our side of the parity test: the scheduler's own cache and filters over what the API server holds.

The one place that knows how the scheduler takes objects in and how it decides about a pod.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins.volumes import informers as volumes

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The feasible nodes of the pod, and the message where there is none."""

    nodes: frozenset[str]
    text: str


class KubeNexus:
    """The books of one cluster."""

    def __init__(self, objects: Iterable[Object]) -> None:
        self._cache = Cache()
        feeds = volumes.feeds(self._cache.snapshot.volumes.store)
        self._feeds = {feed.resource.kind: feed for feed in feeds}
        found = list(objects)
        # Watches keep no order among each other.
        random.Random(len(found)).shuffle(found)
        for item in found:
            self._put(item)

    def verdict(self, pod: Object) -> Verdict:
        probe, memo, snapshot = Pod.read(pod), Memo(), self._cache.snapshot
        rows = filters.feasible(snapshot, probe, memo)
        nodes = frozenset(str(snapshot.table.names[row]) for row in np.flatnonzero(rows))
        return Verdict(nodes, filters.explain(snapshot, probe, memo).text)

    def _put(self, item: Object) -> None:
        match item["kind"]:
            case "Node":
                self._cache.put_node(Node.read(item))
            case "Pod":
                self._cache.put_pod(Pod.read(item))
            case "Namespace":
                labels = tuple(sorted(item["metadata"].get("labels", {}).items()))
                self._cache.snapshot.interpod.put_namespace(item["metadata"]["name"], labels)
            case kind:
                feed = self._feeds[kind]
                feed.put(feed.read(item))
