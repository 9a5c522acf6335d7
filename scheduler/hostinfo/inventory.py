"""
Host facts from ResourceSlices and NodeResourceTopologies, merged into the nodes.

    watches ──▶ DeviceStore, put_topology ──▶ changed(nodes) ──complete(node)──▶ the node

Each fact of these sources takes precedence over the same fact of the Node object. A node without
such facts costs one dictionary lookup. Nothing is persisted: the watches replay it after a restart.
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
from scheduler.model.resources import capped
from scheduler.plugins.dra.device_types import PoolId, ResourceSlice
from scheduler.plugins.dra.store import DeviceStore

VramOf = Callable[[str], int]  # model -> bytes of VRAM, 0: unknown
NodeFacts = tuple[str, HostFacts]  # a node, and the facts of its NodeResourceTopology


class HostInventory:
    """Calls `changed` with the nodes whose facts changed."""

    def __init__(self, devices: DeviceStore, *, changed: Callable[[Iterable[str]], None]) -> None:
        self._vram_of: VramOf | None = None
        self._devices = devices
        self._changed = changed
        self._pool_nodes: dict[PoolId, frozenset[str]] = {}  # pool -> nodes with slices in it
        self._topologies: dict[str, HostFacts] = {}  # node -> its NodeResourceTopology
        self._facts: dict[str, list[HostFacts]] = {}  # node -> facts above its own object
        devices.on_slice.append(self._on_slice)

    def facts(self, node: str) -> list[HostFacts]:
        """The facts that take precedence over the Node object, best first."""
        return self._facts.get(node, [])

    def complete(self, node: Node) -> Node:
        """The node with all known facts about its host."""
        facts = self._facts.get(node.name)
        if facts is not None:
            own = [] if node.topology is None else [merge.facts_of(node.topology)]
            topology = merge.merge([*facts, *own], gpus=node.gpus)
            node = replace(node, topology=topology, vram=_vram(node, topology))
        return node if self._vram_of is None else fill(node, self._vram_of)

    def know_models(self, vram_of: VramOf) -> None:
        """From now on a GPU whose VRAM no source gives has the VRAM of its model."""
        self._vram_of = vram_of

    # --- watch events ---

    def put_topology(self, topology: NodeFacts) -> bool:
        node, facts = topology
        if self._topologies.get(node) == facts:
            return False
        self._topologies[node] = facts
        return self._refresh((node,))

    def drop_topology(self, topology: NodeFacts) -> bool:
        node, _ = topology
        return self._topologies.pop(node, None) is not None and self._refresh((node,))

    def _on_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        touched: set[str] = set()
        for key in {item.pool for item in (old, new) if item is not None}:
            pool = self._devices.pools.get(key)
            nodes = _nodes(pool.slices) if pool is not None else frozenset()
            touched |= nodes | self._pool_nodes.pop(key, frozenset())
            if nodes:
                self._pool_nodes[key] = nodes
        self._refresh(sorted(touched))

    def _refresh(self, nodes: Iterable[str]) -> bool:
        changed: list[str] = []
        for node in nodes:
            before = self._facts.pop(node, [])
            after = self._current(node)
            if after:
                self._facts[node] = after
            if before != after:
                changed.append(node)
        if changed:
            self._changed(changed)
        return bool(changed)

    def _current(self, node: str) -> list[HostFacts]:
        slices = (
            item
            for key in self._devices.pools_by_node.get(node, ())
            if self._devices.pools[key].usable
            for item in self._devices.pools[key].slices
            if item.nodes is not None and item.nodes.name == node
        )
        topology = [self._topologies[node]] if node in self._topologies else []
        return [*resource_slices.host_facts(slices), *topology]


def _nodes(slices: Iterable[ResourceSlice]) -> frozenset[str]:
    reaches = (item.nodes for item in slices)
    return frozenset(nodes.name for nodes in reaches if nodes is not None and nodes.name)


def feed(hosts: HostInventory) -> Feed:
    """The NodeResourceTopology watch; `plugins.dra.informers` watches ResourceSlices."""
    return Feed(
        resources.NODE_RESOURCE_TOPOLOGIES, read_topology, hosts.put_topology, hosts.drop_topology
    )


def read_topology(obj: Json) -> NodeFacts:
    return node_resource_topology.node_name(obj), node_resource_topology.read(obj)


# --- VRAM ---


def fill(node: Node, vram_of: VramOf) -> Node:
    """Fill in the VRAM of GPUs of which only the model is known."""
    topology = node.topology
    if topology is None or all(gpu.vram or not gpu.model for gpu in topology.gpus):
        return node
    topology = replace(topology, gpus=tuple(_filled(gpu, vram_of) for gpu in topology.gpus))
    return replace(node, topology=topology, vram=_vram(node, topology))


def _filled(gpu: Gpu, vram_of: VramOf) -> Gpu:
    return gpu if gpu.vram or not gpu.model else replace(gpu, vram=capped(vram_of(gpu.model)))


def _vram(node: Node, topology: Topology | None) -> int:
    """The VRAM of the largest GPU; the NUMA plugin checks each GPU that it assigns."""
    largest = max((gpu.vram for gpu in topology.gpus), default=0) if topology is not None else 0
    return largest or node.vram
