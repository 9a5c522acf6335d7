"""
What ResourceSlices and NodeResourceTopologies say of each node, and nodes made whole by it.

    watches ──▶ facts of devices, put_topology ──▶ changed(nodes) ──complete(node)──▶ the node

A node as its own object tells it stays below these sources, fact by fact. Nodes that neither speaks
of cost one look into a dictionary. Nothing here survives a restart: the watches tell it again.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from cluster import resources
from policies.hosts import merge
from policies.hosts.merge import HostFacts
from policies.hosts.topology import Gpu, Topology
from policies.json_fields import Json
from scheduler.feed import Feed
from scheduler.hostinfo import node_resource_topology, resource_slices
from scheduler.model.node import Node
from scheduler.plugins.dra.device_types import PoolId, ResourceSlice
from scheduler.plugins.dra.store import DeviceStore

VramOf = Callable[[str], int]  # model -> bytes of VRAM, 0: unknown
Found = tuple[str, HostFacts]  # a node, and what its NodeResourceTopology says


class HostInventory:
    """`changed` is called with the nodes of which something else is known now."""

    def __init__(self, devices: DeviceStore, *, changed: Callable[[Iterable[str]], None]) -> None:
        self.vram_of: VramOf | None = None
        """The VRAM of a model, for GPUs of which no source tells it."""
        self._devices, self._changed = devices, changed
        self._spoken: dict[PoolId, frozenset[str]] = {}  # pool -> nodes that it told something of
        self._topologies: dict[str, HostFacts] = {}  # node -> what its NodeResourceTopology says
        self._said: dict[str, list[HostFacts]] = {}  # node -> what stands above its own object
        devices.on_slice.append(self._on_slice)

    def said(self, node: str) -> list[HostFacts]:
        """The sources above the Node object, best first."""
        return self._said.get(node, [])

    def complete(self, node: Node) -> Node:
        """The node with all that is known of its inside."""
        said = self._said.get(node.name)
        if said is not None:
            own = [] if node.topology is None else [merge.said_by(node.topology)]
            topology = merge.merge([*said, *own], gpus=node.gpus)
            node = replace(node, topology=topology, vram=_vram(node, topology))
        return node if self.vram_of is None else fill(node, self.vram_of)

    # --- what the watches say ---

    def put_topology(self, found: Found) -> bool:
        node, said = found
        if self._topologies.get(node) == said:
            return False
        self._topologies[node] = said
        return self._again((node,))

    def drop_topology(self, found: Found) -> bool:
        return self._topologies.pop(found[0], None) is not None and self._again((found[0],))

    def _on_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        touched: set[str] = set()
        for key in {one.pool for one in (old, new) if one is not None}:
            pool = self._devices.pools.get(key)
            here = _nodes(pool.slices) if pool is not None else frozenset()
            touched |= here | self._spoken.pop(key, frozenset())
            if here:
                self._spoken[key] = here
        self._again(sorted(touched))

    def _again(self, nodes: Iterable[str]) -> bool:
        changed: list[str] = []
        for node in nodes:
            before = self._said.pop(node, [])
            after = self._now(node)
            if after:
                self._said[node] = after
            if before != after:
                changed.append(node)
        if changed:
            self._changed(changed)
        return bool(changed)

    def _now(self, node: str) -> list[HostFacts]:
        mine = (
            one
            for key in self._devices.at_node.get(node, ())
            if self._devices.pools[key].usable
            for one in self._devices.pools[key].slices
            if one.nodes is not None and one.nodes.name == node
        )
        more = [self._topologies[node]] if node in self._topologies else []
        return [*resource_slices.said(mine), *more]


def _nodes(found: Iterable[ResourceSlice]) -> frozenset[str]:
    return frozenset(one.nodes.name for one in found if one.nodes is not None and one.nodes.name)


def feed(hosts: HostInventory) -> Feed:
    """The NodeResourceTopology watch; `plugins.dra.informers` watches ResourceSlices."""
    return Feed(
        resources.NODE_RESOURCE_TOPOLOGIES, read_topology, hosts.put_topology, hosts.drop_topology
    )


def read_topology(obj: Json) -> Found:
    return node_resource_topology.name(obj), node_resource_topology.read(obj)


# --- VRAM ---


def fill(node: Node, vram_of: VramOf) -> Node:
    """VRAM by the model, for GPUs of which nothing but the model is known."""
    topology = node.topology
    if topology is None or all(gpu.vram or not gpu.model for gpu in topology.gpus):
        return node
    topology = replace(topology, gpus=tuple(_filled(gpu, vram_of) for gpu in topology.gpus))
    return replace(node, topology=topology, vram=_vram(node, topology))


def _filled(gpu: Gpu, vram_of: VramOf) -> Gpu:
    return gpu if gpu.vram or not gpu.model else replace(gpu, vram=vram_of(gpu.model))


def _vram(node: Node, topology: Topology | None) -> int:
    """The largest GPU's: which of them a pod gets is decided GPU by GPU."""
    known = max((gpu.vram for gpu in topology.gpus), default=0) if topology is not None else 0
    return known or node.vram
