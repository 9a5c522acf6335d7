"""
Which nodes a slice, a device or an allocation belongs to.

    name          one node
    everywhere    all of them
    terms         those that a node selector selects; a term may name nodes by their names
    none of it    no node
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from policies.json_fields import Json
from scheduler.columns.label_match import LabelIndex
from scheduler.columns.node_table import Bools, NodeTable
from scheduler.model.label_selector import (
    FIELD_PREFIX,
    LabelRequirement,
    NodeTerms,
    Requirements,
    read_node_terms,
    selects,
)
from scheduler.model.node import Node

_BY_NAME: Final = f"{FIELD_PREFIX}metadata.name"


@dataclass(frozen=True, slots=True)
class NodeReach:
    name: str = ""
    everywhere: bool = False
    terms: NodeTerms = ()

    def has(self, node: Node) -> bool:
        if self.everywhere or (self.name and self.name == node.name):
            return True
        if not self.terms:
            return False
        labels = {**dict(node.labels), _BY_NAME: node.name}
        return any(term and selects(term, labels) for term in self.terms)

    def single(self) -> str:
        """The one node that can be meant, where that is plain."""
        return self.name or _single(self.terms)

    def rows(self, table: NodeTable, known: LabelIndex) -> Bools:
        """All rows that it has."""
        if self.everywhere:
            return table.alive.copy()
        found = np.zeros_like(table.alive)
        if (name := self.single()) in table.rows:
            # Other rules may stand beside the name; they are asked of that node alone.
            row = table.rows[name]
            found[row] = self.has(table.nodes[name])
            return found
        if name:
            return found
        for term in self.terms:
            found |= _term_rows(term, table, known)
        return found


EVERYWHERE: Final = NodeReach(everywhere=True)
NO_ASSIGNMENT: Final = NodeReach()


def _single(terms: NodeTerms) -> str:
    if len(terms) == 1:
        for rule in terms[0]:
            if (rule.key, rule.operator) == (_BY_NAME, "In") and len(rule.values) == 1:
                return rule.values[0]
    return ""


def _term_rows(term: Requirements, table: NodeTable, known: LabelIndex) -> Bools:
    if not term:
        return np.zeros_like(table.alive)
    found = known.all_of(tuple(rule for rule in term if rule.key != _BY_NAME))
    for rule in term:
        if rule.key == _BY_NAME:
            found &= _named(rule, table)
    return found


def _named(rule: LabelRequirement, table: NodeTable) -> Bools:
    found = np.zeros_like(table.alive)
    for name, row in table.rows.items():
        found[row] = rule.holds({_BY_NAME: name})
    return found


def read_nodes(spec: Json) -> NodeReach | None:
    """nodeName, allNodes or nodeSelector of a slice or a device; None where none is given."""
    if name := spec.get("nodeName"):
        return NodeReach(name=str(name))
    if spec.get("allNodes") is True:
        return EVERYWHERE
    terms = read_node_terms(spec.get("nodeSelector"))
    return None if terms is None else NodeReach(terms=terms)


def common(found: tuple[NodeReach, ...]) -> NodeReach:
    """The nodes that reach all of these; an allocation is told by them."""
    rules: dict[LabelRequirement, None] = {}
    for one in found:
        if one.name:
            return one
        # A slice's selector has one term: the API server accepts no other.
        for term in one.terms[:1]:
            rules.update(dict.fromkeys(term))
    return NodeReach(terms=(tuple(rules),)) if rules else EVERYWHERE


def written(nodes: NodeReach) -> Mapping[str, Any] | None:
    """As the API takes it; None: no node is excluded."""
    if nodes.everywhere:
        return None
    if nodes.name:
        term = {"matchFields": [_rule(LabelRequirement("metadata.name", "In", (nodes.name,)))]}
        return {"nodeSelectorTerms": [term]}
    return {"nodeSelectorTerms": [_written(term) for term in nodes.terms]}


def _written(term: Requirements) -> Mapping[str, Any]:
    fields = [rule for rule in term if rule.key.startswith(FIELD_PREFIX)]
    labels = [rule for rule in term if not rule.key.startswith(FIELD_PREFIX)]
    found: dict[str, Any] = {}
    if labels:
        found["matchExpressions"] = [_rule(rule) for rule in labels]
    if fields:
        found["matchFields"] = [_rule(rule) for rule in fields]
    return found


def _rule(rule: LabelRequirement) -> Mapping[str, Any]:
    key = rule.key.removeprefix(FIELD_PREFIX)
    return {"key": key, "operator": rule.operator, "values": list(rule.values)}
