"""
Topology domains of nodes by their labels, and the quality of each node's fabric.

    codes        for every row the number of its domain of a level: rows with equal numbers are in
                 one domain; 0: the node has no such label
    grades       for every row the grade of its fabric, higher is better; 0: unknown
    rejections   nodes without the level, or with a lesser fabric, that the pod requires

`plan.colocation` keeps a whole gang inside one domain: a filter of single nodes can only check that
the node has the label. Pure functions of columns.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from policies import vocabulary
from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints, NodeTable
from scheduler.model.fabric import FabricRequirements, grade
from scheduler.model.pod import SchedulingSpec
from scheduler.model.policy import PlacementTables, TopologyLevel

CLIQUE: Final = TopologyLevel("clique", (vocabulary.GPU_CLIQUE_LABEL,))
_SENSITIVE: Final = 30  # points between the best fabric and none


def codes(table: NodeTable, level: TopologyLevel) -> Codes:
    """The same value of any of the level's labels is the same domain; the first label counts."""
    first, *others = level.labels
    domains = table.codes(first)
    if not any(table.values(key) for key in others):
        return domains
    numbers = dict(table.values(first))
    domains = domains.copy()
    for key in others:
        by_label, values = table.codes(key), table.values(key)
        renumbered = np.zeros(len(values) + 1, dtype=np.int32)
        for value, code in values.items():
            renumbered[code] = numbers.setdefault(value, len(numbers) + 1)
        domains = np.where(domains == ABSENT, renumbered[by_label], domains)
    return domains


def known(table: NodeTable, level: TopologyLevel) -> bool:
    """Whether some node is, or was, labelled with it."""
    return any(table.values(key) for key in level.labels)


def grades(table: NodeTable) -> Ints:
    by_code = np.zeros(len(table.values(vocabulary.FABRIC_TYPE_LABEL)) + 1, dtype=np.int64)
    for value, code in table.values(vocabulary.FABRIC_TYPE_LABEL).items():
        by_code[code] = grade(value)
    return by_code[table.codes(vocabulary.FABRIC_TYPE_LABEL)]


def required(
    tables: PlacementTables, requirements: FabricRequirements
) -> tuple[TopologyLevel, ...]:
    """The levels that the pod's whole gang must share, without unknown ones: `unknown_level`."""
    clique = next((level for level in tables.levels if CLIQUE.labels[0] in level.labels), CLIQUE)
    levels = [clique] if requirements.clique else []
    if requirements.strict is not None:
        level = _named(tables, requirements.strict)
        if level is not None:
            levels.append(level)
    return tuple(dict.fromkeys(levels))


def preferred(tables: PlacementTables, requirements: FabricRequirements) -> TopologyLevel | None:
    """The level that the pod's gang shares if possible."""
    if requirements.preferred is None:
        return None
    return _named(tables, requirements.preferred)


def unknown_level(tables: PlacementTables, requirements: FabricRequirements) -> str:
    """The message about a required level that no policy names; empty: it is known."""
    if requirements.strict and _named(tables, requirements.strict) is None:
        names = ", ".join(level.name for level in reversed(tables.levels))
        return (
            f"{vocabulary.CO_LOCATE_ANNOTATION} names the topology level {requirements.strict},"
            f" which no policy names; known are {names}"
        )
    return ""


def rejections(
    table: NodeTable, tables: PlacementTables, spec: SchedulingSpec
) -> Iterator[tuple[str, Bools]]:
    for level in required(tables, spec.fabric):
        yield f"node(s) were in no {level.name}", codes(table, level) == ABSENT
    minimum = spec.fabric.minimum
    if minimum:
        yield below(minimum), grades(table) < minimum


def below(minimum: int) -> str:
    types = vocabulary.FABRIC_TYPES
    return f"node(s) had a fabric below {types[len(types) - minimum]}"


def points(table: NodeTable, spec: SchedulingSpec) -> Ints | None:
    """Points for every row; None: all rows are equal."""
    if not spec.fabric.sensitive:
        return None
    by_row = grades(table)
    return _SENSITIVE * by_row // len(vocabulary.FABRIC_TYPES) if by_row.any() else None


def _named(tables: PlacementTables, name: str) -> TopologyLevel | None:
    return tables.level(name) if name else tables.levels[0]
