"""
Which selectors in use select a pod, without trying each of them.

    Group            (scope, selector) pairs that must all select the pod
    NamespaceLabels  the labels of namespaces, for scopes; an unknown namespace has no labels
    SelectorIndex    entries by a label that every selected pod has

Thousands of workloads each have a selector of their own (`app=x`), and only a few select one pod.
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
        new = dict(labels)
        changed = self._labels.get(name, {}) != new
        self._labels[name] = new
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
    """Entries, each under a label that it requires, or unanchored."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[T]] = {}
        self._by_key: dict[str, list[T]] = {}  # entries that require a label of any value
        self._unanchored: list[T] = []

    def add(self, entry: T, group: Group) -> None:
        for bucket in self._buckets(group):
            bucket.append(entry)

    def clear(self) -> None:
        self._by_label.clear()
        self._by_key.clear()
        self._unanchored.clear()

    def candidates(self, labels: Labels) -> Iterator[T]:
        """Every entry that may select a pod with these labels, each once: a label has one value."""
        for pair in labels:
            if entries := self._by_label.get(pair):
                yield from entries
            if entries := self._by_key.get(pair[0]):
                yield from entries
        yield from self._unanchored

    def _buckets(self, group: Group) -> list[list[T]]:
        if any(selector is None for _, selector in group):
            return []
        required = anchor(group)
        if required is None:
            key = _existing_key(group)
            return [self._unanchored if key is None else self._by_key.setdefault(key, [])]
        return [self._by_label.setdefault((required.key, value), []) for value in required.values]


def anchor(group: Group) -> LabelRequirement | None:
    """The requirement with the fewest values that every selected pod has; None: there is none."""
    listed = [
        requirement
        for _, selector in group
        for requirement in selector or ()
        if requirement.operator == "In"
    ]
    return min(listed, key=lambda requirement: (len(requirement.values), requirement), default=None)


def _existing_key(group: Group) -> str | None:
    """A label key that every selected pod has; None: there is none."""
    requirements = (requirement for _, selector in group for requirement in selector or ())
    return min((each.key for each in requirements if each.operator == "Exists"), default=None)
