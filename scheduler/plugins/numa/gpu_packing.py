"""
Which of the hosts that can take a GPU pod should: the one whose other GPUs stay most useful.

Questions, the most important first:

    1. does one island of the host hold the GPUs?
    2. is an island completed? If nowhere: do pristine ones stay whole? An island is pristine
       while all its GPUs are free, and broken when some are taken
    3. how many GPUs could pods like this one not use afterwards, because CPU, memory or another
       resource of the host ends before its GPUs do, or because an odd number remains?
    4. how much CPU and memory is free beside the GPUs, as parts of what the cluster has? A pod
       goes where little is left, and rich hosts are kept for pods that need much

Who asks tells equals apart: by their domains, at last by the node's name.

An island is a group of GPUs of one host that reach each other directly (NVLink). A host that tells
of none counts as one island, and so does one where somebody's GPUs are not known by index.
Choosing the GPUs inside the host is not done here, and neither is comparing models or tiers.
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
_BESIDE: Final = ("cpu", "memory")
_MOST_KEPT: Final = 16  # numbers of GPUs for which verdicts are kept up to date


class PackingColumns(Protocol):
    """The columns that are read here."""

    names: list[str]

    def free(self, resource: str) -> Ints: ...
    def allocatable(self, resource: str) -> Ints: ...
    def total(self, resource: str) -> int: ...
    def mark(self) -> int: ...
    def since(self, mark: int) -> set[int] | None: ...


class _HostIslands(NamedTuple):
    """The islands of one host: sets of GPU indices, and how many are free of each kind."""

    tier: IslandLevel
    members: tuple[frozenset[int], ...]
    broken: frozenset[int] = frozenset()
    pristine: frozenset[int] = frozenset()
    free: int = 0


@dataclass(frozen=True, slots=True)
class IslandEffect:
    """What taking a number of GPUs does on each row; False where a host has one island."""

    wide: Bools
    """No island alone has so many free."""
    completes: Bools
    spares: Bools
    """No pristine island is broken."""

    def judge(self, row: int, host: _HostIslands | None, taken: int) -> None:
        if host is None:
            self.wide[row] = self.completes[row] = self.spares[row] = False
            return
        held = any(free >= taken for free in host.broken)
        wide = not held and all(free < taken for free in host.pristine)
        whole = taken in host.broken or taken in host.pristine
        self.wide[row] = wide
        self.completes[row] = host.free == taken if wide else whole
        self.spares[row] = held or wide


@dataclass(slots=True)
class HostIslands:
    """
    Hosts that have several islands, and what each number of GPUs would do to them.

    Kept from plan to plan; only rows whose amounts changed are read again.
    """

    told: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """The rows of these hosts."""
    hosts: dict[int, _HostIslands] = field(default_factory=dict)  # by row
    verdicts: dict[int, IslandEffect] = field(default_factory=dict)  # GPUs taken -> what that does
    mark: int = -1

    def renew(self, table: PackingColumns, layouts: Mapping[str, HostUsage]) -> None:
        if not layouts and not self.hosts:
            return  # nobody tells anything; what is missed until then, `since` knows
        size = len(table.free("cpu"))
        changed = table.since(self.mark) if len(self.told) == size else None
        if changed is None:
            self.told = np.zeros(size, dtype=np.bool_)
            self.hosts.clear()
            self.verdicts.clear()
            changed = set(range(len(table.names)))
        for row in changed:
            self._read(row, layouts.get(table.names[row]))
        self.mark = table.mark()

    def verdict(self, taken: int) -> IslandEffect:
        known = self.verdicts.get(taken)
        if known is None:
            if len(self.verdicts) >= _MOST_KEPT:
                self.verdicts.clear()
            wide, completes, spares = (np.zeros_like(self.told) for _ in range(3))
            known = self.verdicts[taken] = IslandEffect(wide, completes, spares)
            for row, host in self.hosts.items():
                known.judge(row, host, taken)
        return known

    def _read(self, row: int, layout: HostUsage | None) -> None:
        old, host = self.hosts.get(row), _host(layout, self.hosts.get(row))
        if old is None and host is None:
            return
        self.told[row] = host is not None
        if host is None:
            del self.hosts[row]
        else:
            self.hosts[row] = host
        for taken, verdict in self.verdicts.items():
            verdict.judge(row, host, taken)


def _host(layout: HostUsage | None, known: _HostIslands | None) -> _HostIslands | None:
    """None: the host has one island, or it is not known who holds which of its GPUs."""
    if layout is None or layout.floating_gpus or not layout.tiers:
        return None
    tier = layout.tiers[0]
    if tier.level != ISLAND or len(tier.size) < 2:
        return None
    members = known.members if known is not None and known.tier is tier else _members(tier)
    free = [len(island & layout.free_gpus) for island in members]
    pristine = frozenset(n for n, island in zip(free, members, strict=True) if n == len(island))
    broken = frozenset(n for n, island in zip(free, members, strict=True) if n < len(island))
    return _HostIslands(tier, members, broken, pristine, sum(free))


def _members(tier: IslandLevel) -> tuple[frozenset[int], ...]:
    found: dict[object, set[int]] = {}
    for index, key in tier.group.items():
        found.setdefault(key, set()).add(index)
    return tuple(map(frozenset, found.values()))


def costs(
    table: PackingColumns, known: HostIslands, gpu: str, *, each: int, room: Ints, wanted: int
) -> Floats:
    """
    For every row what it costs to put `wanted` pods of `each` GPUs there; only the best are told.

    `room` says how many such pods a row can take. Rows that are worse by one of the first
    questions cost infinitely much, so that the others need not be worked out for all of them.
    """
    free = table.free(gpu)
    rows = _gentlest(table, known, gpu, room, wanted, wanted * each)
    stranded = free[rows] - room[rows] * each
    rows = rows[stranded == stranded.min(initial=_MANY)]
    found = np.full(len(free), np.inf)
    found[rows] = 0.0
    if len(rows) > 1:
        for name in _BESIDE:
            found[rows] += table.free(name)[rows] / max(1, table.total(name))
    return found


def sparing(table: PackingColumns, known: HostIslands, gpu: str, taken: int) -> Bools:
    """The rows on which taking so many GPUs leaves no pristine island broken."""
    completes, spares = _gentle(table, known, gpu, taken)
    return completes | spares


def _gentle(table: PackingColumns, known: HostIslands, gpu: str, taken: int) -> tuple[Bools, Bools]:
    """Rows where an island is completed, and rows where pristine ones stay whole."""
    free = table.free(gpu)
    completes = free == taken
    spares = free < table.allocatable(gpu)
    if known.hosts:
        told = known.verdict(taken)
        completes = np.where(known.told, told.completes, completes)
        spares = np.where(known.told, told.spares, spares)
    return completes, spares


def _gentlest(
    table: PackingColumns, known: HostIslands, gpu: str, room: Ints, wanted: int, taken: int
) -> Ints:
    """The rows with room where one island holds them; that complete it, or break none, if any."""
    able = room >= wanted
    if known.hosts:
        narrow = able & ~known.verdict(taken).wide
        able = narrow if narrow.any() else able
    for gentle in _gentle(table, known, gpu, taken):
        found = np.flatnonzero(gentle & able)
        if len(found):
            return found
    return np.flatnonzero(able)
