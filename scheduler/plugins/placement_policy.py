"""
Placement by the policies in force: tenant tiers, fabric, and the VRAM of GPUs.

    static_filter   rows that tiers, fabric and VRAM close to a pod
    score           points for hardware tier, VRAM and fabric
    codes           the domains of a topology level
    vram            bytes of each row's GPUs; the policies' model table fills in unknown ones

Results depend on the nodes' own facts and on the policies alone, and are kept while both stand
still. A pod without tiers and fabric requirements costs one check: whether any node is reserved.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from policies import quantity, vocabulary
from scheduler.columns.node_table import Bools, Codes, Ints, NodeTable
from scheduler.model.fabric import NO_FABRIC, NO_TIERS
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.policy import NO_POLICIES, PlacementTables, TopologyLevel
from scheduler.plugins import fabric, tenant_tiers
from scheduler.plugins.gpu_classes import GpuClasses
from scheduler.plugins.protocol import Plugin, Rejection, Relaxation

T = TypeVar("T")

_MOST: Final = 512
_VRAM_TOLERANCE: Final = 0.98  # a GPU sold as 80 GB reports a little less than 80Gi


class PlacementPolicy(Plugin):
    """Filters and scores that the product adds to kube-scheduler's, except those inside hosts."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.tables = NO_POLICIES
        self.hardware = GpuClasses(table, NO_POLICIES)
        self._at = -1
        self._preferences: dict[Hashable, Ints | None] = {}
        self._codes: dict[TopologyLevel, Codes] = {}
        self._nearness: dict[tuple[TopologyLevel, ...], list[Codes]] = {}
        self._derived: dict[Hashable, Any] = {}
        self._any_reserved = False

    def adopt(self, tables: PlacementTables) -> None:
        self.tables = tables
        self.hardware = GpuClasses(self._table, tables)
        self._at = -1

    # --- filters ---

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        if self._at != self._table.statics:
            self._renew()
        plain = spec.tiers is NO_TIERS and spec.fabric is NO_FABRIC and not spec.vram
        if plain and not self._any_reserved:
            return None
        return spec.tiers, spec.fabric, spec.host_request.gpus > 0, spec.vram

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        left = self._table.alive
        for reason, rejected in (
            *tenant_tiers.rejections(self._table, self.tables, self.hardware, spec),
            *fabric.rejections(self._table, self.tables, spec),
        ):
            if rejected.any():
                yield reason, rejected
                left = left & ~rejected
        if spec.vram:
            yield self._short_of_vram(spec, left)

    def _short_of_vram(self, spec: SchedulingSpec, rows: Bools) -> Rejection:
        vram = self.vram()
        largest = int(vram[self._table.alive].max(initial=0))
        reason = (
            f"{vocabulary.INSUFFICIENT_VRAM}: need {quantity.binary(spec.vram)} per GPU, "
            f"largest {quantity.binary(largest)}"
        )
        return reason, rows & (vram < int(spec.vram * _VRAM_TOLERANCE))

    def unresolvable(self, pod: Pod) -> str:
        return self.unknown_level(pod.spec) if pod.gang is not None else ""

    def unknown_level(self, spec: SchedulingSpec) -> str:
        """The message about a topology level that no policy names; empty: all are known."""
        return "" if spec.fabric is NO_FABRIC else fabric.unknown_level(self.tables, spec.fabric)

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.vram:
            yield "request less VRAM", replace(spec, vram=0)
        if spec.fabric is not NO_FABRIC:
            yield "require no topology level and no fabric", replace(spec, fabric=NO_FABRIC)

    # --- scores ---

    def score(self, pod: Pod, rows: Bools) -> Ints | None:
        spec = pod.spec
        if not spec.host_request.gpus and spec.tiers is NO_TIERS and spec.fabric is NO_FABRIC:
            return None
        self._renew()
        key = (spec.tiers, spec.fabric.sensitive, spec.host_request.gpus > 0, spec.vram)
        if key not in self._preferences:
            self._preferences[key] = self._points(spec)
        return self._preferences[key]

    def _points(self, spec: SchedulingSpec) -> Ints | None:
        by_tier = tenant_tiers.points(self.tables, self.hardware, spec)
        by_fabric = fabric.points(self._table, spec)
        parts = [part for part in (by_tier, by_fabric) if part is not None]
        if not parts:
            return None
        total: Ints = np.sum(parts, axis=0)
        alive = total[self._table.alive]
        return total if len(alive) and alive.min() != alive.max() else None

    # --- topology domains ---

    def codes(self, level: TopologyLevel) -> Codes:
        """For every row the number of its domain; 0: the node has no such label."""
        if len(level.labels) == 1:
            return self._table.codes(level.labels[0])
        self._renew()
        codes = self._codes.get(level)
        if codes is None:
            codes = self._codes[level] = fabric.codes(self._table, level)
        return codes

    def nearness(self, levels: tuple[TopologyLevel, ...]) -> list[Codes]:
        """The codes of those of the levels that some node is labelled with, in their order."""
        if self._at != self._table.statics:
            self._renew()
        codes = self._nearness.get(levels)
        if codes is None:
            known = [level for level in levels if fabric.known(self._table, level)]
            codes = self._nearness[levels] = [self.codes(level) for level in known]
        return codes

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value made from the nodes' labels, kept under this key until the labels change."""
        if self._at != self._table.statics:
            self._renew()
        if key not in self._derived:
            self._derived[key] = make()
        value: T = self._derived[key]
        return value

    def vram(self) -> Ints:
        return self.hardware.vram()

    def _renew(self) -> None:
        if self._at != self._table.statics or len(self._preferences) > _MOST:
            self._preferences.clear()
            self._codes.clear()
            self._nearness.clear()
            self._derived.clear()
            self._any_reserved = tenant_tiers.any_reserved(self._table)
            self._at = self._table.statics
