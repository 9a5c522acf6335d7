"""
Host ports: the number of pods that bind each port of each node.

A port on `0.0.0.0` collides with the same port of the same protocol on every address; on any other
address, `::` among them, with that address and with `0.0.0.0`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, NodeTable
from scheduler.model.assignment import Assignment
from scheduler.model.pod import ALL_ADDRESSES, HostPort, Pod, SchedulingSpec
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation

TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"

_Number = tuple[str, int]  # protocol and port number


class NodePorts(Plugin):
    """
    kube-scheduler's NodePorts.

    Another scheduler can place several pods on one port of a node. The port is free when the last
    of them is gone. (Kube-scheduler counts such a port once, and frees it with the first pod.)
    """

    events = frozenset({POD_EVENT})

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._bound: dict[_Number, dict[str, dict[int, int]]] = {}  # -> address -> row -> pods
        self._on: dict[int, dict[HostPort, int]] = {}  # row -> its ports, each with its pods

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        for port in pod.spec.ports:
            self._count(port, row, +1)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        for port in pod.spec.ports:
            self._count(port, row, -1)

    def drop(self, row: int) -> None:
        for port, count in list(self._on.get(row, {}).items()):
            self._count(port, row, -count)

    def state(self, row: int) -> tuple[object, ...]:
        return tuple(sorted(self._on.get(row, {}).items()))

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        taken: set[int] = set()
        for port in pod.spec.ports:
            bound = self._bound.get((port.protocol, port.number), {})
            for address, pods in bound.items():
                if ALL_ADDRESSES in (port.address, address) or port.address == address:
                    taken.update(pods)
        if taken:
            rejected: Bools = np.zeros_like(rows)
            rejected[list(taken)] = True
            yield TAKEN, rejected & rows

    def depends_on_pods(self, pod: Pod) -> bool:
        return bool(pod.spec.ports)

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.ports:
            yield "use no host ports", replace(spec, ports=())

    def _count(self, port: HostPort, row: int, change: int) -> None:
        number = (port.protocol, port.number)
        addresses = self._bound.setdefault(number, {})
        pods = addresses.setdefault(port.address, {})
        here = self._on.setdefault(row, {})
        count = pods.get(row, 0) + change
        if count:
            pods[row] = here[port] = count
            return
        del pods[row], here[port]
        if not here:
            del self._on[row]
        if not pods:
            del addresses[port.address]
        if not addresses:
            del self._bound[number]
