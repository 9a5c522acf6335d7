"""
The records that the books of peers are made of.

    Kind    pods that no selector tells apart
    Count   a selector in use: how many pods it selects on each row
    Owned   a term in use: how many pods on each row have it

Pods are many and kinds are fewer, but both come and go; a kind lives on for a while after its last
pod, because trials put pods on rows and take them back all the time.
"""

import numpy as np
from numpy.typing import NDArray

from scheduler.model.pod_affinity import Term
from scheduler.plugins.interpod.selector_index import Group, Labels

Column = NDArray[np.int32]


class Kind:
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
        self.counts: tuple[Count, ...] = ()  # those that select it
        self.counts_at = -1  # and the version of all counts for which that holds
        self.owned: tuple[Owned, ...] = ()  # the terms of others that select it
        self.owned_at = -1

    @property
    def labels(self) -> dict[str, str]:
        """Made anew each time: kinds are as many as pods where every pod has labels of its own."""
        return dict(self.pairs)


class Count:
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


class Owned:
    """
    A term that pods on rows have. `weight` is what a pod that the term selects gains in its
    domain by each owner; 0: it may not be there at all.
    """

    __slots__ = ("number", "rows", "term", "weight")

    def __init__(self, number: int, term: Term, weight: int) -> None:
        self.number = number
        self.term = term
        self.weight = weight
        self.rows: dict[int, int] = {}  # row -> how many owners
