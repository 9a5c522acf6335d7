"""
Nearness of nodes by topology levels, and how good the network of each is.

    codes     for every row a number for its domain of a level: two rows with the same are near;
              0: the node does not say
    grades    for every row how good its fabric is, 0 where nobody knows
    refuse    a pod that needs a level, or a least fabric, on nodes that lack it

That a whole group shares one domain is the planner's business (`gathering`): a node alone can only
lack the label. Pure functions of columns, except that codes told by several labels are kept.
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
    found = table.codes(first)
    if not any(table.values(key) for key in others):
        return found
    numbers = dict(table.values(first))
    found = found.copy()
    for key in others:
        mine, values = table.codes(key), table.values(key)
        renumbered = np.zeros(len(values) + 1, dtype=np.int32)
        for value, code in values.items():
            renumbered[code] = numbers.setdefault(value, len(numbers) + 1)
        found = np.where(found == ABSENT, renumbered[mine], found)
    return found


def known(table: NodeTable, level: TopologyLevel) -> bool:
    """Whether some node is, or was, labelled with it."""
    return any(table.values(key) for key in level.labels)


def grades(table: NodeTable) -> Ints:
    by_code = np.zeros(len(table.values(vocabulary.FABRIC_TYPE_LABEL)) + 1, dtype=np.int64)
    for value, code in table.values(vocabulary.FABRIC_TYPE_LABEL).items():
        by_code[code] = grade(value)
    return by_code[table.codes(vocabulary.FABRIC_TYPE_LABEL)]


def required(tables: PlacementTables, wish: FabricRequirements) -> tuple[TopologyLevel, ...]:
    """The levels that the pod's whole group must share, known ones alone; see `trouble`."""
    clique = next((one for one in tables.levels if CLIQUE.labels[0] in one.labels), CLIQUE)
    found = [clique] if wish.clique else []
    if wish.strict is not None and (level := _named(tables, wish.strict)) is not None:
        found.append(level)
    return tuple(dict.fromkeys(found))


def liked(tables: PlacementTables, wish: FabricRequirements) -> TopologyLevel | None:
    """The level that the pod's group would share."""
    return None if wish.preferred is None else _named(tables, wish.preferred)


def trouble(tables: PlacementTables, wish: FabricRequirements) -> str:
    """Why no node will do, whatever its labels; empty: nothing is wrong."""
    if wish.strict and _named(tables, wish.strict) is None:
        names = ", ".join(level.name for level in reversed(tables.levels))
        return (
            f"{vocabulary.CO_LOCATE_ANNOTATION} names the topology level {wish.strict}, which no"
            f" policy names; known are {names}"
        )
    return ""


def refuse(
    table: NodeTable, tables: PlacementTables, spec: SchedulingSpec
) -> Iterator[tuple[str, Bools]]:
    wish = spec.fabric
    for level in required(tables, wish):
        yield f"node(s) were in no {level.name}", codes(table, level) == ABSENT
    if wish.minimum:
        yield below(wish.minimum), grades(table) < wish.minimum


def below(least: int) -> str:
    types = vocabulary.FABRIC_TYPES
    return f"node(s) had a fabric below {types[len(types) - least]}"


def like(table: NodeTable, spec: SchedulingSpec) -> Ints | None:
    """Points for every row; None: nothing is liked better than anything else."""
    if not spec.fabric.sensitive:
        return None
    found = grades(table)
    return _SENSITIVE * found // len(vocabulary.FABRIC_TYPES) if found.any() else None


def _named(tables: PlacementTables, name: str) -> TopologyLevel | None:
    return tables.level(name) if name else tables.levels[0]
