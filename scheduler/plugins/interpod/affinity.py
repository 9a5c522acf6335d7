"""
Pod affinity and anti-affinity: who must, may not, and would rather be in one domain.

    affinity         for every term the node's domain holds a pod that matches all terms together;
                     the first of a group that matches its own terms needs nobody
    anti-affinity    no term's domain holds a pod that the term selects
    of others        no pod with a term that selects this one is in the term's domain

A node without the topology key is in no domain: it satisfies no affinity, and breaks no
anti-affinity. Terminating pods count until they are gone.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints, NodeTable
from scheduler.model.pod import Pod
from scheduler.model.pod_affinity import PodAffinityTerm
from scheduler.plugins.interpod.existing_terms import KEEPS_OUT, ExistingTerms
from scheduler.plugins.interpod.pod_counts import (
    Column,
    ExistingTerm,
    PodCounts,
    PodKind,
    SelectorCount,
)

NOT_NEAR: Final = "node(s) didn't match pod affinity rules"
TOO_NEAR: Final = "node(s) didn't match pod anti-affinity rules"
KEPT_OUT: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_BEST: Final = 100


class InterPodAffinity:
    """Required terms refuse, preferred ones score; so do those of the pods on rows."""

    def __init__(self, table: NodeTable, counts: PodCounts, owners: ExistingTerms) -> None:
        self._table = table
        self._counts = counts
        self._owners = owners

    def refuse(self, pod: Pod, kind: PodKind, rows: Bools) -> Iterator[tuple[str, Bools]]:
        wish = pod.spec.inter_pod
        left = rows
        if wish.affinity:
            alone = left & ~self._near(wish.affinity, kind, left)
            left = left & ~alone
            yield NOT_NEAR, alone
        if wish.anti:
            close = np.zeros_like(left)
            for term in wish.anti:
                here = np.flatnonzero(self._column(term))
                close |= _sharing(self._table.codes(term.key), here)
            close &= left
            left = left & ~close
            yield TOO_NEAR, close
        barred = self._barred(kind)
        if barred is not None:
            yield KEPT_OUT, left & barred

    def keeps_out(self, kind: PodKind) -> bool:
        """Whether somebody on some row has a word against such pods."""
        return any(owned.weight == KEEPS_OUT and owned.rows for owned in self._owners.about(kind))

    def score(self, pod: Pod, kind: PodKind, rows: Bools) -> Ints | None:
        """0 to 100 over the rows; None when nobody has a preference that bears on the pod."""
        total: Ints | None = None
        for term, weight in pod.spec.inter_pod.preferred:
            column = self._column(term)
            here = np.flatnonzero(column)
            total = self._weigh(total, term, here, column[here].astype(np.int64) * weight)
        for owned in self._owners.about(kind):
            if owned.weight != KEEPS_OUT and owned.rows:
                here, many = _owners_of(owned)
                total = self._weigh(total, owned.term, here, many * owned.weight)
        if total is None:
            return None
        return _normal(total, rows)

    def prepare(self, pod: Pod) -> None:
        """Have the counts that the pod's own wish asks for."""
        wish = pod.spec.inter_pod
        if wish.affinity:
            self._count(wish.affinity)
        for term in (*wish.anti, *(term for term, _ in wish.preferred)):
            self._count((term,))

    def _weigh(
        self, total: Ints | None, term: PodAffinityTerm, here: Ints, weights: Ints
    ) -> Ints | None:
        if len(here) == 0:
            return total
        codes = self._table.codes(term.key)
        by_domain = np.bincount(codes[here], weights=weights, minlength=int(codes.max()) + 1)
        by_domain[ABSENT] = 0
        found: Ints = by_domain[codes].astype(np.int64)
        return found if total is None else total + found

    def _near(self, terms: tuple[PodAffinityTerm, ...], kind: PodKind, rows: Bools) -> Bools:
        count = self._count(terms)
        here = np.flatnonzero(count.fit(len(rows)))
        near, keyed = rows, rows
        somebody = False
        for term in terms:
            codes = self._table.codes(term.key)
            keyed = keyed & (codes != ABSENT)
            near = near & _sharing(codes, here)
            somebody = somebody or bool((codes[here] != ABSENT).any())
        first = not somebody and self._counts.selects(count, kind)
        return keyed if first else near

    def _barred(self, kind: PodKind) -> Bools | None:
        barred: Bools | None = None
        for owned in self._owners.about(kind):
            if owned.weight == KEEPS_OUT and owned.rows:
                here, _ = _owners_of(owned)
                found = _sharing(self._table.codes(owned.term.key), here)
                barred = found if barred is None else barred | found
        return barred

    def _count(self, terms: tuple[PodAffinityTerm, ...]) -> SelectorCount:
        group = tuple((term.scope, term.selector) for term in terms)
        return self._counts.count(group, staying=False)

    def _column(self, term: PodAffinityTerm) -> Column:
        return self._count((term,)).fit(len(self._table.alive))


def _sharing(codes: Codes, here: Ints) -> Bools:
    """The rows in one domain with one of these."""
    held = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
    held[codes[here]] = True
    held[ABSENT] = False
    found: Bools = held[codes]
    return found


def _owners_of(owned: ExistingTerm) -> tuple[Ints, Ints]:
    size = len(owned.rows)
    return (
        np.fromiter(owned.rows.keys(), dtype=np.int64, count=size),
        np.fromiter(owned.rows.values(), dtype=np.int64, count=size),
    )


def _normal(total: Ints, rows: Bools) -> Ints:
    marks = np.zeros(len(total), dtype=np.int64)
    mine = total[rows]
    if len(mine) == 0:
        return marks
    least, most = int(mine.min()), int(mine.max())
    if most > least:
        marks[rows] = (_BEST * ((mine - least) / (most - least))).astype(np.int64)
    return marks
