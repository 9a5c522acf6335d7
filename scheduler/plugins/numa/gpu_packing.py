"""
The cost of each host for a GPU pod: the best host is the one whose other GPUs stay most useful.

Questions, the most important first:

    1. does one island of the host hold the GPUs?
    2. is an island completed? If nowhere: do untouched ones stay whole? An island is untouched
       while all its GPUs are free, and broken when some are in use
    3. how many GPUs could pods like this one not use afterwards, because CPU, memory or another
       resource of the host ends before its GPUs do, or because an odd number remains?
    4. how much CPU and memory is free beside the GPUs, as parts of the cluster's? The pod goes
       where little is left, and rich hosts stay free for pods that need much

The caller breaks ties: by topology domain, finally by the node's name.

An island is a group of GPUs of one host that reach each other directly (NVLink). A host that
reports none counts as one island, and so does one with pods whose GPU indices are unknown.
`allocator` chooses the GPUs inside the host. Models and tiers are not compared here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.plugins.numa.gpu_islands import IslandLevel
from scheduler.plugins.numa.host_usage import HostUsage

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ISLAND: Final = 0  # the level of islands among the tiers of a host
_MANY: Final = 2**62
_OTHER_RESOURCES: Final = ("cpu", "memory")
_MOST_KEPT: Final = 16  # numbers of GPUs for which effects are kept up to date


class PackingColumns(Protocol):
    """The columns that costs are computed from."""

    names: list[str]

    def free(self, resource: str) -> Ints: ...
    def allocatable(self, resource: str) -> Ints: ...
    def total(self, resource: str) -> int: ...
    def mark(self) -> int: ...
    def since(self, mark: int) -> set[int] | None: ...


class _HostIslands(NamedTuple):
    """The islands of one host: sets of GPU indices, and how many are free of each kind."""

    level: IslandLevel
    members: tuple[frozenset[int], ...]
    broken: frozenset[int] = frozenset()
    untouched: frozenset[int] = frozenset()
    free: int = 0


@dataclass(frozen=True, slots=True)
class IslandEffect:
    """What taking a number of GPUs does to each row's islands; False where a host has one."""

    wide: Bools
    """No island alone has so many free."""
    completes: Bools
    spares: Bools
    """No untouched island is broken."""

    def evaluate(self, row: int, host: _HostIslands | None, taken: int) -> None:
        if host is None:
            self.wide[row] = self.completes[row] = self.spares[row] = False
            return
        held = any(free >= taken for free in host.broken)
        wide = not held and all(free < taken for free in host.untouched)
        whole = taken in host.broken or taken in host.untouched
        self.wide[row] = wide
        self.completes[row] = host.free == taken if wide else whole
        self.spares[row] = held or wide


@dataclass(slots=True)
class HostIslands:
    """
    Hosts that have several islands, and what each number of GPUs would do to them.

    Kept from plan to plan; only rows whose amounts have changed are read again.
    """

    has_islands: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """The rows of these hosts."""
    hosts: dict[int, _HostIslands] = field(default_factory=dict)  # by row
    effects: dict[int, IslandEffect] = field(default_factory=dict)  # GPUs taken -> what that does
    mark: int = -1

    def renew(self, table: PackingColumns, usage_by_node: Mapping[str, HostUsage]) -> None:
        if not usage_by_node and not self.hosts:
            return  # no host reports islands; `since` covers the changes until one does
        size = len(table.free("cpu"))
        changed = table.since(self.mark) if len(self.has_islands) == size else None
        if changed is None:
            self.has_islands = np.zeros(size, dtype=np.bool_)
            self.hosts.clear()
            self.effects.clear()
            changed = set(range(len(table.names)))
        for row in changed:
            self._read(row, usage_by_node.get(table.names[row]))
        self.mark = table.mark()

    def effect(self, taken: int) -> IslandEffect:
        islands = self.effects.get(taken)
        if islands is None:
            if len(self.effects) >= _MOST_KEPT:
                self.effects.clear()
            wide, completes, spares = (np.zeros_like(self.has_islands) for _ in range(3))
            islands = self.effects[taken] = IslandEffect(wide, completes, spares)
            for row, host in self.hosts.items():
                islands.evaluate(row, host, taken)
        return islands

    def _read(self, row: int, usage: HostUsage | None) -> None:
        old, host = self.hosts.get(row), _host(usage, self.hosts.get(row))
        if old is None and host is None:
            return
        self.has_islands[row] = host is not None
        if host is None:
            del self.hosts[row]
        else:
            self.hosts[row] = host
        for taken, effect in self.effects.items():
            effect.evaluate(row, host, taken)


def _host(usage: HostUsage | None, islands: _HostIslands | None) -> _HostIslands | None:
    """None: the host has one island, or the indices of used GPUs are unknown."""
    if usage is None or usage.floating_gpus or not usage.levels:
        return None
    level = usage.levels[0]
    if level.level != ISLAND or len(level.size) < 2:
        return None
    members = islands.members if islands is not None and islands.level is level else _members(level)
    free = [len(island & usage.free_gpus) for island in members]
    untouched = frozenset(n for n, island in zip(free, members, strict=True) if n == len(island))
    broken = frozenset(n for n, island in zip(free, members, strict=True) if n < len(island))
    return _HostIslands(level, members, broken, untouched, sum(free))


def _members(level: IslandLevel) -> tuple[frozenset[int], ...]:
    islands: dict[object, set[int]] = {}
    for index, key in level.group.items():
        islands.setdefault(key, set()).add(index)
    return tuple(map(frozenset, islands.values()))


def costs(
    table: PackingColumns,
    islands: HostIslands,
    gpu: str,
    *,
    gpus_per_pod: int,
    capacity: Ints,
    count: int,
) -> Floats:
    """
    For every row the cost of `count` pods of `gpus_per_pod` GPUs there, exact for the best rows.

    `capacity` is the number of such pods that each row can take. Rows that are worse by one of the
    first questions cost infinitely much, so that the other questions concern few rows.
    """
    free = table.free(gpu)
    rows = _best_rows(table, islands, gpu, capacity, count, count * gpus_per_pod)
    stranded = free[rows] - capacity[rows] * gpus_per_pod
    rows = rows[stranded == stranded.min(initial=_MANY)]
    by_row = np.full(len(free), np.inf)
    by_row[rows] = 0.0
    if len(rows) > 1:
        for name in _OTHER_RESOURCES:
            by_row[rows] += table.free(name)[rows] / max(1, table.total(name))
    return by_row


def keeping_islands(table: PackingColumns, islands: HostIslands, gpu: str, taken: int) -> Bools:
    """The rows on which taking so many GPUs breaks no untouched island."""
    completes, spares = _island_effects(table, islands, gpu, taken)
    return completes | spares


def _island_effects(
    table: PackingColumns, islands: HostIslands, gpu: str, taken: int
) -> tuple[Bools, Bools]:
    """Rows where an island is completed, and rows where untouched ones stay whole."""
    free = table.free(gpu)
    completes = free == taken
    spares = free < table.allocatable(gpu)
    if islands.hosts:
        has_islands = islands.effect(taken)
        completes = np.where(islands.has_islands, has_islands.completes, completes)
        spares = np.where(islands.has_islands, has_islands.spares, spares)
    return completes, spares


def _best_rows(
    table: PackingColumns, islands: HostIslands, gpu: str, capacity: Ints, count: int, taken: int
) -> Ints:
    """The rows where one island holds the GPUs; of these, rows that complete it, or break none."""
    able = capacity >= count
    if islands.hosts:
        narrow = able & ~islands.effect(taken).wide
        able = narrow if narrow.any() else able
    for preferred in _island_effects(table, islands, gpu, taken):
        rows = np.flatnonzero(preferred & able)
        if len(rows):
            return rows
    return np.flatnonzero(able)
