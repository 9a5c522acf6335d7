"""
The devices that each node can reach, collected on first use and cached until they change.

Where the node's topology has a GPU under its name in the slices, it completes the position of that
device.
"""

from collections.abc import Iterable, Iterator

from scheduler.columns.node_table import NodeTable
from scheduler.model.node import Node
from scheduler.plugins.dra.allocator import NodeDevices
from scheduler.plugins.dra.device_order import DevicePosition, position_of
from scheduler.plugins.dra.device_types import Device
from scheduler.plugins.dra.node_selector import NO_NODES, NodeReach
from scheduler.plugins.dra.store import DevicePool, DeviceStore


class NodeDeviceCache:
    def __init__(self, table: NodeTable, store: DeviceStore) -> None:
        self._table = table
        self._store = store
        self._cache: dict[
            int, tuple[Node, NodeDevices]
        ] = {}  # row -> the node at that time, its devices

    def at(self, row: int) -> NodeDevices:
        node = self._table.nodes[self._table.names[row]]
        known = self._cache.get(row)
        if known is None or not self.is_current(row):
            known = self._cache[row] = (node, self._collect(node))
        return known[1]

    def is_current(self, row: int) -> bool:
        """Whether the row is cached and its node's labels and topology are unchanged."""
        known = self._cache.get(row)
        if known is None:
            return False
        old, node = known[0], self._table.nodes[self._table.names[row]]
        return old is node or (old.labels, old.topology) == (node.labels, node.topology)

    def forget(self, names: Iterable[str] | None) -> None:
        """The devices of these nodes changed; None: of any node."""
        if names is None:
            self._cache.clear()
            return
        for name in names:
            self._cache.pop(self._table.rows.get(name, -1), None)

    def drop(self, row: int) -> None:
        self._cache.pop(row, None)

    def _collect(self, node: Node) -> NodeDevices:
        devices: list[tuple[Device, NodeReach]] = []
        unusable_pools: list[str] = []
        for pool in self._store.visible(node.name):
            reached = list(_reached(pool, node))
            if not reached:
                continue
            if not pool.complete:
                unusable_pools.append(f"{pool} is currently being updated")
            elif pool.duplicate:
                unusable_pools.append(f"{pool} is currently invalid")
            else:
                devices += reached
        return NodeDevices(devices, list(_positions(node, devices)), unusable_pools=unusable_pools)


def _reached(pool: DevicePool, node: Node) -> Iterator[tuple[Device, NodeReach]]:
    for item in pool.slices:
        if item.nodes is not None:
            if item.nodes.contains(node):
                yield from ((device, item.nodes) for device in item.devices)
            continue
        for device in item.devices:
            if (device.nodes or NO_NODES).contains(node):
                yield device, device.nodes or NO_NODES


def _positions(node: Node, devices: list[tuple[Device, NodeReach]]) -> Iterator[DevicePosition]:
    gpus = {gpu.device: gpu for gpu in node.topology.gpus if gpu.device} if node.topology else {}
    for device, _ in devices:
        position = position_of(device)
        gpu = gpus.get(str(device.id))
        if gpu is not None:
            zone = gpu.zone if position.zone is None else position.zone
            position = DevicePosition(
                zone, position.switch or gpu.switch, position.island or gpu.island
            )
        yield position
