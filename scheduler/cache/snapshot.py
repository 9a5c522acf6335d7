"""
What is free, node by node: the one picture that plans are made on.

    charge / release    what the API says is there, fitting or not
    place               a decision: must fit, else the books are wrong and the program stops
    trial               everything placed inside is taken back at its end, exactly

Amounts of whole nodes live in `table`, the insides of hosts with NUMA data in a `HostUsage` each.
Who the pods are is not known here: `cache` remembers, and feeds this picture from watches.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from scheduler.columns.node_table import NodeTable
from scheduler.errors import InvariantError
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables
from scheduler.model.resource_claims import NO_RESOURCE_CLAIMS
from scheduler.plugins.dra.plugin import DynamicResources
from scheduler.plugins.interpod.plugin import InterPod
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.numa.allocator import NumaMisfit, choose
from scheduler.plugins.numa.host_usage import HostUsage, PodUsage
from scheduler.plugins.numa.numa_table import NumaTable
from scheduler.plugins.placement_policy import PlacementPolicy
from scheduler.plugins.volumes.plugin import VolumePlugin


class Snapshot:
    """
    Rows of nodes and what is taken of them. `freed` counts the changes that may help a pod by
    what they leave free, `moved` every change: a pod may wait for another one to come.
    """

    def __init__(self) -> None:
        self.table = NodeTable()
        self.host_usage: dict[str, HostUsage] = {}  # node name -> its inside, where known
        self.numa_table = NumaTable(self.table, self.host_usage)
        self.nominees: dict[str, Pod] = {}  # uid -> a pod that another scheduler makes room for
        self.freed = 0
        self.moved = 0
        self.ports = NodePorts(self.table)
        self.interpod = InterPod(self.table)
        self.volumes = VolumePlugin(self.table)
        self.devices = DynamicResources(self.table)
        self.placement_policy = PlacementPolicy(self.table)
        self._books = (self.ports, self.volumes, self.interpod)
        self._trail: list[tuple[str, Pod, Assignment, int]] = []  # the sign undoes it
        self._trials = 0

    @classmethod
    def of(cls, nodes: Iterable[Node], pods: Iterable[tuple[Pod, str]] = ()) -> Self:
        """A picture of these nodes with these pods on them, pods being (pod, node name)."""
        snapshot = cls()
        for node in nodes:
            snapshot.put_node(node)
        for pod, name in pods:
            snapshot.charge(pod, name, pod.assignment or NO_ASSIGNMENT)
        return snapshot

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, node: str) -> bool:
        return node in self.table.rows

    @property
    def tables(self) -> PlacementTables:
        """The policies in force."""
        return self.placement_policy.tables

    # --- nodes ---

    def put_node(self, node: Node, held: Iterable[tuple[Pod, Assignment]] = ()) -> bool:
        """Add or change a node; `held` is what its pods hold. True when that may help a pod."""
        old = self.table.nodes.get(node.name)
        if old == node:
            return False
        self.table.put(node)
        if old is not None and replace(old, images=node.images) == node:
            return False  # pulled images make a node better, and let nobody in
        if node.topology is None:
            self.host_usage.pop(node.name, None)
        elif old is None or old.topology != node.topology:
            claims = tuple(_claim(pod, assignment) for pod, assignment in held)
            self.host_usage[node.name] = HostUsage.of(node.topology, claims)
            self.numa_table.managed |= node.topology.manager is not None
        self.freed += 1
        self.moved += 1
        return True

    def drop_node(self, name: str) -> None:
        for book in self._books:
            book.drop(self.table.rows[name])
        self.devices.drop(self.table.rows[name])
        self.table.drop(name)
        self.host_usage.pop(name, None)
        self.moved += 1

    # --- pods ---

    def charge(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, +1)

    def release(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, -1)
        self.freed += 1

    def place(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        self._move(pod, node, assignment, +1)
        row = self.table.rows[node]
        for name, _ in pod.spec.requests:
            if self.table.free_at(row, name) < 0:
                raise InvariantError(f"node {node} has less than nothing left of {name}")
        if self._trials:
            self._trail.append((node, pod, assignment, -1))

    def adopt(self, tables: PlacementTables) -> None:
        """Go by these tables from now on: what was derived from others is derived anew."""
        self.placement_policy.adopt(tables)
        self.table.statics += 1
        self.stirred()

    def stirred(self) -> None:
        """Facts that rules read beside nodes and pods have changed: storage, namespaces."""
        self.freed += 1
        self.moved += 1

    def suppose(self, pod: Pod, node: str) -> None:
        """As `charge`, inside a trial."""
        self._move(pod, node, NO_ASSIGNMENT, +1)
        self._trail.append((node, pod, NO_ASSIGNMENT, -1))

    def suppose_gone(self, pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> None:
        """As `release`, inside a trial."""
        self._move(pod, node, assignment, -1)
        self._trail.append((node, pod, assignment, +1))

    def nominate(self, pod: Pod) -> None:
        """Another scheduler means to give the pod its `nominated` node; "" when no longer."""
        known = self.nominees.pop(pod.uid, None)
        if pod.nominated:
            self.nominees[pod.uid] = pod
        elif known is not None:
            self.freed += 1

    def choose(self, pod: Pod, node: str) -> Assignment | NumaMisfit:
        """Where on this host the pod would sit."""
        layout = self.host_usage.get(node)
        if layout is None:
            return NO_ASSIGNMENT
        gang = pod.gang.key if pod.gang is not None else None
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return choose(layout, pod.spec.host_request, gang=gang, vram=pod.spec.vram)
        decide = partial(choose, layout, gang=gang, vram=pod.spec.vram)
        return self.devices.choose(pod, self.table.rows[node], layout.rooms, decide)

    def signature(self, pod: Pod) -> tuple[object, ...]:
        """Equal for pods of one shape that fit the same nodes."""
        mine = self.interpod.signature(pod)
        if pod.spec.resource_claims is NO_RESOURCE_CLAIMS:
            return mine
        return (*mine, *self.devices.signature(pod))

    @contextmanager
    def trial(self) -> Iterator[None]:
        mark = len(self._trail)
        self._trials += 1
        try:
            yield
        finally:
            self._trials -= 1
            while len(self._trail) > mark:
                node, pod, assignment, sign = self._trail.pop()
                self._move(pod, node, assignment, sign)

    def _move(self, pod: Pod, node: str, assignment: Assignment, sign: int) -> None:
        row = self.table.rows[node]
        self.table.use(row, pod.spec.requests, sign)
        if pod.spec.default_requests != (0, 0):
            self.table.use_defaults(row, pod.spec.default_requests, sign)
        for book in self._books:
            (book.take if sign > 0 else book.give)(pod, row)
        if pod.spec.resource_claims is not NO_RESOURCE_CLAIMS:
            if sign > 0:
                self.devices.take(pod, row, assignment)
            else:
                self.devices.give(pod, row)
        self.moved += 1
        layout = self.host_usage.get(node)
        if layout is not None:
            claim = _claim(pod, assignment)
            (layout.take if sign > 0 else layout.give)(claim)

    def state(self) -> dict[str, tuple[object, ...]]:
        """Everything that placing changes, by node: for comparing two moments."""
        return {
            name: (
                self.table.used_at(row),
                self.host_usage[name].state() if name in self.host_usage else (),
                *(book.state(row) for book in self._books),
                self.devices.state(row),
            )
            for name, row in self.table.rows.items()
        }


def _claim(pod: Pod, assignment: Assignment) -> PodUsage:
    ask = pod.spec.host_request
    if pod.gang is None:
        return PodUsage(ask.cpu, ask.memory, ask.gpus, assignment, ask.hugepages)
    return PodUsage(
        ask.cpu, ask.memory, ask.gpus, assignment, ask.hugepages, pod.gang.key, ask.apart
    )
