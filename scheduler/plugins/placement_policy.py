"""
What policies say about which nodes are for whom: the tables in force, applied to the columns.

    refused    (reason, rows) that tiers and fabric close to a pod, whatever is free
    likes      points for every row by hardware, VRAM and fabric
    codes      the domains of a topology level
    vram       bytes of each row's GPUs, the policies' model table included

All of it depends on the nodes' own facts and on the tables alone, and is kept while both stand
still. Pods that ask for nothing of it pay for one question: whether a node is reserved.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from scheduler.columns.node_table import Bools, Codes, Ints, NodeTable
from scheduler.model.fabric import NO_FABRIC, NO_TIERS
from scheduler.model.pod import SchedulingSpec
from scheduler.model.policy import NO_POLICIES, PlacementTables, TopologyLevel
from scheduler.plugins import fabric, tenant_tiers
from scheduler.plugins.gpu_classes import GpuClasses

Refused = tuple[tuple[str, Bools], ...]
T = TypeVar("T")

_MOST: Final = 512
_NOTHING: Final[Refused] = ()


class PlacementPolicy:
    """One for each snapshot."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.tables = NO_POLICIES
        self.hardware = GpuClasses(table, NO_POLICIES)
        self._at = -1
        self._refused: dict[Hashable, Refused] = {}
        self._likes: dict[Hashable, Ints | None] = {}
        self._codes: dict[TopologyLevel, Codes] = {}
        self._near: dict[tuple[TopologyLevel, ...], list[Codes]] = {}
        self._derived: dict[Hashable, Any] = {}
        self._reserves = False

    def adopt(self, tables: PlacementTables) -> None:
        self.tables = tables
        self.hardware = GpuClasses(self._table, tables)
        self._at = -1

    def refused(self, spec: SchedulingSpec) -> Refused:
        self._renew()
        plain = spec.tiers is NO_TIERS and spec.fabric is NO_FABRIC
        if plain and not self._reserves:
            return _NOTHING
        key = (spec.tiers, spec.fabric, spec.host_request.gpus > 0)
        found = self._refused.get(key)
        if found is None:
            found = tuple(
                row
                for row in (
                    *tenant_tiers.refuse(self._table, self.tables, self.hardware, spec),
                    *fabric.refuse(self._table, self.tables, spec),
                )
                if row[1].any()
            )
            self._refused[key] = found
        return found

    def likes(self, spec: SchedulingSpec) -> Ints | None:
        """None: nothing is liked better than anything else."""
        if not spec.host_request.gpus and spec.tiers is NO_TIERS and spec.fabric is NO_FABRIC:
            return None
        self._renew()
        key = (spec.tiers, spec.fabric.sensitive, spec.host_request.gpus > 0, spec.vram)
        if key not in self._likes:
            self._likes[key] = self._liked(spec)
        return self._likes[key]

    def codes(self, level: TopologyLevel) -> Codes:
        """For every row the number of its domain; 0: it says none."""
        if len(level.labels) == 1:
            return self._table.codes(level.labels[0])
        self._renew()
        found = self._codes.get(level)
        if found is None:
            found = self._codes[level] = fabric.codes(self._table, level)
        return found

    def nearness(self, levels: tuple[TopologyLevel, ...]) -> list[Codes]:
        """The codes of those of the levels that some node is labelled with, in their order."""
        if self._at != self._table.statics:
            self._renew()
        found = self._near.get(levels)
        if found is None:
            known = [level for level in levels if fabric.known(self._table, level)]
            found = self._near[levels] = [self.codes(level) for level in known]
        return found

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made of the nodes' labels under this key, as long as they stand still."""
        if self._at != self._table.statics:
            self._renew()
        if key not in self._derived:
            self._derived[key] = make()
        found: T = self._derived[key]
        return found

    def vram(self) -> Ints:
        return self.hardware.vram()

    def trouble(self, spec: SchedulingSpec) -> str:
        """Why no node will do, whatever its labels."""
        return "" if spec.fabric is NO_FABRIC else fabric.trouble(self.tables, spec.fabric)

    def _liked(self, spec: SchedulingSpec) -> Ints | None:
        found = tenant_tiers.like(self.tables, self.hardware, spec)
        more = fabric.like(self._table, spec)
        total = more if found is None else found if more is None else found + more
        if total is None:
            return None
        seen = total[self._table.alive]
        return total if len(seen) and seen.min() != seen.max() else None

    def _renew(self) -> None:
        full = len(self._refused) + len(self._likes) > _MOST
        if self._at != self._table.statics or full:
            self._refused.clear()
            self._likes.clear()
            self._codes.clear()
            self._near.clear()
            self._derived.clear()
            self._reserves = tenant_tiers.reserves(self._table)
            self._at = self._table.statics
