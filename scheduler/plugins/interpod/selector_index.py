"""
Which selectors in use select a pod, without asking every one of them.

    Group        (scope, selector) pairs that must all select the pod
    Namespaces   what scopes are answered by; a namespace that was never told has no labels
    Index        entries found by a label that whoever they select must carry

Thousands of workloads each have a selector of their own (`app=x`), and a pod is selected by a few.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from scheduler.model.label_selector import LabelRequirement, Selector, selects
from scheduler.model.pod_affinity import NamespaceScope

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
Group = tuple[tuple[NamespaceScope, Selector], ...]


class NamespaceLabels:
    """The labels of namespaces."""

    def __init__(self) -> None:
        self._labels: dict[str, dict[str, str]] = {}

    def put(self, name: str, labels: Labels) -> bool:
        """True when something changed."""
        fresh = dict(labels)
        changed = self._labels.get(name, {}) != fresh
        self._labels[name] = fresh
        return changed

    def drop(self, name: str) -> bool:
        return bool(self._labels.pop(name, None))

    def within(self, scope: NamespaceScope, name: str) -> bool:
        if name in scope.namespaces:
            return True
        return scope.selector is not None and selects(scope.selector, self._labels.get(name, {}))

    def selected(self, group: Group, namespace: str, labels: Mapping[str, str]) -> bool:
        return all(
            self.within(scope, namespace) and selects(selector, labels) for scope, selector in group
        )


class SelectorIndex(Generic[T]):
    """Entries, each filed under one label that it requires, or under none."""

    def __init__(self) -> None:
        self._filed: dict[tuple[str, str], list[T]] = {}
        self._loose: list[T] = []

    def add(self, entry: T, group: Group) -> None:
        for place in self._places(group):
            place.append(entry)

    def clear(self) -> None:
        self._filed.clear()
        self._loose.clear()

    def candidates(self, labels: Labels) -> Iterator[T]:
        """Everything that may select a pod with these labels, each once: a label has one value."""
        for pair in labels:
            if found := self._filed.get(pair):
                yield from found
        yield from self._loose

    def _places(self, group: Group) -> list[list[T]]:
        if any(selector is None for _, selector in group):
            return []
        exact = anchor(group)
        if exact is None:
            return [self._loose]
        return [self._filed.setdefault((exact.key, value), []) for value in exact.values]


def anchor(group: Group) -> LabelRequirement | None:
    """A label and few values of which whoever is selected must have one."""
    exact = [
        requirement
        for _, selector in group
        for requirement in selector or ()
        if requirement.operator == "In"
    ]
    return min(exact, key=lambda one: (len(one.values), one), default=None)
