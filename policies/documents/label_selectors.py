"""
Label selectors, answered as Kubernetes answers them, and the one pair to index each by.

A selector that asks for exact values of labels can be found by one of them; the rest must be asked
one after another. `NotIn` and `DoesNotExist` hold where the label is missing.
"""

from collections.abc import Mapping
from typing import Final

from policies import vocabulary
from policies.documents.rules import Selector, SelectorTerm

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"  # set on every namespace by the API server

Labels = Mapping[str, str]
Pair = tuple[str, str]

# Pairs that tell the most namespaces apart come first.
_TELLING: Final = (NAMESPACE_NAME, vocabulary.TENANT_LABEL)


def matches(selector: Selector, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _term(term, labels) for term in selector.match_expressions
    )


def _term(term: SelectorTerm, labels: Labels) -> bool:
    value = labels.get(term.key)
    if term.operator == "In":
        return value is not None and value in term.values
    if term.operator == "NotIn":
        return value is None or value not in term.values
    return (value is not None) == (term.operator == "Exists")


def pairs(selector: Selector) -> tuple[Pair, ...]:
    """
    Label pairs of which every matching namespace has at least one; empty where there are none.

    A policy is filed under each of them, and found through whichever the namespace carries.
    """
    groups: list[tuple[Pair, ...]] = [
        ((key, value),) for key, value in selector.match_labels.items()
    ]
    groups += [
        tuple((term.key, value) for value in term.values)
        for term in selector.match_expressions
        if term.operator == "In"
    ]
    return min(groups, key=_telling, default=())


def _telling(group: tuple[Pair, ...]) -> tuple[int, int, tuple[Pair, ...]]:
    key = group[0][0]
    return (_TELLING.index(key) if key in _TELLING else len(_TELLING), len(group), group)
