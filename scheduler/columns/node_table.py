"""
The nodes' plain facts as columns: one row a node, one column a resource or a label key.

    allocatable, free   int64, one array for each resource
    default_requests    int64, what scores count for containers without CPU or memory requests
    labels              int32 codes, one array for each label key that a pod has selected by
    taints              int32 code of (taints, unschedulable); a handful of different ones exist
    soft_taints         int32 code of the PreferNoSchedule taints
    features            int32 code of the features that the kubelet declared
    rank                the node's place among all names, so that orders can end in the name

Rows of removed nodes are used again. A column appears when first needed, and is kept up to date by
`put` and `drop`, never rebuilt for a pod. `statics` counts the changes of labels, taints and the
set of nodes: whatever was derived from them holds while it stands still. Images change more often
than the others, and have a count of their own in `images`. Amounts change all the time: `mark` and
`since` tell which rows did, so that what was derived from them is renewed there alone.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.images import ImageIndex
from scheduler.model.node import Node
from scheduler.model.taints import Taint

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]

_REMEMBERED: Final = 4096  # changes of amounts, after which the older half is forgotten
ABSENT: Final = 0  # the code of "this node does not have the label"
T = TypeVar("T", bound=np.generic)
K = TypeVar("K", bound=Hashable)
TaintSet = tuple[tuple[Taint, ...], bool]
DefaultRequests = tuple[int, int]  # CPU in thousandths, memory in bytes


class NodeTable:
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
        self.taints: Codes = np.zeros(self._size, dtype=np.int32)
        self.taint_sets: list[TaintSet] = [((), False)]  # code -> what it stands for
        self._taint_codes: dict[TaintSet, int] = {((), False): 0}
        self.soft_taints: Codes = np.zeros(self._size, dtype=np.int32)
        self.soft_taint_sets: list[tuple[Taint, ...]] = [()]
        self._soft_taint_codes: dict[tuple[Taint, ...], int] = {(): 0}
        self.features: Codes = np.zeros(self._size, dtype=np.int32)
        self.feature_sets: list[tuple[str, ...]] = [()]
        self._feature_codes: dict[tuple[str, ...], int] = {(): 0}
        self.images = ImageIndex()
        self.default_requests: tuple[Ints, Ints] = (
            np.zeros(self._size, dtype=np.int64),
            np.zeros(self._size, dtype=np.int64),
        )
        self._touched: list[int] = []  # rows whose amounts changed, in order
        self._forgotten = 0
        self._allocatable: dict[str, Ints] = {}
        self._free: dict[str, Ints] = {}
        self._labels: dict[str, Codes] = {}
        self._label_codes: dict[str, dict[str, int]] = {}  # label key -> value -> code
        self._rank: Codes = np.zeros(0, dtype=np.int32)
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
        self._touch(row)
        self.gpu_host[row] = node.gpus > 0
        self.has_topology[row] = _knows_zones(node)
        self.vram[row] = node.vram
        self.taints[row] = _code(
            (node.taints, node.unschedulable), self._taint_codes, self.taint_sets
        )
        self.soft_taints[row] = _code(
            node.soft_taints, self._soft_taint_codes, self.soft_taint_sets
        )
        self.features[row] = _code(node.features, self._feature_codes, self.feature_sets)
        self.images.move(row, old.images if old else (), node.images)
        labels = dict(node.labels)
        for key, codes in self._labels.items():
            codes[row] = self._label_code(key, labels.get(key))
        return row

    def drop(self, name: str) -> None:
        row = self.rows.pop(name)
        self.images.move(row, self.nodes.pop(name).images, ())
        self.names[row] = ""
        self.alive[row] = False
        for column in (*self._allocatable.values(), *self._free.values(), *self.default_requests):
            column[row] = 0
        self._touch(row)
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
        self._touch(row)

    def use_defaults(self, row: int, default_requests: DefaultRequests, sign: int) -> None:
        """Count a pod that did not say what it takes; for scores alone, nothing is used up."""
        for column, count in zip(self.default_requests, default_requests, strict=True):
            column[row] += sign * count
        self._touch(row)

    def mark(self) -> int:
        """This moment, for `since`."""
        return self._forgotten + len(self._touched)

    def since(self, mark: int) -> set[int] | None:
        """The rows whose amounts changed after the mark; None: too long ago to say."""
        start = mark - self._forgotten
        return None if start < 0 else set(self._touched[start:])

    def free(self, resource: str) -> Ints:
        """What every row has left, to read only; below zero where others overcommitted."""
        self._ensure(resource)
        return self._free[resource]

    def free_at(self, row: int, resource: str) -> int:
        return int(self.free(resource)[row])

    def allocatable(self, resource: str) -> Ints:
        self._ensure(resource)
        return self._allocatable[resource]

    def resources(self) -> Iterable[str]:
        """Names of what some node has or had, or some pod asked for."""
        return self._allocatable.keys()

    def total(self, resource: str) -> int:
        """Over all nodes."""
        return int(self.allocatable(resource).sum())

    def codes(self, key: str) -> Codes:
        """For every row the code of the label's value, `ABSENT` where the node has none."""
        codes = self._labels.get(key)
        return self._label_column(key) if codes is None else codes

    def values(self, key: str) -> Mapping[str, int]:
        """The codes of all values of the label that some node has or had, from 1 on."""
        self.codes(key)
        return self._label_codes[key]

    def labelled(self, key: str, value: str) -> Bools:
        """The rows whose node carries the label."""
        return np.equal(self.codes(key), self.values(key).get(value, -1))

    @property
    def rank(self) -> Codes:
        if not self._ranked:
            rank = np.zeros(self._size, dtype=np.int32)
            for place, name in enumerate(sorted(self.rows)):
                rank[self.rows[name]] = place
            self._rank, self._ranked = rank, True
        return self._rank

    def used_at(self, row: int) -> tuple[tuple[str, int], ...]:
        """What is used of each resource, sorted, without zeros: for comparing states."""
        used = [
            (name, int(column[row]) - self.free_at(row, name))
            for name, column in self._allocatable.items()
        ]
        used += [
            (f"default_requests {i}", int(column[row]))
            for i, column in enumerate(self.default_requests)
        ]
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
        self.soft_taints, self.features = (
            _longer(self.soft_taints, extra),
            _longer(self.features, extra),
        )
        cpu, memory = self.default_requests
        self.default_requests = _longer(cpu, extra), _longer(memory, extra)
        for table in (self._allocatable, self._free):
            for name in table:
                table[name] = _longer(table[name], extra)
        for key in self._labels:
            self._labels[key] = _longer(self._labels[key], extra)

    def _touch(self, row: int) -> None:
        self._touched.append(row)
        if len(self._touched) > _REMEMBERED:
            self._forgotten += _REMEMBERED // 2
            del self._touched[: _REMEMBERED // 2]

    def _ensure(self, resource: str) -> None:
        if resource not in self._allocatable:
            self._allocatable[resource] = np.zeros(self._size, dtype=np.int64)
            self._free[resource] = np.zeros(self._size, dtype=np.int64)

    def _label_code(self, key: str, value: str | None) -> int:
        if value is None:
            return ABSENT
        codes = self._label_codes[key]
        return codes.setdefault(value, len(codes) + 1)

    def _label_column(self, key: str) -> Codes:
        self._label_codes[key] = {}
        column = np.zeros(self._size, dtype=np.int32)
        for name, node in self.nodes.items():
            column[self.rows[name]] = self._label_code(key, dict(node.labels).get(key))
        self._labels[key] = column
        return column


def _statics(node: Node) -> tuple[object, ...]:
    return (
        node.labels,
        node.taints,
        node.soft_taints,
        node.features,
        node.unschedulable,
        node.vram,
        _knows_zones(node),
        () if node.topology is None else tuple(gpu.model for gpu in node.topology.gpus),
    )


def _knows_zones(node: Node) -> bool:
    return node.topology is not None and bool(node.topology.zones)


def _code(found: K, codes: dict[K, int], found_by_code: list[K]) -> int:
    """The number that stands for this value from now on."""
    code = codes.setdefault(found, len(found_by_code))
    if code == len(found_by_code):
        found_by_code.append(found)
    return code


def _longer(array: NDArray[T], extra: int) -> NDArray[T]:
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)])
