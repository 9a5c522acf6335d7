"""Node selector and node affinity over the nodes' labels and names, and declared features."""

from typing import Final

import numpy as np

from scheduler.columns.label_match import matching_rows
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.node_affinity import NodeConstraints, NodeSelectorTerm
from scheduler.model.pod import SchedulingSpec

UNDECLARED: Final = "node(s) didn't match Pod's required features"
CONFLICT: Final = "pod affinity terms conflict"


def matching(table: NodeTable, spec: SchedulingSpec) -> Bools:
    """The rows that the node selector and the required node affinity allow."""
    rows: Bools = np.ones_like(table.alive)
    for label, value in spec.selector:
        rows &= table.labelled(label, value)
    terms = spec.node_constraints.required
    if terms is not None:
        some: Bools = np.zeros_like(rows)
        for term in terms:
            some |= _holds(table, term)
        rows &= some
    return rows


def named(table: NodeTable, wish: NodeConstraints) -> Bools | None:
    """
    The only rows that are looked at, where every required term names nodes one by one.

    Kube-scheduler leaves the others out before any filter, whatever the filters would say.
    """
    names = wish.named
    return None if names is None else _rows(table, names)


def declaring(table: NodeTable, wish: NodeConstraints) -> Bools:
    """The rows whose kubelets declared all that the pod needs."""
    wanted = set(wish.features)
    able = np.array([wanted.issubset(found) for found in table.feature_sets], dtype=np.bool_)
    rows: Bools = able[table.features]
    return rows


def trouble(wish: NodeConstraints) -> str:
    """Why no node will do: terms that name nodes and have none of them in common."""
    return "" if wish.named is None or wish.named else CONFLICT


def preferred(table: NodeTable, wish: NodeConstraints) -> Ints | None:
    """The weights that every row earns; None when nothing is preferred."""
    if not wish.preferred:
        return None
    total: Ints = np.zeros(len(table.alive), dtype=np.int64)
    for weight, term in wish.preferred:
        total += weight * _holds(table, term)
    return total


def _holds(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    if not term.readable:
        return np.zeros_like(table.alive)
    rows: Bools = np.ones_like(table.alive)
    for row in term.labels:
        rows &= matching_rows(table, row)
    for row in term.names:
        found = _rows(table, row.values)
        rows &= found if row.operator == "In" else ~found
    return rows


def _rows(table: NodeTable, names: frozenset[str] | tuple[str, ...]) -> Bools:
    rows: Bools = np.zeros_like(table.alive)
    rows[[table.rows[name] for name in names if name in table.rows]] = True
    return rows
