"""
Inter-pod affinity and anti-affinity: pods that must, must not, or should share a domain.

    affinity         for every term the node's domain holds a pod that matches all terms together;
                     the first pod of a group that matches its own terms fits without another pod
    anti-affinity    no term's domain holds a pod that the term selects
    existing pods    no pod with an anti-affinity term that selects this one is in the term's domain

A node without the topology key is in no domain: it satisfies no affinity, and breaks no
anti-affinity. Terminating pods count until they are deleted.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints, NodeTable
from scheduler.model.pod import Pod
from scheduler.model.pod_affinity import PodAffinityTerm
from scheduler.plugins.interpod.existing_terms import ANTI_AFFINITY, ExistingTerms
from scheduler.plugins.interpod.pod_counts import (
    Column,
    ExistingTerm,
    PodCounts,
    PodKind,
    SelectorCount,
)

NO_AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_BROKEN: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_BEST: Final = 100


class InterPodAffinity:
    """Required terms filter, preferred terms score; so do the terms of the pods on rows."""

    def __init__(self, table: NodeTable, counts: PodCounts, existing: ExistingTerms) -> None:
        self._table = table
        self._counts = counts
        self._existing = existing

    def filter(self, pod: Pod, kind: PodKind, rows: Bools) -> Iterator[tuple[str, Bools]]:
        constraints = pod.spec.inter_pod
        left = rows
        if constraints.affinity:
            rejected = left & ~self._satisfying(constraints.affinity, kind, left)
            left = left & ~rejected
            yield NO_AFFINITY, rejected
        if constraints.anti_affinity:
            rejected = np.zeros_like(left)
            for term in constraints.anti_affinity:
                occupied = np.flatnonzero(self._column(term))
                rejected |= _in_same_domain(self._table.codes(term.topology_key), occupied)
            rejected &= left
            left = left & ~rejected
            yield ANTI_AFFINITY_BROKEN, rejected
        excluded = self._excluded_by_existing(kind)
        if excluded is not None:
            yield EXISTING_ANTI_AFFINITY, left & excluded

    def excluded_by_existing(self, kind: PodKind) -> bool:
        """Whether a pod on any row has an anti-affinity term that selects such pods."""
        terms = self._existing.selecting(kind)
        return any(term.weight == ANTI_AFFINITY and term.rows for term in terms)

    def score(self, pod: Pod, kind: PodKind, rows: Bools) -> Ints | None:
        """0 to 100 over the rows; None: no preference applies to the pod."""
        total: Ints | None = None
        for term, weight in pod.spec.inter_pod.preferred:
            column = self._column(term)
            occupied = np.flatnonzero(column)
            counts = column[occupied].astype(np.int64)
            total = self._weigh(total, term, occupied, counts * weight)
        for existing in self._existing.selecting(kind):
            if existing.weight != ANTI_AFFINITY and existing.rows:
                occupied, counts = _rows_and_counts(existing)
                total = self._weigh(total, existing.term, occupied, counts * existing.weight)
        if total is None:
            return None
        return _normalized(total, rows)

    def prepare(self, pod: Pod) -> None:
        """Open the counts of the pod's own terms."""
        constraints = pod.spec.inter_pod
        if constraints.affinity:
            self._count(constraints.affinity)
        preferred = (term for term, _ in constraints.preferred)
        for term in (*constraints.anti_affinity, *preferred):
            self._count((term,))

    def _weigh(
        self, total: Ints | None, term: PodAffinityTerm, occupied: Ints, weights: Ints
    ) -> Ints | None:
        if len(occupied) == 0:
            return total
        codes = self._table.codes(term.topology_key)
        by_domain = np.bincount(codes[occupied], weights=weights, minlength=int(codes.max()) + 1)
        by_domain[ABSENT] = 0
        points: Ints = by_domain[codes].astype(np.int64)
        return points if total is None else total + points

    def _satisfying(self, terms: tuple[PodAffinityTerm, ...], kind: PodKind, rows: Bools) -> Bools:
        count = self._count(terms)
        occupied = np.flatnonzero(count.fit(len(rows)))
        matching, labelled = rows, rows
        any_match = False
        for term in terms:
            codes = self._table.codes(term.topology_key)
            labelled = labelled & (codes != ABSENT)
            matching = matching & _in_same_domain(codes, occupied)
            any_match = any_match or bool((codes[occupied] != ABSENT).any())
        is_first = not any_match and self._counts.selects(count, kind)
        return labelled if is_first else matching

    def _excluded_by_existing(self, kind: PodKind) -> Bools | None:
        excluded: Bools | None = None
        for existing in self._existing.selecting(kind):
            if existing.weight == ANTI_AFFINITY and existing.rows:
                occupied, _ = _rows_and_counts(existing)
                codes = self._table.codes(existing.term.topology_key)
                rows = _in_same_domain(codes, occupied)
                excluded = rows if excluded is None else excluded | rows
        return excluded

    def _count(self, terms: tuple[PodAffinityTerm, ...]) -> SelectorCount:
        group = tuple((term.scope, term.selector) for term in terms)
        return self._counts.count(group, with_terminating=True)

    def _column(self, term: PodAffinityTerm) -> Column:
        return self._count((term,)).fit(len(self._table.alive))


def _in_same_domain(codes: Codes, occupied: Ints) -> Bools:
    """The rows that share a domain with one of the occupied rows."""
    domains = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.bool_)
    domains[codes[occupied]] = True
    domains[ABSENT] = False
    rows: Bools = domains[codes]
    return rows


def _rows_and_counts(term: ExistingTerm) -> tuple[Ints, Ints]:
    size = len(term.rows)
    return (
        np.fromiter(term.rows.keys(), dtype=np.int64, count=size),
        np.fromiter(term.rows.values(), dtype=np.int64, count=size),
    )


def _normalized(total: Ints, rows: Bools) -> Ints:
    scores = np.zeros(len(total), dtype=np.int64)
    points = total[rows]
    if len(points) == 0:
        return scores
    least, most = int(points.min()), int(points.max())
    if most > least:
        scores[rows] = (_BEST * ((points - least) / (most - least))).astype(np.int64)
    return scores
