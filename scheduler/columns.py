"""
The nodes' plain facts as columns: one row a node, one column a resource or a label key.

    allocatable, free   int64, one array for each resource
    labels              int32 codes, one array for each label key that some pod has asked about
    taints              int32 code of (taints, unschedulable); a handful of different ones exist
    rank                the node's place among all names, so that orders can end in the name

Rows of removed nodes are used again. A column appears when first needed, and is kept up to date by
`put` and `drop`, never rebuilt for a pod. `statics` counts the changes of labels, taints and the
set of nodes: whatever was derived from them holds while it stands still.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from .model import Node, Taint

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ABSENT: Final = 0  # the code of "this node does not have the label"
T = TypeVar("T", bound=np.generic)
TaintSet = tuple[tuple[Taint, ...], bool]


class Columns:
    """Growing arrays over rows; a row is an index that stays with its node."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.rows: dict[str, int] = {}
        self.names: list[str] = []  # row -> node name, "" when free
        self.statics = 0
        self._free_rows: list[int] = []
        self._size = 64
        self.alive: Bools = np.zeros(self._size, dtype=np.bool_)
        self.gpu_host: Bools = np.zeros(self._size, dtype=np.bool_)
        self.has_topology: Bools = np.zeros(self._size, dtype=np.bool_)
        self.vram: Ints = np.zeros(self._size, dtype=np.int64)
        self.taints: NDArray[np.int32] = np.zeros(self._size, dtype=np.int32)
        self.taint_sets: list[TaintSet] = [((), False)]  # code -> what it stands for
        self._taint_codes: dict[TaintSet, int] = {((), False): 0}
        self._allocatable: dict[str, Ints] = {}
        self._free: dict[str, Ints] = {}
        self._labels: dict[str, NDArray[np.int32]] = {}
        self._label_codes: dict[str, dict[str, int]] = {}  # label key -> value -> code
        self._rank: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._ranked = False

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, node: Node) -> int:
        """Add the node, or take over its new facts; what is used stays."""
        old = self.nodes.get(node.name)
        row = self.rows.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        if old is None or _statics(old) != _statics(node):
            self.statics += 1
        self.nodes[node.name] = node
        amounts = dict(node.allocatable)
        for name in amounts:
            self._ensure(name)
        for name, column in self._allocatable.items():
            count = amounts.get(name, 0)
            self._free[name][row] += count - column[row]
            column[row] = count
        self.gpu_host[row] = node.gpus > 0
        self.has_topology[row] = node.topology is not None
        self.vram[row] = node.vram
        self.taints[row] = self._taint_code((node.taints, node.unschedulable))
        labels = dict(node.labels)
        for key, codes in self._labels.items():
            codes[row] = self._label_code(key, labels.get(key))
        return row

    def drop(self, name: str) -> None:
        row = self.rows.pop(name)
        del self.nodes[name]
        self.names[row] = ""
        self.alive[row] = False
        for column in (*self._allocatable.values(), *self._free.values()):
            column[row] = 0
        self._free_rows.append(row)
        self.statics += 1
        self._ranked = False

    def use(self, row: int, amounts: tuple[tuple[str, int], ...], sign: int) -> None:
        for name, count in amounts:
            free = self._free.get(name)
            if free is None:
                self._ensure(name)
                free = self._free[name]
            free[row] -= sign * count

    def free(self, resource: str) -> Ints:
        """What every row has left, to read only; below zero where others overcommitted."""
        self._ensure(resource)
        return self._free[resource]

    def free_at(self, row: int, resource: str) -> int:
        return int(self.free(resource)[row])

    def allocatable(self, resource: str) -> Ints:
        self._ensure(resource)
        return self._allocatable[resource]

    def total(self, resource: str) -> int:
        """Over all nodes."""
        return int(self.allocatable(resource).sum())

    def codes(self, key: str) -> NDArray[np.int32]:
        """For every row the code of the label's value, `ABSENT` where the node has none."""
        codes = self._labels.get(key)
        return self._label_column(key) if codes is None else codes

    def labelled(self, key: str, value: str) -> Bools:
        """The rows whose node carries the label."""
        codes = self.codes(key)
        code = self._label_codes[key].get(value, -1)
        return np.equal(codes, code)

    @property
    def rank(self) -> NDArray[np.int32]:
        if not self._ranked:
            rank = np.zeros(self._size, dtype=np.int32)
            for place, name in enumerate(sorted(self.rows)):
                rank[self.rows[name]] = place
            self._rank, self._ranked = rank, True
        return self._rank

    def used_at(self, row: int) -> tuple[tuple[str, int], ...]:
        """What is used of each resource, sorted, without zeros: for comparing states."""
        used = (
            (name, int(column[row]) - self.free_at(row, name))
            for name, column in self._allocatable.items()
        )
        return tuple(sorted((name, count) for name, count in used if count))

    # --- rows and columns ---

    def _new_row(self, name: str) -> int:
        row = self._free_rows.pop() if self._free_rows else len(self.names)
        if row == len(self.names):
            self.names.append(name)
        else:
            self.names[row] = name
        if row >= self._size:
            self._grow()
        self.rows[name] = row
        self.alive[row] = True
        self._ranked = False
        return row

    def _grow(self) -> None:
        extra = self._size
        self._size += extra
        self.alive, self.gpu_host = _longer(self.alive, extra), _longer(self.gpu_host, extra)
        self.has_topology = _longer(self.has_topology, extra)
        self.vram, self.taints = _longer(self.vram, extra), _longer(self.taints, extra)
        for columns in (self._allocatable, self._free):
            for name in columns:
                columns[name] = _longer(columns[name], extra)
        for key in self._labels:
            self._labels[key] = _longer(self._labels[key], extra)

    def _ensure(self, resource: str) -> None:
        if resource not in self._allocatable:
            self._allocatable[resource] = np.zeros(self._size, dtype=np.int64)
            self._free[resource] = np.zeros(self._size, dtype=np.int64)

    def _taint_code(self, taints: TaintSet) -> int:
        code = self._taint_codes.setdefault(taints, len(self.taint_sets))
        if code == len(self.taint_sets):
            self.taint_sets.append(taints)
        return code

    def _label_code(self, key: str, value: str | None) -> int:
        if value is None:
            return ABSENT
        codes = self._label_codes[key]
        return codes.setdefault(value, len(codes) + 1)

    def _label_column(self, key: str) -> NDArray[np.int32]:
        self._label_codes[key] = {}
        column = np.zeros(self._size, dtype=np.int32)
        for name, node in self.nodes.items():
            column[self.rows[name]] = self._label_code(key, dict(node.labels).get(key))
        self._labels[key] = column
        return column


def _statics(node: Node) -> tuple[object, ...]:
    return node.labels, node.taints, node.unschedulable, node.vram, node.topology is None


def _longer(array: NDArray[T], extra: int) -> NDArray[T]:
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)])
