"""
Recounts the snapshot from the pods and compares the two.

Watch events update the snapshot in small steps. From time to time the scheduler counts the same
from nothing, node by node, and compares. A mismatch is a bug of this program. It is reported, not
repaired, so that the cause can be found; a restart counts from nothing too.
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
    """Nodes whose usage in the snapshot differs from the usage of their pods."""
    leaked: int = 0
    """Pods that hold a node here and that the API does not know."""

    def __len__(self) -> int:
        return len(self.nodes) + self.leaked


def compare(cache: Cache, uids: Iterable[str]) -> Mismatch:
    """`uids`: every pod that the API knows, as far as the watch has shown."""
    held = [cached for uid in uids if (cached := cache.held(uid)) is not None]
    fresh = _recount(cache, held)
    nodes = (name for name in fresh.table.rows if _of(fresh, name) != _of(cache.snapshot, name))
    return Mismatch(tuple(sorted(nodes)), len(cache) - len(held))


def _recount(cache: Cache, held: Iterable[CachedPod]) -> Snapshot:
    snapshot = Snapshot.of(cache.snapshot.table.nodes.values(), registry=cache.snapshot.registry)
    for cached in held:
        if cached.node in snapshot:
            snapshot.charge(cached.pod, cached.node, cached.assignment)
    for name in snapshot.table.rows:
        for reserved in cache.reserved.on(name):
            snapshot.charge(reserved.pod, name, reserved.assignment)
    return snapshot


def _of(snapshot: Snapshot, node: str) -> tuple[object, ...]:
    """The state of the plugins that count each pod when it is charged.

    The others fill their state as filters need it: it differs by the pods that were filtered.
    """
    row = snapshot.table.rows[node]
    return tuple(snapshot.plugins.get(plugin).state(row) for plugin in _COUNTED)
