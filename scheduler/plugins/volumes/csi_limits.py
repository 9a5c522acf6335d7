"""
Volumes per CSI driver and node, and their limits.

A volume counts once per node, however many pods mount it; attachments that no pod of the node uses
count as well. The volume behind a PVC may change (it is provisioned, its class appears), so counts
are derived from the PVCs of a row, and only for rows that changed.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.pod_volumes import AttachableVolume
from scheduler.plugins.volumes.store import VolumeStore

EXCEEDED: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "%s CSI driver is not installed on the node"

VolumeId = tuple[str, str]  # driver, handle

_UNLIMITED: Final = np.iinfo(np.int64).max


class CsiLimits:
    """`mounted` gives the volumes that the pods of a row mount."""

    def __init__(
        self,
        table: NodeTable,
        store: VolumeStore,
        mounted: Callable[[int], Iterable[AttachableVolume]],
    ) -> None:
        self._table = table
        self._store = store
        self._mounted = mounted
        self._stale: set[int] = set()
        self._names: dict[int, frozenset[VolumeId]] = {}  # row -> volumes that its pods mount
        self._rows: dict[VolumeId, set[int]] = {}  # volume -> rows whose pods mount it
        self._used: dict[str, Ints] = {}  # driver -> count for each row
        self._versions: tuple[int, int] = (-1, -1)
        self._limits: dict[str, Ints] = {}  # driver -> limit for each row
        self._installed: dict[str, Bools] = {}
        self._has_csi_node: Bools = np.zeros(0, dtype=np.bool_)
        self._attached_rows: dict[str, int] = {}  # node with attachments -> its row when counted

    def invalidate(self, row: int) -> None:
        """Count the volumes of this row again before the next use."""
        self._stale.add(row)

    def filter(self, new: Iterable[AttachableVolume], rows: Bools) -> Iterator[tuple[str, Bools]]:
        """The rows that would exceed a limit with these volumes, or lack a required driver."""
        volumes = {(volume.driver, volume.handle): volume for volume in new}
        if not volumes:
            return
        self._refresh()
        left = rows
        for driver in sorted({driver for driver, _ in volumes}):
            migrated = all(item.migrated for key, item in volumes.items() if key[0] == driver)
            missing = left & self._without_driver(driver, migrated=migrated)
            if missing.any():
                yield NOT_INSTALLED % driver, missing
                left = left & ~missing
        over = np.zeros_like(left)
        for driver in sorted({driver for driver, _ in volumes}):
            if driver in self._limits:
                over |= self._exceeded(driver, [key for key in volumes if key[0] == driver])
        yield EXCEEDED, left & over

    def _exceeded(self, driver: str, volumes: list[VolumeId]) -> Bools:
        used = self._used.get(driver)
        more = np.full(len(self._table.alive), len(volumes), dtype=np.int64)
        for volume in volumes:
            more[list(self._rows.get(volume, ()))] -= 1
        total = more if used is None else more + used
        exceeded: Bools = (more > 0) & (total > self._limits[driver])
        return exceeded

    def _without_driver(self, driver: str, *, migrated: bool) -> Bools:
        """The rows that lack a required driver."""
        csi_driver = self._store.drivers.get(driver)
        if csi_driver is None or not csi_driver.required:
            return np.zeros_like(self._table.alive)
        installed = self._installed.get(driver)
        missing = np.ones_like(self._table.alive) if installed is None else ~installed
        # An in-tree disk counts as migrated only on nodes that have a CSINode.
        return missing & self._has_csi_node if migrated else missing

    # --- counting ---

    def _refresh(self) -> None:
        table, store = self._table, self._store
        versions = (store.csi_nodes_version, table.statics)
        if versions != self._versions:
            self._versions = versions
            self._read_nodes()
        for row in self._stale:
            self._count(row)
        self._stale.clear()

    def _read_nodes(self) -> None:
        table, store = self._table, self._store
        size = len(table.alive)
        self._limits, self._installed = {}, {}
        self._has_csi_node = np.zeros(size, dtype=np.bool_)
        for name, csi_node in store.csi_nodes.items():
            row = table.rows.get(name)
            if row is None:
                continue
            self._has_csi_node[row] = True
            for driver, limit in csi_node.limits:
                installed = self._installed.setdefault(driver, np.zeros(size, dtype=np.bool_))
                installed[row] = True
                if limit is not None:
                    limits = self._limits.setdefault(driver, np.full(size, _UNLIMITED))
                    limits[row] = limit
        for driver, used in self._used.items():
            if len(used) < size:
                more = np.zeros(size - len(used), dtype=np.int64)
                self._used[driver] = np.concatenate([used, more])
        attached = {name: row for name in store.attached if (row := table.rows.get(name, -1)) >= 0}
        for name in attached.keys() | self._attached_rows.keys():
            if attached.get(name) != self._attached_rows.get(name):
                self._stale |= {at[name] for at in (attached, self._attached_rows) if name in at}
        self._attached_rows = attached

    def _count(self, row: int) -> None:
        mounted = frozenset((item.driver, item.handle) for item in self._mounted(row))
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
        attached = {(item.driver, item.handle) for item in self._store.attachments(name)}
        for used in self._used.values():
            used[row] = 0
        for driver, _ in mounted | attached:
            if driver not in self._used:
                self._used[driver] = np.zeros(len(self._table.alive), dtype=np.int64)
            self._used[driver][row] += 1
