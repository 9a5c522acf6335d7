"""
Host ports: who binds which port of which node.

A port on `0.0.0.0` collides with the same port of the same protocol on every address; on any other
address, `::` among them, with that address and with `0.0.0.0`.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, NodeTable
from scheduler.model.pod import ALL_ADDRESSES, HostPort, Pod

TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"

_Number = tuple[str, int]  # protocol and port number


class NodePorts:
    """
    The books of host ports: how many pods bind a port of a row.

    More than one do where somebody else put them: the port is free when the last of them is gone.
    (Kube-scheduler remembers such a port once, and takes it for free when the first is gone.)
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._bound: dict[_Number, dict[str, dict[int, int]]] = {}  # -> address -> row -> pods
        self._on: dict[int, dict[HostPort, int]] = {}  # row -> its ports, each with its pods

    def take(self, pod: Pod, row: int) -> None:
        """The pod is on this row from now on."""
        for port in pod.spec.ports:
            self._count(port, row, +1)

    def give(self, pod: Pod, row: int) -> None:
        """Undo `take`."""
        for port in pod.spec.ports:
            self._count(port, row, -1)

    def drop(self, row: int) -> None:
        """The node went; whoever is remembered there is taken again when it returns."""
        for port, count in list(self._on.get(row, {}).items()):
            self._count(port, row, -count)

    def refuse(self, pod: Pod, rows: Bools) -> Iterator[tuple[str, Bools]]:
        """(reason, the rows of `rows` that it refuses), in kube-scheduler's order."""
        taken: set[int] = set()
        for port in pod.spec.ports:
            bound = self._bound.get((port.protocol, port.number), {})
            for address, pods in bound.items():
                if ALL_ADDRESSES in (port.address, address) or port.address == address:
                    taken.update(pods)
        if taken:
            refused: Bools = np.zeros_like(rows)
            refused[list(taken)] = True
            yield TAKEN, refused & rows

    def state(self, row: int) -> tuple[object, ...]:
        """Everything that `take` changes on a row: for comparing two moments."""
        return tuple(sorted(self._on.get(row, {}).items()))

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
