"""
Usage inside one node: free capacity of every NUMA node, and free GPUs.

    charge(usage) ──▶ free shrinks ──uncharge(usage)──▶ free as before, exactly

A pod with a known assignment is charged to its NUMA nodes and GPUs. A GPU counts the pod on the
NUMA node of the GPU as well. Amounts without a known place float: every NUMA node counts them
against itself. That is so for a pod that another scheduler bound, and for a resource that is not in
the pod's NUMA list. Floating pods never break an isolation, or a daemon on every host would forbid
isolation everywhere. A floating member of a gang may be on any NUMA node, next to any other member.

Gang members are counted for each NUMA node, those of this plan and earlier ones alike. A host may
report GPUs and no NUMA nodes. `allocator` makes the choices.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeVar

from policies.hosts.topology import Gpu, Topology
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.numa_request import Hugepages
from scheduler.plugins.numa.gpu_islands import IslandLevel, levels_of

GangId = Hashable
K = TypeVar("K", bound=Hashable)
Counts = dict[GangId, int]


class PodUsage(NamedTuple):
    """The amounts that a placed pod uses, and its NUMA nodes and GPUs where they are known."""

    cpu: int
    memory: int
    gpus: int
    assignment: Assignment = NO_ASSIGNMENT
    hugepages: Hugepages = ()
    gang: GangId | None = None
    apart: bool = False
    """It shares no NUMA node with another member of its gang."""


@dataclass(slots=True)
class NumaUsage:
    """Free capacity of one NUMA node; `pods` and `isolated` count pods on it."""

    cpu: int
    memory: int
    pods: int = 0
    isolated: int = 0
    hugepages: dict[str, int] = field(default_factory=dict)
    members: Counts = field(default_factory=dict)  # gang -> members here
    apart: Counts = field(default_factory=dict)  # gang -> members here that must be alone


class HostUsage:
    """The NUMA nodes and GPUs of one node, and the pods on them."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.numa_nodes = {
            zone.id: NumaUsage(zone.cpu, zone.memory, hugepages=dict(zone.hugepages))
            for zone in sorted(topology.zones, key=lambda zone: zone.id)
        }
        self.zones = {zone.id: zone for zone in topology.zones}
        self.gpus: Mapping[int, Gpu] = {gpu.index: gpu for gpu in topology.gpus}
        self.gpu_zone: Mapping[int, int | None] = {gpu.index: gpu.zone for gpu in topology.gpus}
        self.gpus_of: Mapping[int, int] = {  # NUMA node -> its GPUs, free or not
            zone: sum(1 for place in self.gpu_zone.values() if place == zone)
            for zone in self.numa_nodes
        }
        self.gpus_located = any(place is not None for place in self.gpu_zone.values())
        """Whether the host reports the NUMA node of any GPU."""
        self.located_hugepages = frozenset(
            name for zone in topology.zones for name, _ in zone.hugepages
        )
        """Huge pages whose NUMA nodes the host reports."""
        self.levels: tuple[IslandLevel, ...] = levels_of(topology.gpus)
        self.free_gpus = set(self.gpu_zone)
        self.floating_cpu = 0
        self.floating_memory = 0
        self.floating_gpus = 0
        self.floating_hugepages: dict[str, int] = {}
        self.unlocated_members: Counts = {}  # gang -> members whose NUMA nodes are unknown
        # Requested amounts -> the number of NUMA nodes that they need on an empty host.
        self.fewest: dict[tuple[object, ...], int | None] = {}
        # GPU index -> charges beyond the first, which only a change of the host can cause.
        self._double_charged: dict[int, int] = {}

    def charge(self, usage: PodUsage) -> None:
        gpus = self._known_gpus(usage.assignment)
        self._move(usage, gpus, +1)
        for index in gpus:
            if index in self.free_gpus:
                self.free_gpus.remove(index)
            else:
                self._double_charged[index] = self._double_charged.get(index, 0) + 1

    def uncharge(self, usage: PodUsage) -> None:
        gpus = self._known_gpus(usage.assignment)
        self._move(usage, gpus, -1)
        for index in gpus:
            if self._double_charged.get(index):
                self._double_charged[index] -= 1
            else:
                self.free_gpus.add(index)

    def _known_gpus(self, assignment: Assignment) -> Sequence[int]:
        return [index for index in assignment.gpus if index in self.gpu_zone]

    def _move(self, usage: PodUsage, gpus: Sequence[int], sign: int) -> None:
        cpu, memory = usage.cpu, usage.memory
        zones: set[int] = set()
        for share in usage.assignment.shares:
            numa_node = self.numa_nodes.get(share.zone)
            if numa_node is None:
                continue
            zones.add(share.zone)
            numa_node.cpu -= sign * share.cpu
            numa_node.memory -= sign * share.memory
            cpu -= share.cpu
            memory -= share.memory
        if cpu > 0:
            self.floating_cpu += sign * cpu
        if memory > 0:
            self.floating_memory += sign * memory
        if usage.gpus > len(gpus):
            self.floating_gpus += sign * (usage.gpus - len(gpus))
        if usage.hugepages:
            self._move_pages(usage, sign)
        for index in gpus:
            if (zone := self.gpu_zone[index]) in self.numa_nodes and zone is not None:
                zones.add(zone)
        self._count_pod(usage, zones, sign)

    def _move_pages(self, usage: PodUsage, sign: int) -> None:
        unlocated = dict(usage.hugepages)
        for share in usage.assignment.shares:
            if (numa_node := self.numa_nodes.get(share.zone)) is None:
                continue
            for name, count in share.hugepages:
                numa_node.hugepages[name] = numa_node.hugepages.get(name, 0) - sign * count
                unlocated[name] = unlocated.get(name, 0) - count
        for name, count in unlocated.items():
            _count(self.floating_hugepages, name, sign * max(0, count))

    def _count_pod(self, usage: PodUsage, zones: set[int], sign: int) -> None:
        """The pod counts on every NUMA node of which it uses something."""
        gang = usage.gang
        for zone in zones:
            numa_node = self.numa_nodes[zone]
            numa_node.pods += sign
            if usage.assignment.isolated:
                numa_node.isolated += sign
            if gang is not None:
                _count(numa_node.members, gang, sign)
                if usage.apart:
                    _count(numa_node.apart, gang, sign)
        if gang is not None and not zones and self.numa_nodes:
            _count(self.unlocated_members, gang, sign)

    def state(self) -> tuple[object, ...]:
        """Everything that `charge` changes, as one comparable value."""
        numa_nodes = tuple(
            (
                id_,
                numa_node.cpu,
                numa_node.memory,
                numa_node.pods,
                numa_node.isolated,
                _sorted(numa_node.hugepages),
                _sorted(numa_node.members),
                _sorted(numa_node.apart),
            )
            for id_, numa_node in sorted(self.numa_nodes.items())
        )
        floating = (self.floating_cpu, self.floating_memory, self.floating_gpus)
        unlocated = (
            _sorted(self.floating_hugepages),
            _sorted(self.unlocated_members),
            _sorted(self._double_charged),
        )
        return numa_nodes, floating, tuple(sorted(self.free_gpus)), unlocated

    @classmethod
    def of(cls, topology: Topology, usages: tuple[PodUsage, ...] = ()) -> Self:
        host = cls(topology)
        for usage in usages:
            host.charge(usage)
        return host


def _count(counts: dict[K, int], key: K, by: int) -> None:
    """Zeros are removed: gangs come and go."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def _sorted(counts: Mapping[K, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(key), n) for key, n in counts.items() if n))
