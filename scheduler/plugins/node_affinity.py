"""Node selector and node affinity over the nodes' labels and names, and declared features."""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.columns.label_match import matching_rows
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.node_affinity import ANY_NODE, NodeSelectorTerm
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.plugins.protocol import MAX_SCORE, Plugin, Rejection, Relaxation

NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
NOT_SELECTED: Final = "node(s) didn't match Pod's node affinity/selector"
UNDECLARED: Final = "node(s) didn't match Pod's required features"
CONFLICT: Final = "pod affinity terms conflict"
WEIGHT: Final = 2


class NodeNames(Plugin):
    """
    Nodes that required affinity names one by one (kube-scheduler's PreFilter of NodeAffinity).

    Kube-scheduler leaves all other nodes out before it runs any filter.
    """

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.node_constraints.required or None

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        names = spec.node_constraints.named
        if names is not None:
            yield NOT_NAMED, ~_rows(self._table, names)

    def unresolvable(self, pod: Pod) -> str:
        """Terms that name nodes, and have none of them in common."""
        if pod.spec.node_constraints.required is None:
            return ""
        names = pod.spec.node_constraints.named
        return "" if names is None or names else CONFLICT


class NodeAffinity(Plugin):
    """kube-scheduler's NodeAffinity."""

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        required = spec.node_constraints.required
        return (spec.selector, required) if spec.selector or required is not None else None

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        rejected = ~matching(self._table, spec)
        names = spec.node_constraints.named
        # `NodeNames` gives the reason of the other nodes.
        yield NOT_SELECTED, rejected if names is None else rejected & _rows(self._table, names)

    def static_score_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.node_constraints.preferred

    def static_score(self, spec: SchedulingSpec) -> Ints | None:
        """The sum of the weights of the preferred terms that each row matches."""
        if not spec.node_constraints.preferred:
            return None
        total: Ints = np.zeros(len(self._table.alive), dtype=np.int64)
        for weight, term in spec.node_constraints.preferred:
            total += weight * _holds(self._table, term)
        return total

    def normalize(self, points: Ints, rows: Bools) -> Ints | None:
        best = int(points.max(where=rows, initial=0))
        return WEIGHT * (MAX_SCORE * points // best) if best else None

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.selector or spec.node_constraints != ANY_NODE:
            relaxed = replace(spec, selector=(), node_constraints=ANY_NODE)
            yield "drop the node selector and affinity", relaxed


class DeclaredFeatures(Plugin):
    """kube-scheduler's NodeDeclaredFeatures."""

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.node_constraints.features or None

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        table, required = self._table, set(spec.node_constraints.features)
        able = np.array(
            [required.issubset(declared) for declared in table.feature_sets], dtype=np.bool_
        )
        yield UNDECLARED, ~able[table.features]


def matching(table: NodeTable, spec: SchedulingSpec) -> Bools:
    """The rows that the node selector and the required node affinity allow."""
    rows: Bools = np.ones_like(table.alive)
    for label, value in spec.selector:
        rows &= table.labelled(label, value)
    terms = spec.node_constraints.required
    if terms is not None:
        any_term: Bools = np.zeros_like(rows)
        for term in terms:
            any_term |= _holds(table, term)
        rows &= any_term
    return rows


def _holds(table: NodeTable, term: NodeSelectorTerm) -> Bools:
    if not term.readable:
        return np.zeros_like(table.alive)
    rows: Bools = np.ones_like(table.alive)
    for requirement in term.labels:
        rows &= matching_rows(table, requirement)
    for requirement in term.names:
        named = _rows(table, requirement.values)
        rows &= named if requirement.operator == "In" else ~named
    return rows


def _rows(table: NodeTable, names: frozenset[str] | tuple[str, ...]) -> Bools:
    rows: Bools = np.zeros_like(table.alive)
    rows[[table.rows[name] for name in names if name in table.rows]] = True
    return rows
