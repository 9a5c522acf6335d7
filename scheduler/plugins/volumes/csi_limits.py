"""
How many volumes each node has of each CSI driver, and how many it may have.

A volume counts once a node, however many pods mount it; attachments that no pod of the node
accounts for count as well. What a claim stands for may change (its volume is made, its class
appears), so that counts are derived from the claims of a row, anew for rows where something changed
and for no others.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.pod_volumes import AttachableVolume
from scheduler.plugins.volumes.store import VolumeStore

EXCEEDED: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "%s CSI driver is not installed on the node"

Unique = tuple[str, str]  # driver, handle

_UNLIMITED: Final = np.iinfo(np.int64).max


class CsiLimits:
    """`mounted` tells what the pods of a row mount."""

    def __init__(
        self,
        table: NodeTable,
        facts: VolumeStore,
        mounted: Callable[[int], Iterable[AttachableVolume]],
    ) -> None:
        self._table, self._facts, self._mounted = table, facts, mounted
        self._stale: set[int] = set()
        self._names: dict[int, frozenset[Unique]] = {}  # row -> volumes that its pods mount
        self._rows: dict[Unique, set[int]] = {}  # volume -> rows whose pods mount it
        self._used: dict[str, Ints] = {}  # driver -> count for each row
        self._known: tuple[int, int] = (-1, -1)
        self._limits: dict[str, Ints] = {}  # driver -> limit for each row
        self._installed: dict[str, Bools] = {}
        self._has_csi_node: Bools = np.zeros(0, dtype=np.bool_)
        self._placed: dict[str, int] = {}  # node with attachments -> its row when last counted

    def touch(self, row: int) -> None:
        """Something of what is mounted or attached here may count differently now."""
        self._stale.add(row)

    def refuse(self, new: Iterable[AttachableVolume], rows: Bools) -> Iterator[tuple[str, Bools]]:
        """The rows that would have too many with these volumes, or lack a driver they need."""
        volumes = {(found.driver, found.handle): found for found in new}
        if not volumes:
            return
        self._renew()
        left = rows
        for driver in sorted({driver for driver, _ in volumes}):
            moved = all(found.migrated for key, found in volumes.items() if key[0] == driver)
            missing = left & self._lacking(driver, moved=moved)
            if missing.any():
                yield NOT_INSTALLED % driver, missing
                left = left & ~missing
        over = np.zeros_like(left)
        for driver in sorted({driver for driver, _ in volumes}):
            if driver in self._limits:
                over |= self._exceeded(driver, [key for key in volumes if key[0] == driver])
        yield EXCEEDED, left & over

    def _exceeded(self, driver: str, volumes: list[Unique]) -> Bools:
        used = self._used.get(driver)
        more = np.full(len(self._table.alive), len(volumes), dtype=np.int64)
        for volume in volumes:
            more[list(self._rows.get(volume, ()))] -= 1
        total = more if used is None else more + used
        exceeded: Bools = (more > 0) & (total > self._limits[driver])
        return exceeded

    def _lacking(self, driver: str, *, moved: bool) -> Bools:
        """The rows without a driver that insists on being there."""
        found = self._facts.drivers.get(driver)
        if found is None or not found.required:
            return np.zeros_like(self._table.alive)
        installed = self._installed.get(driver)
        lacking = np.ones_like(self._table.alive) if installed is None else ~installed
        # A disk is taken for one of the driver's only where nodes say which drivers they have.
        return lacking & self._has_csi_node if moved else lacking

    # --- counting ---

    def _renew(self) -> None:
        table, facts = self._table, self._facts
        moment = (facts.drivers_version, table.statics)
        if moment != self._known:
            self._known = moment
            self._read_nodes()
        for row in self._stale:
            self._count(row)
        self._stale.clear()

    def _read_nodes(self) -> None:
        table, facts = self._table, self._facts
        size = len(table.alive)
        self._limits, self._installed = {}, {}
        self._has_csi_node = np.zeros(size, dtype=np.bool_)
        for name, found in facts.csi_nodes.items():
            row = table.rows.get(name)
            if row is None:
                continue
            self._has_csi_node[row] = True
            for driver, limit in found.limits:
                here = self._installed.setdefault(driver, np.zeros(size, dtype=np.bool_))
                here[row] = True
                if limit is not None:
                    full = self._limits.setdefault(driver, np.full(size, _UNLIMITED))
                    full[row] = limit
        for driver, used in self._used.items():
            if len(used) < size:
                more = np.zeros(size - len(used), dtype=np.int64)
                self._used[driver] = np.concatenate([used, more])
        placed = {name: row for name in facts.attached if (row := table.rows.get(name, -1)) >= 0}
        for name in placed.keys() | self._placed.keys():
            if placed.get(name) != self._placed.get(name):
                self._stale |= {at[name] for at in (placed, self._placed) if name in at}
        self._placed = placed

    def _count(self, row: int) -> None:
        mounted = frozenset((found.driver, found.handle) for found in self._mounted(row))
        old = self._names.pop(row, frozenset())
        if mounted:
            self._names[row] = mounted
        for volume in old - mounted:
            self._rows[volume].discard(row)
            if not self._rows[volume]:
                del self._rows[volume]
        for volume in mounted - old:
            self._rows.setdefault(volume, set()).add(row)
        name = self._table.names[row]
        attached = {(found.driver, found.handle) for found in self._facts.attachments(name)}
        for used in self._used.values():
            used[row] = 0
        for driver, _ in mounted | attached:
            if driver not in self._used:
                self._used[driver] = np.zeros(len(self._table.alive), dtype=np.int64)
            self._used[driver][row] += 1
