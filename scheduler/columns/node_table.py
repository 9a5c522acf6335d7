"""
The nodes as columns: one row per node, one column per resource or label key.

    allocatable, free   int64, one array for each resource
    default_requests    int64, what scores count for containers without CPU or memory requests
    labels              int32 codes, one array for each label key that a pod has selected by
    taints              int32 code of (taints, unschedulable); a handful of different ones exist
    soft_taints         int32 code of the PreferNoSchedule taints
    features            int32 code of the features that the kubelet declared
    rank                the node's position among all names, as the last key of an order

Rows of removed nodes are reused. A column is created on first use; `put` and `drop` keep it up to
date. A label key or a resource that no node has gets no column, and a column that no node needs any
more is dropped, so that neither pods nor years of node changes make the table larger. `statics`
counts the changes of labels, taints and the set of nodes: values derived from them are valid while
it stays the same; codes change with it. Images change more often and have a counter of their own in
`images`. Amounts change with every pod: `mark` and `since` give the rows that changed, so that
derived values are recomputed for these rows only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.codes import CodedColumn
from scheduler.columns.images import ImageIndex
from scheduler.columns.saturation import SaturatingSums
from scheduler.model.node import Node
from scheduler.model.resources import LARGEST
from scheduler.model.taints import Taint

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]

_CHANGES_KEPT: Final = 4096  # changes of amounts; beyond it the older half is dropped
ABSENT: Final = 0  # the code of "this node does not have the label"
_SPARE_COLUMNS: Final = 16  # of resources, beyond twice those in use
_NOTHING: Final[Counter[str]] = Counter()  # never changed
_DEFAULT_REQUESTS: Final = ("default request of cpu", "default request of memory")
T = TypeVar("T", bound=np.generic)
TaintSet = tuple[tuple[Taint, ...], bool]
DefaultRequests = tuple[int, int]  # CPU in thousandths, memory in bytes


class NodeTable:
    """Arrays over rows that grow on demand; a node keeps its row."""

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
        self._taints: CodedColumn[TaintSet] = CodedColumn(((), False), self._size)
        self._soft_taints: CodedColumn[tuple[Taint, ...]] = CodedColumn((), self._size)
        self._features: CodedColumn[tuple[str, ...]] = CodedColumn((), self._size)
        self.images = ImageIndex()
        self.default_requests: tuple[Ints, Ints] = (
            np.zeros(self._size, dtype=np.int64),
            np.zeros(self._size, dtype=np.int64),
        )
        self._changed_rows: list[int] = []  # rows whose amounts changed, in order
        self._changes_dropped = 0
        self._allocatable: dict[str, Ints] = {}
        self._free: dict[str, Ints] = {}
        self._sums = SaturatingSums()  # of `_free` and `default_requests`
        # Row -> resource -> what pods there use of it. No node has the resource, so that it needs
        # no column: a pod that another scheduler bound may name thousands.
        self._unknown: dict[int, Counter[str]] = {}
        self._columns_kept = _SPARE_COLUMNS  # of resources; beyond it unused ones are dropped
        self._no_amounts, self._no_codes = _nothing(self._size)
        self._labels: dict[str, CodedColumn[str | None]] = {}  # by key; None: ABSENT
        self._label_keys: Counter[str] = Counter()  # label key -> nodes that have it
        self._rank: Codes = np.zeros(0, dtype=np.int32)
        self._ranked = False

    def __len__(self) -> int:
        return len(self.rows)

    def put(self, node: Node) -> int:
        """Add or update the node; the used amounts stay."""
        old = self.nodes.get(node.name)
        row = self.rows.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        if old is None or _statics(old) != _statics(node):
            self.statics += 1
        self.nodes[node.name] = node
        amounts = dict(node.allocatable)
        self._drop_unused_columns()
        for name in amounts:
            self._ensure(name)
        for name, column in self._allocatable.items():
            count = amounts.get(name, 0)
            self._sums.add(self._free[name], name, row, count - column.item(row))
            column[row] = count
        self._touch(row)
        self.gpu_host[row] = node.gpus > 0
        self.has_topology[row] = _knows_zones(node)
        self.vram[row] = node.vram
        self._taints.set(row, (node.taints, node.unschedulable))
        self._soft_taints.set(row, node.soft_taints)
        self._features.set(row, node.features)
        self.images.move(row, old.images if old else (), node.images)
        self._put_labels(row, dict(old.labels) if old else {}, dict(node.labels))
        return row

    def drop(self, name: str) -> None:
        row, node = self.rows.pop(name), self.nodes.pop(name)
        self.images.move(row, node.images, ())
        self._taints.reset(row)
        self._soft_taints.reset(row)
        self._features.reset(row)
        self._put_labels(row, dict(node.labels), {})
        self.names[row] = ""
        self.alive[row] = False
        for column in (*self._allocatable.values(), *self._free.values(), *self.default_requests):
            column[row] = 0
        self._sums.drop(row)
        self._unknown.pop(row, None)
        self._touch(row)
        self._free_rows.append(row)
        self.statics += 1
        self._ranked = False

    def use(self, row: int, amounts: tuple[tuple[str, int], ...], sign: int) -> None:
        saturated = self._sums.beyond
        for name, count in amounts:
            free = self._free.get(name)
            if free is None:
                self._use_unknown(row, name, sign * count)
                continue
            left = free.item(row) - sign * count
            if saturated or not -LARGEST <= left <= LARGEST:
                self._sums.add(free, name, row, -sign * count)
            else:
                free[row] = left  # almost always, and the hottest line of planning
        self._touch(row)

    def use_defaults(self, row: int, default_requests: DefaultRequests, sign: int) -> None:
        """Count default requests for the scores; the free amounts do not change."""
        for name, column, count in zip(
            _DEFAULT_REQUESTS, self.default_requests, default_requests, strict=True
        ):
            self._sums.add(column, name, row, sign * count)
        self._touch(row)

    def mark(self) -> int:
        """The current position in the changes, for `since`."""
        return self._changes_dropped + len(self._changed_rows)

    def since(self, mark: int) -> set[int] | None:
        """The rows whose amounts changed after the mark; None: the mark is too old."""
        start = mark - self._changes_dropped
        return None if start < 0 else set(self._changed_rows[start:])

    def free(self, resource: str) -> Ints:
        """Free amounts of every row, read only; below zero where a node is overcommitted. Zero
        everywhere for a resource that no node has, used or not."""
        return self._free.get(resource, self._no_amounts)

    def free_at(self, row: int, resource: str) -> int:
        free = self._free.get(resource)
        if free is None:
            return -self._unknown.get(row, _NOTHING)[resource]
        return free.item(row)

    def allocatable(self, resource: str) -> Ints:
        """Of every row, read only."""
        return self._allocatable.get(resource, self._no_amounts)

    def resources(self) -> Iterable[str]:
        """Names of all resources that a node has; some that a node had."""
        return self._allocatable.keys()

    def total(self, resource: str) -> int:
        """Over all nodes; exact up to 2^53, and never beyond its range as a sum of int64."""
        return int(self.allocatable(resource).sum(dtype=np.float64))

    @property
    def taints(self) -> Codes:
        return self._taints.codes

    @property
    def taint_sets(self) -> Sequence[TaintSet]:
        """By code: the taints, and whether the node is cordoned."""
        return self._taints.values

    @property
    def soft_taints(self) -> Codes:
        return self._soft_taints.codes

    @property
    def soft_taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        return self._soft_taints.values

    @property
    def features(self) -> Codes:
        return self._features.codes

    @property
    def feature_sets(self) -> Sequence[tuple[str, ...]]:
        return self._features.values

    def codes(self, key: str) -> Codes:
        """The code of the label's value on every row, `ABSENT` where the node lacks the label."""
        if key not in self._label_keys:
            return self._no_codes
        return (self._labels.get(key) or self._label_column(key)).codes

    def values(self, key: str) -> Mapping[str, int]:
        """The codes of the values that the label has on any node, from 1 on; some that it had."""
        if key not in self._label_keys:
            return {}
        column = self._labels.get(key) or self._label_column(key)
        return cast("Mapping[str, int]", column.numbers)

    def labelled(self, key: str, value: str) -> Bools:
        """The rows whose node has the label with this value."""
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
            (name, column.item(row) - self._sums.exact(self._free[name], name, row))
            for name, column in self._allocatable.items()
        ]
        used += self._unknown.get(row, _NOTHING).items()
        used += [
            (name, self._sums.exact(column, name, row))
            for name, column in zip(_DEFAULT_REQUESTS, self.default_requests, strict=True)
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
        self.vram = _longer(self.vram, extra)
        cpu, memory = self.default_requests
        self.default_requests = _longer(cpu, extra), _longer(memory, extra)
        for table in (self._allocatable, self._free):
            for name in table:
                table[name] = _longer(table[name], extra)
        self._no_amounts, self._no_codes = _nothing(self._size)
        self._taints.grow(extra)
        self._soft_taints.grow(extra)
        self._features.grow(extra)
        for column in self._labels.values():
            column.grow(extra)

    def _touch(self, row: int) -> None:
        self._changed_rows.append(row)
        if len(self._changed_rows) > _CHANGES_KEPT:
            self._changes_dropped += _CHANGES_KEPT // 2
            del self._changed_rows[: _CHANGES_KEPT // 2]

    def _ensure(self, resource: str) -> None:
        if resource not in self._allocatable:
            self._allocatable[resource] = np.zeros(self._size, dtype=np.int64)
            self._free[resource] = free = np.zeros(self._size, dtype=np.int64)
            for row in [row for row, used in self._unknown.items() if resource in used]:
                self._sums.add(free, resource, row, -self._unknown[row][resource])
                self._use_unknown(row, resource, -self._unknown[row][resource])

    def _use_unknown(self, row: int, resource: str, change: int) -> None:
        used = self._unknown.setdefault(row, Counter())
        used[resource] += change
        if not used[resource]:
            del used[resource]
            if not used:
                del self._unknown[row]

    def _drop_unused_columns(self) -> None:
        """Of resources that no node has and no pod on a node uses. The cost is shared by the
        columns that were created since the last time."""
        if len(self._allocatable) <= self._columns_kept:
            return
        for name in list(self._allocatable):
            if not (self._allocatable[name].any() or self._free[name].any()):
                del self._allocatable[name], self._free[name]
        self._columns_kept = 2 * len(self._allocatable) + _SPARE_COLUMNS

    def _put_labels(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        if old == new:
            return
        self._label_keys.update(new.keys() - old.keys())
        for key in old.keys() - new.keys():
            self._label_keys[key] -= 1
            if not self._label_keys[key]:
                del self._label_keys[key]
                self._labels.pop(key, None)
        for key, column in self._labels.items():
            column.set(row, new.get(key))

    def _label_column(self, key: str) -> CodedColumn[str | None]:
        column = self._labels[key] = CodedColumn[str | None](None, self._size)
        for name, node in self.nodes.items():
            column.set(self.rows[name], dict(node.labels).get(key))
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


def _nothing(size: int) -> tuple[Ints, Codes]:
    """The columns of what no node has."""
    amounts, codes = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int32)
    amounts.flags.writeable = codes.flags.writeable = False
    return amounts, codes


def _longer(array: NDArray[T], extra: int) -> NDArray[T]:
    return np.concatenate([array, np.zeros(extra, dtype=array.dtype)])
