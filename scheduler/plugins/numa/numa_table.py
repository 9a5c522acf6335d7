"""
The NUMA nodes of all hosts as arrays: one row for each node, one column for each NUMA node.

    most        an upper bound on the equal pods that each row can take, by its NUMA nodes
    inside      the NUMA nodes that could hold one pod by themselves
    shortage    the request and the largest free capacity, as text

`most` is never too low, so the planner opens only hosts that may hold the pod. It is exact for
`single-numa` where neither huge pages, VRAM, other gang members, a Topology Manager nor the number
of GPUs matter. Rows are read again when the amounts of their node have changed, and bounds are
computed again for these rows alone. `allocator` chooses inside a host.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from policies import quantity
from scheduler import bounded
from scheduler.model.numa_request import HostRequest, whole_cpus
from scheduler.plugins.numa import numa_score
from scheduler.plugins.numa.host_usage import HostUsage

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Free = tuple[Ints, Ints, Ints]  # CPU, memory and GPUs, each by row and NUMA node

ANY: Final = 2**31
"""No bound: NUMA nodes do not limit the number of pods."""

_MOST_KEPT: Final = 64
_NO_ZONE: Final = -1
_SINGLE: Final = 2
_STRICT: Final = {"restricted": 1, "single-numa-node": _SINGLE}
_CORE: Final = 1000
_GIB: Final = 2**30


class RowChanges(Protocol):
    """The columns that are read: names by row, and the rows that have changed."""

    alive: Bools
    names: list[str]

    def mark(self) -> int: ...
    def since(self, mark: int) -> set[int] | None: ...


class NumaTable:
    """`hosts` is the plugin's own map by node name, read when a bound is computed."""

    def __init__(self, table: RowChanges, hosts: Mapping[str, HostUsage]) -> None:
        self._table, self._hosts = table, hosts
        self._mark = 0
        self._seen: dict[int, HostUsage] = {}  # row -> the host whose sizes it has
        self._bounds: dict[HostRequest, tuple[int, Ints]] = {}
        self.managed = False
        """A host has, or had, a Topology Manager that can reject pods."""
        self._shape((0, 0))

    def matters(self, host_request: HostRequest) -> bool:
        """Whether `most` can be below `ANY` on any row."""
        return (
            host_request.strict
            or host_request.apart
            or (self.managed and (host_request.guaranteed or host_request.gpus > 0))
        )

    def most(self, host_request: HostRequest) -> Ints:
        """For each row the most such pods that can fit; `ANY` where no NUMA nodes are known."""
        self._renew()
        mark, known = self._table.mark(), self._bounds.get(host_request)
        stale = self._table.since(known[0]) if known is not None else None
        if known is None or stale is None or len(known[1]) != len(self._table.alive):
            bounds = self._bound(host_request, slice(None))
        else:
            bounds = known[1]
            if stale:
                where = np.fromiter(stale, dtype=np.int64, count=len(stale))
                bounds[where] = self._bound(host_request, where)
        bounded.remember(self._bounds, host_request, (mark, bounds), _MOST_KEPT)
        return bounds

    def shortage(self, host_request: HostRequest, rows: Bools) -> str:
        """`need cpu 20, memory 80Gi; largest free cpu 16, memory 64Gi`, over the rows' nodes."""
        self._renew()
        where = np.flatnonzero(rows)
        free = np.where(self._open(host_request, where), 1, 0)
        wants = _wants(host_request)
        table = (self.cpu, self.memory, self.gpus)
        largest = [int((column[where] * free).max(initial=0)) for column in table]
        names = [(name, i) for i, name in enumerate(("cpu", "memory", "gpu")) if wants[i]]
        need = ", ".join(f"{name} {quantity.show(name, wants[i])}" for name, i in names)
        have = ", ".join(f"{name} {_rounded(name, largest[i])}" for name, i in names)
        apart = all(largest[i] >= wants[i] for _, i in names)
        return f"need {need}; largest free {have}" + (", not on one NUMA node" if apart else "")

    def inside(self, host_request: HostRequest) -> Bools:
        """The NUMA nodes, by row and place, that could hold one such pod by themselves."""
        self._renew()
        large_enough = self._open(host_request, slice(None))
        for wanted, free in zip(
            _wants(host_request), (self.cpu, self.memory, self.gpus), strict=True
        ):
            if wanted:
                large_enough &= free >= wanted
        return large_enough

    # --- rows ---

    def _shape(self, shape: tuple[int, int]) -> None:
        self.ids = np.full(shape, _NO_ZONE, dtype=np.int64)
        self.cpu, self.memory, self.gpus = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self.sizes = np.zeros((3, *shape), dtype=np.int64)
        self.bandwidth = np.zeros(shape, dtype=np.int64)
        self.distance = np.full(shape, np.nan)
        self.isolated, self.occupied = (np.zeros(shape, dtype=np.bool_) for _ in range(2))
        self.known, self.located = (np.zeros(shape[0], dtype=np.bool_) for _ in range(2))
        self.manager = np.zeros(shape[0], dtype=np.int64)
        self._seen.clear()
        self._bounds.clear()

    def _renew(self) -> None:
        table = self._table
        stale: Iterable[int] | None = table.since(self._mark)
        size, width = self.ids.shape
        if size != len(table.alive):
            widest = max((len(host.numa_nodes) for host in self._hosts.values()), default=0)
            self._shape((len(table.alive), max(width, widest)))
            stale = None
        self._mark = table.mark()
        for row in range(len(table.names)) if stale is None else stale:
            self._read(row)

    def _read(self, row: int) -> None:
        host = self._hosts.get(self._table.names[row])
        if host is None or not host.numa_nodes:
            if self.known[row]:
                self.known[row], self.ids[row] = False, _NO_ZONE
                self._seen.pop(row, None)
            return
        if len(host.numa_nodes) > self.ids.shape[1]:
            self._shape((self.ids.shape[0], len(host.numa_nodes)))
            for other in range(len(self._table.names)):
                self._read(other)
            return
        if self._seen.get(row) is not host:
            self._read_sizes(row, host)
        numa_nodes, count = host.numa_nodes.values(), len(host.numa_nodes)
        cpu, memory, gpus = host.floating_cpu, host.floating_memory, host.floating_gpus
        self.cpu[row, :count] = [max(0, numa_node.cpu - cpu) for numa_node in numa_nodes]
        self.memory[row, :count] = [max(0, numa_node.memory - memory) for numa_node in numa_nodes]
        self.isolated[row, :count] = [numa_node.isolated > 0 for numa_node in numa_nodes]
        self.occupied[row, :count] = [numa_node.pods > 0 for numa_node in numa_nodes]
        if host.gpus_located:
            free = dict.fromkeys(host.numa_nodes, -gpus)
            for index in host.free_gpus:
                zone = host.gpu_zone[index]
                if zone is not None:
                    free[zone] += 1
            self.gpus[row, :count] = [max(0, n) for n in free.values()]

    def _read_sizes(self, row: int, host: HostUsage) -> None:
        zones, count = [host.zones[id_] for id_ in host.numa_nodes], len(host.numa_nodes)
        for column in (self.cpu, self.memory, self.gpus):
            column[row] = 0
        self.ids[row] = _NO_ZONE
        self.ids[row, :count] = list(host.numa_nodes)
        self.sizes[:, row] = 0
        self.sizes[:, row, :count] = [
            [zone.cpu for zone in zones],
            [zone.memory for zone in zones],
            [host.gpus_of[zone.id] for zone in zones],
        ]
        self.bandwidth[row], self.distance[row] = 0, np.nan
        self.bandwidth[row, :count] = [zone.bandwidth for zone in zones]
        distance = (numa_score.average_distance(host, zone.id) for zone in zones)
        self.distance[row, :count] = [
            np.nan if average is None else average for average in distance
        ]
        self.known[row], self.located[row] = True, host.gpus_located
        manager = host.topology.manager
        self.manager[row] = _STRICT.get(manager.policy, 0) if manager is not None else 0
        self._seen[row] = host

    # --- bounds ---

    def _open(self, host_request: HostRequest, where: Ints | slice) -> Bools:
        """The NUMA nodes that exist and are not closed to the pod."""
        is_open: Bools = (self.ids[where] != _NO_ZONE) & ~self.isolated[where]
        for zone in host_request.avoid:
            is_open &= self.ids[where] != zone
        if host_request.isolated:
            is_open &= ~self.occupied[where]
        return is_open

    def _bound(self, host_request: HostRequest, where: Ints | slice) -> Ints:
        open_ = self._open(host_request, where)
        free = (self.cpu[where], self.memory[where], self.gpus[where])
        bound = np.full(len(open_), np.int64(ANY))
        if host_request.strict or host_request.apart:
            bound = self._by_policy(host_request, where, open_, free)
        if (
            self.managed
            and not host_request.containers
            and (host_request.guaranteed or host_request.gpus)
        ):
            bound = np.minimum(bound, self._admitted(host_request, where, open_, free))
        return np.where(self.known[where], bound, np.int64(ANY))

    def _by_policy(
        self, host_request: HostRequest, where: Ints | slice, open_: Bools, free: Free
    ) -> Ints:
        wants = _wants(host_request)
        placed = self.located[where] | (host_request.strict and not host_request.by_default)
        fits = np.where(open_, np.int64(ANY), np.int64(0))
        for i, wanted in enumerate(wants):
            if wanted:
                count = free[i] // wanted
                fits = np.minimum(fits, count if i < 2 else np.where(placed[:, None], count, ANY))
        if host_request.apart or host_request.isolated:
            fits = np.minimum(fits, 1)
        bound: Ints = np.minimum(fits.sum(axis=1), ANY)
        if host_request.policy != "single-numa":
            wide = ~self._narrow(host_request, wants, where, placed)
            bound = np.where(wide, self._together(host_request, wants, free, open_, placed), bound)
        return bound

    def _admitted(
        self, host_request: HostRequest, where: Ints | slice, open_: Bools, free: Free
    ) -> Ints:
        """By the kubelet's Topology Manager, for a pod that it admits as a whole."""
        whole = (
            (whole_cpus(host_request.cpu), host_request.memory)
            if host_request.guaranteed
            else (0, 0)
        )
        ones = np.where(open_, np.int64(ANY), np.int64(0))
        sums = np.full(len(open_), np.int64(ANY))
        narrow, wide = np.zeros(len(open_), dtype=np.bool_), np.zeros(len(open_), dtype=np.bool_)
        for i, wanted in enumerate((*whole, host_request.gpus)):
            if not wanted:
                continue
            counts = self.located[where] if i == 2 else np.ones(len(open_), dtype=np.bool_)
            ones = np.where(counts[:, None], np.minimum(ones, free[i] // wanted), ones)
            total = np.where(open_, free[i], 0).sum(axis=1) // wanted
            sums = np.where(counts, np.minimum(sums, total), sums)
            enough = (self.sizes[i][where] >= wanted).any(axis=1)
            narrow |= counts & enough
            wide |= counts & ~enough
        alone = np.minimum(ones.sum(axis=1), ANY)
        both = np.where(narrow & wide, 0, np.where(wide, sums, alone))
        bound = np.where(self.manager[where] == _SINGLE, alone, both)
        return np.where((self.manager[where] > 0) & (narrow | wide), bound, np.int64(ANY))

    def _narrow(
        self,
        host_request: HostRequest,
        wants: tuple[int, int, int],
        where: Ints | slice,
        placed: Bools,
    ) -> Bools:
        """The rows on which the policy requires one NUMA node: an empty one would suffice."""
        if not host_request.strict:
            return np.zeros(len(placed), dtype=np.bool_)
        large = self.ids[where] != _NO_ZONE
        for i, wanted in enumerate(wants):
            enough = self.sizes[i][where] >= wanted
            large &= enough if i < 2 else enough | ~placed[:, None]
        rows: Bools = large.any(axis=1)
        return rows

    def _together(
        self,
        host_request: HostRequest,
        wants: tuple[int, int, int],
        free: Free,
        open_: Bools,
        placed: Bools,
    ) -> Ints:
        """By the sums over the open NUMA nodes, for pods that may span several."""
        zones: Ints = open_.sum(axis=1)
        if not host_request.strict:
            return zones  # each member takes at least one of its own
        bound = (
            zones // 2
            if host_request.apart or host_request.isolated
            else np.full(len(zones), np.int64(ANY))
        )
        for i, wanted in enumerate(wants):
            if wanted:
                count = np.where(open_, free[i], 0).sum(axis=1) // wanted
                bound = np.minimum(bound, count if i < 2 else np.where(placed, count, ANY))
        return bound


def _wants(host_request: HostRequest) -> tuple[int, int, int]:
    """CPU, memory and GPUs that must be aligned."""
    return (
        host_request.cpu if "cpu" in host_request.aligned else 0,
        host_request.memory if "memory" in host_request.aligned else 0,
        host_request.gpus if "gpu" in host_request.aligned else 0,
    )


def _rounded(resource: str, count: int) -> str:
    """Whole cores and Gi, so that small changes do not change the text."""
    unit = {"cpu": _CORE, "memory": _GIB}.get(resource, 1)
    return quantity.show(resource, count // unit * unit if count >= unit else count)
