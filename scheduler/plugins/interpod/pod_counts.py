"""
How many pods each selector in use selects on each row, kept up to date with every placement.

    charge, uncharge    add a pod's kind to a row and remove it again: exact opposites
    count               the count of a selector group, filled from the kinds on rows on first use

Invariant: a count's column is the sum of the rows of the kinds that it selects. So the order of
opening a count and placing a pod does not matter. Memory is bounded: when there are too many
columns, `forget` drops all of them, and `count` fills them again on use.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
_FEWEST: Final = 64
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
    """`column[row]` is the number of pods on the row that the group selects."""

    __slots__ = ("column", "group", "number", "with_terminating")

    def __init__(self, number: int, group: Group, size: int, *, with_terminating: bool) -> None:
        self.number = number
        self.group = group
        self.with_terminating = with_terminating
        self.column: Column = np.zeros(size, dtype=np.int32)

    def add(self, row: int, pods: int) -> None:
        if row >= len(self.column):
            self.fit(2 * (row + 1))
        self.column[row] += pods

    def fit(self, size: int) -> Column:
        """The column, extended to at least this size."""
        missing = size - len(self.column)
        if missing > 0:
            self.column = np.concatenate([self.column, np.zeros(missing, dtype=np.int32)])
        return self.column


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
        self._counts: dict[tuple[Group, bool], SelectorCount] = {}
        self._index: SelectorIndex[SelectorCount] = SelectorIndex()
        self._numbers = 0

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
            count.add(row, +1)

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
            if row < len(count.column):
                count.column[row] = 0

    def on(self, row: int) -> dict[tuple[str, Labels, bool], int]:
        """The number of pods on a row, by kind."""
        return {key: kind.rows[row] for key, kind in self._kinds.items() if row in kind.rows}

    # --- counts ---

    def count(self, group: Group, *, with_terminating: bool) -> SelectorCount:
        count = self._counts.get((group, with_terminating))
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
        self._index.clear()
        self.version += 1
        self.epoch += 1

    def _open(self, group: Group, *, with_terminating: bool) -> SelectorCount:
        size = len(self._table.alive)
        if len(self._counts) >= max(_FEWEST, _BYTES // (4 * size)):
            self.forget()
        self._numbers += 1
        count = SelectorCount(self._numbers, group, size, with_terminating=with_terminating)
        for namespace, kinds in self._in.items():
            if all(self._namespaces.within(scope, namespace) for scope, _ in group):
                self._fill(count, kinds)
        self._counts[group, with_terminating] = count
        self._index.add(count, group)
        self.version += 1
        return count

    def _fill(self, count: SelectorCount, kinds: Collection[PodKind]) -> None:
        required = anchor(count.group)
        if required is not None:
            pairs = [(required.key, value) for value in required.values]
            kinds = [kind for pair in pairs for kind in kinds if pair in kind.pairs]
        for kind in kinds:
            if kind.rows and self.selects(count, kind):
                for row, pods in kind.rows.items():
                    count.add(row, pods)

    # --- kinds ---

    def _new_kind(self, pod: Pod) -> PodKind:
        if len(self._kinds) >= self._sweep_at:
            self._sweep()
        kind = PodKind(pod.key.namespace, pod.labels, terminating=pod.terminating)
        self._kinds[pod.key.namespace, pod.labels, pod.terminating] = kind
        self._in.setdefault(kind.namespace, set()).add(kind)
        return kind

    def _sweep(self) -> None:
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.rows}
        self._in = {}
        for kind in self._kinds.values():
            self._in.setdefault(kind.namespace, set()).add(kind)
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
