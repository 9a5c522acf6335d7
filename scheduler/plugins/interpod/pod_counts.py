"""
How many pods each selector in use selects on each row, kept up to date with every placement.

    charge, uncharge    add a pod's kind to a row and remove it again: exact opposites
    count               the count of a selector group, filled from the kinds on rows on first use

Invariant: a count is the sum of the rows of the kinds that it selects. So the order of opening a
count and placing a pod does not matter. Memory is bounded: when there are too many counts, those
that are unused for longest are dropped, and `count` fills them again on use. A count keeps its
number, so that signatures of pods stay the same.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler import bounded
from scheduler.columns.node_table import NodeTable
from scheduler.model.pod import Pod
from scheduler.model.pod_affinity import PodAffinityTerm
from scheduler.plugins.interpod.selector_index import (
    Group,
    Labels,
    NamespaceLabels,
    SelectorIndex,
    anchor,
)

_BYTES: Final = 32 * 2**20  # of all columns together
_FEWEST: Final = 64  # columns that are kept at any size
_MOST: Final = 16_384  # counts
_SPARSE: Final = 128  # rows with pods up to which a count has no column
_IDLE: Final = 4096  # kinds without pods that are kept before a sweep

Column = NDArray[np.int32]


class PodKind:
    """Pods of one namespace with equal labels; terminating pods are a kind of their own."""

    __slots__ = (
        "counts",
        "counts_at",
        "namespace",
        "pairs",
        "rows",
        "terminating",
        "terms",
        "terms_at",
    )

    def __init__(self, namespace: str, pairs: Labels, *, terminating: bool) -> None:
        self.namespace = namespace
        self.pairs = pairs
        self.terminating = terminating
        self.rows: dict[int, int] = {}  # row -> number of pods
        self.counts: tuple[SelectorCount, ...] = ()  # the counts that select it
        self.counts_at = -1  # the version of PodCounts that `counts` is valid for
        self.terms: tuple[ExistingTerm, ...] = ()  # existing terms that select it
        self.terms_at = -1

    @property
    def labels(self) -> dict[str, str]:
        """Not cached: where every pod has labels of its own there are as many kinds as pods."""
        return dict(self.pairs)


class SelectorCount:
    """The number of pods on each row that the group selects: a dict while few rows have any."""

    __slots__ = ("_column", "_rows", "group", "number", "with_terminating")

    def __init__(self, number: int, group: Group, *, with_terminating: bool) -> None:
        self.number = number
        self.group = group
        self.with_terminating = with_terminating
        self._rows: dict[int, int] = {}
        self._column: Column | None = None  # instead of `_rows`, once many rows have pods

    @property
    def is_dense(self) -> bool:
        return self._column is not None

    def add(self, row: int, pods: int) -> bool:
        """True: the count has become dense."""
        if self._column is not None:
            if row >= len(self._column):
                self._column = _longer(self._column, 2 * (row + 1))
            self._column[row] += pods
            return False
        left = self._rows.get(row, 0) + pods
        if left:
            self._rows[row] = left
        else:
            self._rows.pop(row, None)
        if len(self._rows) <= _SPARSE:
            return False
        self._column, self._rows = self.fit(max(self._rows) + 1), {}
        return True

    def add_all(self, rows: dict[int, int]) -> None:
        """Add the number of pods on each of these rows."""
        if len(rows) > _SPARSE:
            if self._column is None:
                self._column, self._rows = self.fit(max((*rows, *self._rows)) + 1), {}
            self._column = _longer(self._column, max(rows) + 1)
            self._column[list(rows)] += np.fromiter(rows.values(), np.int32, len(rows))
            return
        for row, pods in rows.items():
            self.add(row, pods)

    def clear(self, row: int) -> None:
        """The node is gone, and its pods no longer count."""
        self._rows.pop(row, None)
        if self._column is not None and row < len(self._column):
            self._column[row] = 0

    def fit(self, size: int) -> Column:
        """The number for each of so many rows; read-only."""
        if self._column is not None:
            self._column = _longer(self._column, size)
            return self._column[:size]
        column: Column = np.zeros(size, dtype=np.int32)
        if self._rows:
            column[list(self._rows)] = list(self._rows.values())
        return column


def _longer(column: Column, size: int) -> Column:
    missing = size - len(column)
    if missing <= 0:
        return column
    return np.concatenate([column, np.zeros(missing, dtype=np.int32)])


class PodCounts:
    """`version` changes with the set of counts, `epoch` when existing counts become invalid."""

    def __init__(self, table: NodeTable, namespaces: NamespaceLabels) -> None:
        self.version = 0
        self.epoch = 0
        self._table = table
        self._namespaces = namespaces
        self._kinds: dict[tuple[str, Labels, bool], PodKind] = {}
        self._in: dict[str, set[PodKind]] = {}  # namespace -> its kinds
        self._sweep_at = _IDLE
        self._labelled: dict[tuple[str, tuple[str, str]], set[PodKind]] = {}  # namespace, label
        self._counts: dict[tuple[Group, bool], SelectorCount] = {}  # as they were used
        self._dropped: dict[tuple[Group, bool], int] = {}  # -> the number of the count
        self._numbers = 0
        self._dense = 0  # counts that have a column
        self._index: SelectorIndex[SelectorCount] = SelectorIndex()

    def __len__(self) -> int:
        return len(self._counts)

    # --- pods ---

    def kind(self, pod: Pod) -> PodKind:
        """The pod's kind, with the counts that select it."""
        kind = self._kinds.get((pod.key.namespace, pod.labels, pod.terminating))
        if kind is None:
            kind = self._new_kind(pod)
        if kind.counts_at != self.version:
            kind.counts = tuple(
                count for count in self._index.candidates(kind.pairs) if self.selects(count, kind)
            )
            kind.counts_at = self.version
        return kind

    def charge(self, pod: Pod, row: int) -> None:
        kind = self.kind(pod)
        kind.rows[row] = kind.rows.get(row, 0) + 1
        for count in kind.counts:
            self._dense += count.add(row, +1)

    def uncharge(self, pod: Pod, row: int) -> None:
        kind = self.kind(pod)
        left = kind.rows[row] - 1
        if left:
            kind.rows[row] = left
        else:
            del kind.rows[row]
        for count in kind.counts:
            count.add(row, -1)

    def drop(self, row: int) -> None:
        for kind in self._kinds.values():
            kind.rows.pop(row, None)
        for count in self._counts.values():
            count.clear(row)

    def on(self, row: int) -> dict[tuple[str, Labels, bool], int]:
        """The number of pods on a row, by kind."""
        return {key: kind.rows[row] for key, kind in self._kinds.items() if row in kind.rows}

    # --- counts ---

    def count(self, group: Group, *, with_terminating: bool) -> SelectorCount:
        key = (group, with_terminating)
        few = len(self._counts) < _FEWEST
        count = self._counts.get(key) if few else bounded.used(self._counts, key)
        if count is None:
            return self._open(group, with_terminating=with_terminating)
        return count

    def selects(self, count: SelectorCount, kind: PodKind) -> bool:
        if kind.terminating and not count.with_terminating:
            return False
        return self._namespaces.selected(count.group, kind.namespace, kind.labels)

    def forget(self) -> None:
        """Drop all counts; `count` fills them again on use."""
        self._counts.clear()
        self._dense = 0
        self._index.clear()
        self.version += 1
        self.epoch += 1

    def _open(self, group: Group, *, with_terminating: bool) -> SelectorCount:
        columns = max(_FEWEST, _BYTES // (4 * len(self._table.alive)))
        if len(self._counts) >= _MOST:
            self._drop(list(self._counts.values()))
        elif self._dense >= columns:
            self._drop([count for count in self._counts.values() if count.is_dense])
        key = (group, with_terminating)
        number = self._dropped.get(key)
        if number is None:
            self._numbers += 1
            number = self._numbers
        count = SelectorCount(number, group, with_terminating=with_terminating)
        for namespace in self._namespaces_of(group):
            self._fill(count, namespace)
        self._counts[key] = count
        self._dense += count.is_dense
        self._index.add(count, group)
        self.version += 1
        return count

    def _drop(self, counts: list[SelectorCount]) -> None:
        """The quarter of these counts that is unused for longest."""
        for count in counts[: len(counts) // 4 + 1]:
            key = (count.group, count.with_terminating)
            del self._counts[key]
            bounded.remember(self._dropped, key, count.number, _MOST)
            self._dense -= count.is_dense
        self._index.clear()
        for count in self._counts.values():
            self._index.add(count, count.group)
        self.version += 1
        self.epoch += 1

    def _namespaces_of(self, group: Group) -> list[str]:
        """The namespaces with pods that are in all scopes of the group."""
        named = [scope.namespaces for scope, _ in group if scope.selector is None]
        names = [name for name in named[0] if name in self._in] if named else list(self._in)
        return [
            name
            for name in names
            if all(self._namespaces.within(scope, name) for scope, _ in group)
        ]

    def _fill(self, count: SelectorCount, namespace: str) -> None:
        required = anchor(count.group)
        kinds: Iterable[PodKind] = self._in[namespace]
        if required is not None:
            pairs = [(namespace, (required.key, value)) for value in set(required.values)]
            kinds = [kind for pair in pairs for kind in self._labelled.get(pair, ())]
        for kind in kinds:
            if kind.rows and self.selects(count, kind):
                count.add_all(kind.rows)

    # --- kinds ---

    def _new_kind(self, pod: Pod) -> PodKind:
        if len(self._kinds) >= self._sweep_at:
            self._sweep()
        kind = PodKind(pod.key.namespace, pod.labels, terminating=pod.terminating)
        self._kinds[pod.key.namespace, pod.labels, pod.terminating] = kind
        self._index_kind(kind)
        return kind

    def _index_kind(self, kind: PodKind) -> None:
        self._in.setdefault(kind.namespace, set()).add(kind)
        for pair in kind.pairs:
            self._labelled.setdefault((kind.namespace, pair), set()).add(kind)

    def _sweep(self) -> None:
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.rows}
        self._in, self._labelled = {}, {}
        for kind in self._kinds.values():
            self._index_kind(kind)
        self._sweep_at = 2 * len(self._kinds) + _IDLE


class ExistingTerm:
    """
    An affinity term of pods on rows. Each of these pods adds `weight` to the score of a selected
    pod in its domain; 0: anti-affinity excludes the selected pod.
    """

    __slots__ = ("number", "rows", "term", "weight")

    def __init__(self, number: int, term: PodAffinityTerm, weight: int) -> None:
        self.number = number
        self.term = term
        self.weight = weight
        self.rows: dict[int, int] = {}  # row -> number of pods with the term
