"""
Affinity terms of the pods on rows, and which of them select an incoming pod.

An existing pod's required anti-affinity excludes selected pods from its domain. Its required
affinity and its preferences raise or lower their scores there. The index finds terms by a label
that they require, so a pod that no term selects costs one lookup per label of its own.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.model.pod_affinity import InterPodConstraints, PodAffinityTerm
from scheduler.plugins.interpod.pod_counts import ExistingTerm, PodKind
from scheduler.plugins.interpod.selector_index import NamespaceLabels, SelectorIndex

ANTI_AFFINITY: Final = 0
_REQUIRED_WEIGHT: Final = 1  # kube-scheduler's hardPodAffinityWeight
_IDLE: Final = 1024  # terms without pods that are kept before a sweep


class ExistingTerms:
    """One record for each distinct (term, weight) that a pod has or had."""

    def __init__(self, namespaces: NamespaceLabels) -> None:
        self._namespaces = namespaces
        self._version = 0
        self._terms: dict[tuple[PodAffinityTerm, int], ExistingTerm] = {}
        self._index: SelectorIndex[ExistingTerm] = SelectorIndex()
        self._by_constraints: dict[InterPodConstraints, tuple[ExistingTerm, ...]] = {}
        self._sweep_at = _IDLE
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._terms)

    def charge(self, constraints: InterPodConstraints, row: int) -> None:
        for existing in self._of(constraints):
            existing.rows[row] = existing.rows.get(row, 0) + 1

    def uncharge(self, constraints: InterPodConstraints, row: int) -> None:
        for existing in self._of(constraints):
            left = existing.rows[row] - 1
            if left:
                existing.rows[row] = left
            else:
                del existing.rows[row]

    def drop(self, row: int) -> None:
        for existing in self._terms.values():
            existing.rows.pop(row, None)

    def on(self, row: int) -> dict[tuple[PodAffinityTerm, int], int]:
        return {
            key: existing.rows[row] for key, existing in self._terms.items() if row in existing.rows
        }

    def selecting(self, kind: PodKind) -> tuple[ExistingTerm, ...]:
        """The terms that select such pods; a term may have no pods on rows any more."""
        if kind.terms_at != self._version:
            kind.terms = tuple(
                existing
                for existing in self._index.candidates(kind.pairs)
                if self._selects(existing, kind)
            )
            kind.terms_at = self._version
        return kind.terms

    def renew(self) -> None:
        """Namespaces changed: match the terms again."""
        self._version += 1

    def _selects(self, existing: ExistingTerm, kind: PodKind) -> bool:
        group = ((existing.term.scope, existing.term.selector),)
        return self._namespaces.selected(group, kind.namespace, kind.labels)

    def _of(self, constraints: InterPodConstraints) -> tuple[ExistingTerm, ...]:
        terms = self._by_constraints.get(constraints)
        if terms is None:
            if len(self._terms) >= self._sweep_at or len(self._by_constraints) >= self._sweep_at:
                self._sweep()
            terms = tuple(self._record(term, weight) for term, weight in _terms(constraints))
            self._by_constraints[constraints] = terms
        return terms

    def _record(self, term: PodAffinityTerm, weight: int) -> ExistingTerm:
        existing = self._terms.get((term, weight))
        if existing is None:
            self._numbers += 1
            existing = ExistingTerm(self._numbers, term, weight)
            self._terms[term, weight] = existing
            self._index.add(existing, ((term.scope, term.selector),))
            self._version += 1
        return existing

    def _sweep(self) -> None:
        """Keep the records that have pods on rows; the others are created again on use."""
        self._terms = {key: existing for key, existing in self._terms.items() if existing.rows}
        self._by_constraints = {}
        self._index.clear()
        for existing in self._terms.values():
            self._index.add(existing, ((existing.term.scope, existing.term.selector),))
        self._sweep_at = 2 * len(self._terms) + _IDLE
        self._version += 1


def _terms(constraints: InterPodConstraints) -> Iterator[tuple[PodAffinityTerm, int]]:
    for term in constraints.anti_affinity:
        yield term, ANTI_AFFINITY
    for term in constraints.affinity:
        yield term, _REQUIRED_WEIGHT
    yield from constraints.preferred
