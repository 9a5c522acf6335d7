"""
Terms of pods that are on rows, and which of them select a pod that comes.

An existing pod's required anti-affinity keeps others out of its domain, and its required affinity
and its preferences draw them in or push them away. Terms are found by the label they require, so a
pod that nobody has a term about pays for a look at its own labels.
"""

from collections.abc import Iterator
from typing import Final

from scheduler.model.pod_affinity import InterPodConstraints, PodAffinityTerm
from scheduler.plugins.interpod.pod_counts import ExistingTerm, PodKind
from scheduler.plugins.interpod.selector_index import NamespaceLabels, SelectorIndex

KEEPS_OUT: Final = 0
_REQUIRED_WEIGHT: Final = 1  # kube-scheduler's hardPodAffinityWeight
_IDLE: Final = 1024  # terms without owners that are kept before they are looked through


class ExistingTerms:
    """One record for each distinct (term, weight) that some pod has or had."""

    def __init__(self, namespaces: NamespaceLabels) -> None:
        self._namespaces = namespaces
        self._version = 0
        self._owned: dict[tuple[PodAffinityTerm, int], ExistingTerm] = {}
        self._index: SelectorIndex[ExistingTerm] = SelectorIndex()
        self._by_wish: dict[InterPodConstraints, tuple[ExistingTerm, ...]] = {}
        self._sweep_at = _IDLE
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._owned)

    def take(self, wish: InterPodConstraints, row: int) -> None:
        for owned in self._of(wish):
            owned.rows[row] = owned.rows.get(row, 0) + 1

    def give(self, wish: InterPodConstraints, row: int) -> None:
        for owned in self._of(wish):
            left = owned.rows[row] - 1
            if left:
                owned.rows[row] = left
            else:
                del owned.rows[row]

    def drop(self, row: int) -> None:
        for owned in self._owned.values():
            owned.rows.pop(row, None)

    def on(self, row: int) -> dict[tuple[PodAffinityTerm, int], int]:
        return {key: owned.rows[row] for key, owned in self._owned.items() if row in owned.rows}

    def about(self, kind: PodKind) -> tuple[ExistingTerm, ...]:
        """The terms that select such pods, with owners or without."""
        if kind.owned_at != self._version:
            kind.owned = tuple(
                owned for owned in self._index.candidates(kind.pairs) if self._selects(owned, kind)
            )
            kind.owned_at = self._version
        return kind.owned

    def renew(self) -> None:
        """Namespaces changed: who is selected is asked again."""
        self._version += 1

    def _selects(self, owned: ExistingTerm, kind: PodKind) -> bool:
        group = ((owned.term.scope, owned.term.selector),)
        return self._namespaces.selected(group, kind.namespace, kind.labels)

    def _of(self, wish: InterPodConstraints) -> tuple[ExistingTerm, ...]:
        found = self._by_wish.get(wish)
        if found is None:
            if len(self._owned) >= self._sweep_at or len(self._by_wish) >= self._sweep_at:
                self._sweep()
            found = tuple(self._record(term, weight) for term, weight in _terms(wish))
            self._by_wish[wish] = found
        return found

    def _record(self, term: PodAffinityTerm, weight: int) -> ExistingTerm:
        owned = self._owned.get((term, weight))
        if owned is None:
            self._numbers += 1
            owned = ExistingTerm(self._numbers, term, weight)
            self._owned[term, weight] = owned
            self._index.add(owned, ((term.scope, term.selector),))
            self._version += 1
        return owned

    def _sweep(self) -> None:
        """Records with owners stay the same objects; the others are made again when needed."""
        self._owned = {key: owned for key, owned in self._owned.items() if owned.rows}
        self._by_wish = {}
        self._index.clear()
        for owned in self._owned.values():
            self._index.add(owned, ((owned.term.scope, owned.term.selector),))
        self._sweep_at = 2 * len(self._owned) + _IDLE
        self._version += 1


def _terms(wish: InterPodConstraints) -> Iterator[tuple[PodAffinityTerm, int]]:
    for term in wish.anti:
        yield term, KEEPS_OUT
    for term in wish.affinity:
        yield term, _REQUIRED_WEIGHT
    yield from wish.preferred
