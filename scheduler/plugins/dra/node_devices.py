"""
The devices that each node can reach, gathered when first asked for and kept while they stand still.

Where a node's topology knows a GPU by the name that it has in the slices, it says where the device
sits if the device itself does not.
"""

from collections.abc import Iterable, Iterator

from scheduler.columns.node_table import NodeTable
from scheduler.model.node import Node
from scheduler.plugins.dra.allocator import NodeDevices
from scheduler.plugins.dra.device_order import DevicePosition, position_of
from scheduler.plugins.dra.device_types import Device
from scheduler.plugins.dra.node_selector import NO_ASSIGNMENT, NodeReach
from scheduler.plugins.dra.store import DevicePool, DeviceStore


class NodeDeviceCache:
    def __init__(self, table: NodeTable, store: DeviceStore) -> None:
        self._table, self._store = table, store
        self._known: dict[
            int, tuple[Node, NodeDevices]
        ] = {}  # row -> the node as it was, its shelf

    def at(self, row: int) -> NodeDevices:
        node = self._table.nodes[self._table.names[row]]
        known = self._known.get(row)
        if known is None or not self.stands(row):
            known = self._known[row] = (node, self._gather(node))
        return known[1]

    def stands(self, row: int) -> bool:
        """Whether the row's shelf is still what it was: labels and topology may decide about it."""
        known = self._known.get(row)
        if known is None:
            return False
        was, node = known[0], self._table.nodes[self._table.names[row]]
        return was is node or (was.labels, was.topology) == (node.labels, node.topology)

    def forget(self, names: Iterable[str] | None) -> None:
        """The devices of these nodes changed; None: of any."""
        if names is None:
            self._known.clear()
            return
        for name in names:
            self._known.pop(self._table.rows.get(name, -1), None)

    def drop(self, row: int) -> None:
        self._known.pop(row, None)

    def _gather(self, node: Node) -> NodeDevices:
        found: list[tuple[Device, NodeReach]] = []
        unusable_pools: list[str] = []
        for pool in self._store.visible(node.name):
            mine = list(_reached(pool, node))
            if not mine:
                continue
            if not pool.complete:
                unusable_pools.append(f"{pool} is currently being updated")
            elif pool.duplicate:
                unusable_pools.append(f"{pool} is currently invalid")
            else:
                found += mine
        return NodeDevices(found, list(_positions(node, found)), unusable_pools=unusable_pools)


def _reached(pool: DevicePool, node: Node) -> Iterator[tuple[Device, NodeReach]]:
    for one in pool.slices:
        if one.nodes is not None:
            if one.nodes.has(node):
                yield from ((device, one.nodes) for device in one.devices)
            continue
        for device in one.devices:
            if (device.nodes or NO_ASSIGNMENT).has(node):
                yield device, device.nodes or NO_ASSIGNMENT


def _positions(node: Node, found: list[tuple[Device, NodeReach]]) -> Iterator[DevicePosition]:
    gpus = {gpu.device: gpu for gpu in node.topology.gpus if gpu.device} if node.topology else {}
    for device, _ in found:
        position = position_of(device)
        gpu = gpus.get(str(device.id))
        if gpu is not None:
            zone = gpu.zone if position.zone is None else position.zone
            position = DevicePosition(
                zone, position.switch or gpu.switch, position.island or gpu.island
            )
        yield position
