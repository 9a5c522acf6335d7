"""
Selectors over labels: of one object, and over all nodes at once.

A `Selector` is a conjunction of requirements; the empty one selects everything. Node selector terms
are alternatives, of which an empty one selects nothing, as Kubernetes has it. `LabelIndex` answers
for all nodes and keeps the answers while the nodes' labels stand still.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.node_table import ABSENT, Bools, NodeTable
from scheduler.model.fields import Json, mapping, rows, words

_MOST_KEPT: Final = 20_000  # answers; each volume of a local disk has one of its own


@dataclass(frozen=True, slots=True)
class RowRequirement:
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.key)
        match self.operator:
            case "In":
                return found is not None and found in self.values
            case "NotIn":
                return found is None or found not in self.values
            case "Exists":
                return found is not None
            case "DoesNotExist":
                return found is None
            case "Gt" | "Lt":
                return found is not None and self._compares(found)
            case _:
                return False

    def _compares(self, found: str) -> bool:
        have, want = _number(found), _number(self.values[0]) if self.values else None
        if have is None or want is None:
            return False
        return have > want if self.operator == "Gt" else have < want


Selector = tuple[RowRequirement, ...]
Terms = tuple[Selector, ...]
"""Alternatives; one without requirements selects nothing."""


def read_selector(found: object) -> Selector | None:
    """A LabelSelector; None where there is none."""
    if not isinstance(found, Mapping):
        return None
    equal = words(found.get("matchLabels"))
    rules = [RowRequirement(key, "In", (value,)) for key, value in sorted(equal.items())]
    return (*rules, *_expressions(found.get("matchExpressions")))


def read_terms(found: object) -> Terms | None:
    """A node selector's terms; None where there is no selector."""
    if not isinstance(found, Mapping):
        return None
    return tuple(_term(row) for row in rows(found.get("nodeSelectorTerms")))


def read_topologies(found: object) -> Terms:
    """The allowedTopologies of a class; empty: anywhere."""
    return tuple(
        tuple(
            RowRequirement(str(rule.get("key")), "In", _values(rule))
            for rule in rows(row.get("matchLabelExpressions"))
        )
        for row in rows(found)
    )


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(rule.holds(labels) for rule in selector)


def any_selects(terms: Terms, labels: Mapping[str, str]) -> bool:
    return any(term and selects(term, labels) for term in terms)


def _term(row: Json) -> Selector:
    # A volume's terms are asked without the node's name, so that a rule about it sees none.
    fields = _expressions(row.get("matchFields"), prefix="field:")
    return (*_expressions(row.get("matchExpressions")), *fields)


def _expressions(found: object, *, prefix: str = "") -> Selector:
    return tuple(
        RowRequirement(f"{prefix}{row.get('key')}", str(row.get("operator")), _values(row))
        for row in rows(found)
    )


def _values(row: Json) -> tuple[str, ...]:
    return tuple(str(value) for value in mapping(row).get("values") or ())


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


class LabelIndex:
    """Selectors answered for every node."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._statics = -1
        self._known: dict[Terms, NDArray[np.intp]] = {}

    def alternatives(self, terms: Terms) -> Bools:
        """The rows that at least one of the terms selects."""
        found = np.zeros_like(self._table.alive)
        for term in terms:
            if term:
                found |= self.all_of(term)
        return found

    def all_of(self, selector: Selector) -> Bools:
        found = self._table.alive.copy()
        for rule in selector:
            found &= self._rule(rule)
        return found

    def where(self, terms: Terms) -> NDArray[np.intp]:
        """The numbers of the rows that the terms select: short for a disk of one node."""
        if self._statics != self._table.statics or len(self._known) > _MOST_KEPT:
            self._statics = self._table.statics
            self._known.clear()
        found = self._known.get(terms)
        if found is None:
            found = self._known[terms] = np.flatnonzero(self.alternatives(terms))
        return found

    def _rule(self, rule: RowRequirement) -> Bools:
        table = self._table
        match rule.operator:
            case "In":
                return self._one_of(rule)
            case "NotIn":
                return ~self._one_of(rule)
            case "Exists":
                return np.not_equal(table.codes(rule.key), ABSENT)
            case "DoesNotExist":
                return np.equal(table.codes(rule.key), ABSENT)
            case _:
                found = np.zeros_like(table.alive)
                for name, row in table.rows.items():
                    found[row] = rule.holds(dict(table.nodes[name].labels))
                return found

    def _one_of(self, rule: RowRequirement) -> Bools:
        found = np.zeros_like(self._table.alive)
        for value in rule.values:
            found |= self._table.labelled(rule.key, value)
        return found
