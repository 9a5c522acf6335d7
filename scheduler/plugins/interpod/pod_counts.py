"""
How many pods each selector in use selects on each row, kept while pods come and go.

    take, give    add a pod's kind to a row, and take it away again: exact opposites
    count         the count of a group, filled from the kinds on rows when it is first asked for

What holds at every moment: a count's column is the sum of the rows of the kinds that it selects. So
it does not matter whether a count was known before a pod came, or after. Memory is bounded: when
the columns are too many they are all forgotten, and filled again as they are asked for.
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
_IDLE: Final = 4096  # kinds without pods that are kept before they are looked through

Column = NDArray[np.int32]


class PodKind:
    """Namespace, labels, and whether the pods stay: terminating ones do not count for spreading."""

    __slots__ = (
        "counts",
        "counts_at",
        "namespace",
        "owned",
        "owned_at",
        "pairs",
        "rows",
        "staying",
    )

    def __init__(self, namespace: str, pairs: Labels, *, staying: bool) -> None:
        self.namespace = namespace
        self.pairs = pairs
        self.staying = staying
        self.rows: dict[int, int] = {}  # row -> how many
        self.counts: tuple[SelectorCount, ...] = ()  # those that select it
        self.counts_at = -1  # and the version of all counts for which that holds
        self.owned: tuple[ExistingTerm, ...] = ()  # the terms of others that select it
        self.owned_at = -1

    @property
    def labels(self) -> dict[str, str]:
        """Made anew each time: kinds are as many as pods where every pod has labels of its own."""
        return dict(self.pairs)


class SelectorCount:
    """`column[row]` is how many pods on the row the group selects."""

    __slots__ = ("column", "group", "number", "staying")

    def __init__(self, number: int, group: Group, size: int, *, staying: bool) -> None:
        self.number = number
        self.group = group
        self.staying = staying
        self.column: Column = np.zeros(size, dtype=np.int32)

    def add(self, row: int, many: int) -> None:
        if row >= len(self.column):
            self.fit(2 * (row + 1))
        self.column[row] += many

    def fit(self, size: int) -> Column:
        """The column, at least so long."""
        short = size - len(self.column)
        if short > 0:
            self.column = np.concatenate([self.column, np.zeros(short, dtype=np.int32)])
        return self.column


class PodCounts:
    """`version` changes with the set of counts, `epoch` when counts handed out are void."""

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

    def take(self, pod: Pod, row: int) -> None:
        kind = self.kind(pod)
        kind.rows[row] = kind.rows.get(row, 0) + 1
        for count in kind.counts:
            count.add(row, +1)

    def give(self, pod: Pod, row: int) -> None:
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
        """Who is on a row, by kind."""
        return {key: kind.rows[row] for key, kind in self._kinds.items() if row in kind.rows}

    # --- counts ---

    def count(self, group: Group, *, staying: bool) -> SelectorCount:
        """`staying`: terminating pods are left out."""
        found = self._counts.get((group, staying))
        return self._open(group, staying=staying) if found is None else found

    def selects(self, count: SelectorCount, kind: PodKind) -> bool:
        if count.staying and not kind.staying:
            return False
        return self._namespaces.selected(count.group, kind.namespace, kind.labels)

    def forget(self) -> None:
        """Every count is filled anew when next asked for."""
        self._counts.clear()
        self._index.clear()
        self.version += 1
        self.epoch += 1

    def _open(self, group: Group, *, staying: bool) -> SelectorCount:
        size = len(self._table.alive)
        if len(self._counts) >= max(_FEWEST, _BYTES // (4 * size)):
            self.forget()
        self._numbers += 1
        count = SelectorCount(self._numbers, group, size, staying=staying)
        for namespace, kinds in self._in.items():
            if all(self._namespaces.within(scope, namespace) for scope, _ in group):
                self._fill(count, kinds)
        self._counts[group, staying] = count
        self._index.add(count, group)
        self.version += 1
        return count

    def _fill(self, count: SelectorCount, kinds: Collection[PodKind]) -> None:
        exact = anchor(count.group)
        if exact is not None:
            wanted = [(exact.key, value) for value in exact.values]
            kinds = [kind for pair in wanted for kind in kinds if pair in kind.pairs]
        for kind in kinds:
            if kind.rows and self.selects(count, kind):
                for row, many in kind.rows.items():
                    count.add(row, many)

    # --- kinds ---

    def _new_kind(self, pod: Pod) -> PodKind:
        if len(self._kinds) >= self._sweep_at:
            self._sweep()
        kind = PodKind(pod.key.namespace, pod.labels, staying=not pod.terminating)
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
    A term that pods on rows have. `weight` is what a pod that the term selects gains in its
    domain by each owner; 0: it may not be there at all.
    """

    __slots__ = ("number", "rows", "term", "weight")

    def __init__(self, number: int, term: PodAffinityTerm, weight: int) -> None:
        self.number = number
        self.term = term
        self.weight = weight
        self.rows: dict[int, int] = {}  # row -> how many owners
