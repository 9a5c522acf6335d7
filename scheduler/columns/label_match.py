"""
Label selectors over all nodes at once.

A requirement is evaluated once for each value that its label has on any node, then looked up for
all rows. `LabelIndex` caches the matching rows until a node's labels change.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.node_table import ABSENT, Bools, NodeTable
from scheduler.model.label_selector import LabelRequirement, NodeTerms, Requirements

_CACHE_SIZE: Final = 20_000  # each volume of a local disk has terms of its own


class LabelIndex:
    """The rows that selectors match."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._statics = -1
        self._cache: dict[NodeTerms, NDArray[np.intp]] = {}

    def any_of(self, terms: NodeTerms) -> Bools:
        """The rows that at least one of the terms selects."""
        matching = np.zeros_like(self._table.alive)
        for term in terms:
            if term:
                matching |= self.all_of(term)
        return matching

    def all_of(self, requirements: Requirements) -> Bools:
        matching = self._table.alive.copy()
        for requirement in requirements:
            matching &= matching_rows(self._table, requirement)
        return matching

    def rows_of(self, terms: NodeTerms) -> NDArray[np.intp]:
        """The numbers of the rows that the terms select: few for a disk of one node."""
        if self._statics != self._table.statics or len(self._cache) > _CACHE_SIZE:
            self._statics = self._table.statics
            self._cache.clear()
        rows = self._cache.get(terms)
        if rows is None:
            rows = self._cache[terms] = np.flatnonzero(self.any_of(terms))
        return rows


def matching_rows(table: NodeTable, requirement: LabelRequirement) -> Bools:
    """The rows whose labels meet one requirement; the result may include unused rows."""
    if requirement.operator == "In" and len(requirement.values) == 1:
        return table.labelled(requirement.key, requirement.values[0])
    codes, values = table.codes(requirement.key), table.values(requirement.key)
    match requirement.operator:
        case "Exists":
            return np.not_equal(codes, ABSENT)
        case "DoesNotExist":
            return np.equal(codes, ABSENT)
        case "In" | "NotIn":
            hits = [values[value] for value in requirement.values if value in values]
        case "Gt" | "Lt":
            hits = [code for value, code in values.items() if requirement.compares(value)]
        case _:
            hits = []
    by_code = np.zeros(len(values) + 1, dtype=np.bool_)
    by_code[hits] = True
    matching: Bools = by_code[codes]
    return ~matching if requirement.operator == "NotIn" else matching
