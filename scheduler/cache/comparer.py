"""
Whether the books still say what they were told: the picture counted again, from nothing.

Everything in the snapshot is kept up to date by small steps. From time to time the same is counted
anew from the pods that hold a node, node by node, and compared. A difference is a bug of this
program: it is counted and reported, and people are to be woken by it; the books are not mended
behind the back of whoever looks for the cause. A restart counts from nothing too.
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
    """Those of which the snapshot counts something else than their pods hold."""
    leaked: int = 0
    """Pods that hold a node here and that the API does not know."""

    def __len__(self) -> int:
        return len(self.nodes) + self.leaked


def compare(cache: Cache, uids: Iterable[str]) -> Mismatch:
    """`uids`: every pod that the API knows, as far as the watch has shown."""
    held = [found for uid in uids if (found := cache.held(uid)) is not None]
    fresh = _recount(cache, held)
    nodes = (name for name in fresh.table.rows if _of(fresh, name) != _of(cache.snapshot, name))
    return Mismatch(tuple(sorted(nodes)), len(cache) - len(held))


def _recount(cache: Cache, held: Iterable[CachedPod]) -> Snapshot:
    snapshot = Snapshot.of(cache.snapshot.table.nodes.values(), registry=cache.snapshot.registry)
    for one in held:
        if one.node in snapshot:
            snapshot.charge(one.pod, one.node, one.assignment)
    for name in snapshot.table.rows:
        for kept in cache.reserved.on(name):
            snapshot.charge(kept.pod, name, kept.assignment)
    return snapshot


def _of(snapshot: Snapshot, node: str) -> tuple[object, ...]:
    """The state of the plugins that count each pod when it is charged.

    The others fill their state as filters need it: it differs by the pods that were filtered.
    """
    row = snapshot.table.rows[node]
    return tuple(snapshot.plugins.get(plugin).state(row) for plugin in _COUNTED)
