"""
The nodes that reach a slice, a device or an allocation.

    name          one node
    everywhere    all nodes
    terms         the nodes that a node selector selects, by labels or by name
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

    def contains(self, node: Node) -> bool:
        if self.everywhere or (self.name and self.name == node.name):
            return True
        if not self.terms:
            return False
        labels = {**dict(node.labels), _BY_NAME: node.name}
        return any(term and selects(term, labels) for term in self.terms)

    def single(self) -> str:
        """The only node, where there is one by name; empty otherwise."""
        return self.name or _single(self.terms)

    def rows(self, table: NodeTable, labels: LabelIndex) -> Bools:
        """The rows of these nodes."""
        if self.everywhere:
            return table.alive.copy()
        rows = np.zeros_like(table.alive)
        if (name := self.single()) in table.rows:
            # Other requirements beside the name are checked on that node only.
            row = table.rows[name]
            rows[row] = self.contains(table.nodes[name])
            return rows
        if name:
            return rows
        for term in self.terms:
            rows |= _term_rows(term, table, labels)
        return rows


EVERYWHERE: Final = NodeReach(everywhere=True)
NO_NODES: Final = NodeReach()


def _single(terms: NodeTerms) -> str:
    if len(terms) == 1:
        for requirement in terms[0]:
            if (requirement.key, requirement.operator) == (_BY_NAME, "In") and len(
                requirement.values
            ) == 1:
                return requirement.values[0]
    return ""


def _term_rows(term: Requirements, table: NodeTable, labels: LabelIndex) -> Bools:
    if not term:
        return np.zeros_like(table.alive)
    rows = labels.all_of(tuple(requirement for requirement in term if requirement.key != _BY_NAME))
    for requirement in term:
        if requirement.key == _BY_NAME:
            rows &= _named(requirement, table)
    return rows


def _named(requirement: LabelRequirement, table: NodeTable) -> Bools:
    rows = np.zeros_like(table.alive)
    for name, row in table.rows.items():
        rows[row] = requirement.holds({_BY_NAME: name})
    return rows


def read_nodes(spec: Json) -> NodeReach | None:
    """nodeName, allNodes or nodeSelector of a slice or a device; None: none of them is set."""
    if name := spec.get("nodeName"):
        return NodeReach(name=str(name))
    if spec.get("allNodes") is True:
        return EVERYWHERE
    terms = read_node_terms(spec.get("nodeSelector"))
    return None if terms is None else NodeReach(terms=terms)


def common(reaches: tuple[NodeReach, ...]) -> NodeReach:
    """The nodes that reach all of them, for the nodeSelector of an allocation."""
    requirements: dict[LabelRequirement, None] = {}
    for reach in reaches:
        if reach.name:
            return reach
        # A slice's selector has one term: the API server accepts no other.
        for term in reach.terms[:1]:
            requirements.update(dict.fromkeys(term))
    return NodeReach(terms=(tuple(requirements),)) if requirements else EVERYWHERE


def to_json(nodes: NodeReach) -> Mapping[str, Any] | None:
    """The nodeSelector for the API; None: all nodes."""
    if nodes.everywhere:
        return None
    if nodes.name:
        term = {
            "matchFields": [
                _requirement_json(LabelRequirement("metadata.name", "In", (nodes.name,)))
            ]
        }
        return {"nodeSelectorTerms": [term]}
    return {"nodeSelectorTerms": [_term_json(term) for term in nodes.terms]}


def _term_json(term: Requirements) -> Mapping[str, Any]:
    fields = [requirement for requirement in term if requirement.key.startswith(FIELD_PREFIX)]
    labels = [requirement for requirement in term if not requirement.key.startswith(FIELD_PREFIX)]
    body: dict[str, Any] = {}
    if labels:
        body["matchExpressions"] = [_requirement_json(requirement) for requirement in labels]
    if fields:
        body["matchFields"] = [_requirement_json(requirement) for requirement in fields]
    return body


def _requirement_json(requirement: LabelRequirement) -> Mapping[str, Any]:
    key = requirement.key.removeprefix(FIELD_PREFIX)
    return {"key": key, "operator": requirement.operator, "values": list(requirement.values)}
