"""
Compares the cache with the pods on nodes, counted anew.

The snapshot is kept up to date by small steps. From time to time the scheduler charges all cached
pods to a fresh snapshot and compares the two node by node. A mismatch is a bug of this program. It
is reported, not repaired, so that the cause can be found; a restart repairs it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.cache.cache import Cache, CachedPod
from scheduler.cache.snapshot import Snapshot
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.node_resources import NodeResources
from scheduler.plugins.numa.plugin import NumaTopology

_COUNTED: Final = (NodeResources, NodePorts, NumaTopology)


@dataclass(frozen=True, slots=True)
class Mismatch:
    nodes: tuple[str, ...] = ()
    """Nodes whose usage in the snapshot differs from their pods."""
    leaked: int = 0
    """Cached pods that the API server does not have."""

    def __len__(self) -> int:
        return len(self.nodes) + self.leaked


def compare(cache: Cache, uids: Iterable[str]) -> Mismatch:
    """`uids`: every pod that the watch has shown."""
    cached = [pod for uid in uids if (pod := cache.get(uid)) is not None]
    fresh = _recount(cache, cached)
    nodes = (name for name in fresh.table.rows if _of(fresh, name) != _of(cache.snapshot, name))
    return Mismatch(tuple(sorted(nodes)), len(cache) - len(cached))


def _recount(cache: Cache, cached: Iterable[CachedPod]) -> Snapshot:
    snapshot = Snapshot.of(cache.snapshot.table.nodes.values(), registry=cache.snapshot.registry)
    for pod in cached:
        if pod.node in snapshot:
            snapshot.charge(pod.pod, pod.node, pod.assignment)
    for name in snapshot.table.rows:
        for placement in cache.reserved.on(name):
            snapshot.charge(placement.pod, name, placement.assignment)
    return snapshot


def _of(snapshot: Snapshot, node: str) -> tuple[object, ...]:
    """The state of the plugins that count each pod when it is charged.

    The others fill their state as filters need it: it differs by the pods that were filtered.
    """
    row = snapshot.table.rows[node]
    return tuple(snapshot.plugins.get(plugin).state(row) for plugin in _COUNTED)
