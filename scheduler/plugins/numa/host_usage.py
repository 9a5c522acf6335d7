"""
Who holds what inside one node: the free part of every NUMA node and the free GPUs.

    charge(usage) ──▶ free shrinks ──uncharge(usage)──▶ free as before, exactly

A pod whose place is known is charged to its NUMA nodes and GPUs; a GPU makes its holder a tenant of
the NUMA node that it sits on. What is known only in amount (a pod that another scheduler bound, a
resource left out of the pod's NUMA list) floats: it may sit anywhere, so every NUMA node counts it
against itself. `floating` never breaks an isolation, or a daemon on every host would forbid it
everywhere; but a member of a gang that floats may be anybody's neighbour in that gang.

Members of gangs are counted by NUMA node, so that spreading knows its mates of this plan and of
earlier ones alike. A host may tell its GPUs and no NUMA nodes. Choices are made in `choice`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TypeVar

from policies.hosts.topology import Gpu, Topology
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.numa_request import Hugepages
from scheduler.plugins.numa.gpu_islands import IslandLevel, tiers

GangId = Hashable
K = TypeVar("K", bound=Hashable)
Counts = dict[GangId, int]


class PodUsage(NamedTuple):
    """What a placed pod holds in all, and where as far as it is known."""

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
    """One NUMA node as it stands; `tenants` and `isolated` count pods."""

    cpu: int
    memory: int
    tenants: int = 0
    isolated: int = 0
    hugepages: dict[str, int] = field(default_factory=dict)
    bound_members: Counts = field(default_factory=dict)  # gang -> members here
    apart: Counts = field(default_factory=dict)  # gang -> members here that want no mate


class HostUsage:
    """The books of one node's inside."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.rooms = {
            zone.id: NumaUsage(zone.cpu, zone.memory, hugepages=dict(zone.hugepages))
            for zone in sorted(topology.zones, key=lambda zone: zone.id)
        }
        self.zones = {zone.id: zone for zone in topology.zones}
        self.gpus: Mapping[int, Gpu] = {gpu.index: gpu for gpu in topology.gpus}
        self.gpu_zone: Mapping[int, int | None] = {gpu.index: gpu.zone for gpu in topology.gpus}
        self.gpus_of: Mapping[int, int] = {  # NUMA node -> its GPUs, free or not
            zone: sum(1 for place in self.gpu_zone.values() if place == zone) for zone in self.rooms
        }
        self.located = any(place is not None for place in self.gpu_zone.values())
        """Whether it is known of some GPU which NUMA node it sits on."""
        self.paged = frozenset(name for zone in topology.zones for name, _ in zone.hugepages)
        """Huge pages of which it is known where they are."""
        self.tiers: tuple[IslandLevel, ...] = tiers(topology.gpus)
        self.free_gpus = set(self.gpu_zone)
        self.floating_cpu = 0
        self.floating_memory = 0
        self.floating_gpus = 0
        self.floating_hugepages: dict[str, int] = {}
        self.adrift: Counts = {}  # gang -> members whose NUMA nodes are unknown
        # What is asked -> how many NUMA nodes the host needs for it when it is empty.
        self.least: dict[tuple[object, ...], int | None] = {}
        # GPU index -> claims on it beyond the first, which only a change of the host can cause.
        self._doubled: dict[int, int] = {}

    def charge(self, claim: PodUsage) -> None:
        gpus = self._known_gpus(claim.assignment)
        self._move(claim, gpus, +1)
        for index in gpus:
            if index in self.free_gpus:
                self.free_gpus.remove(index)
            else:
                self._doubled[index] = self._doubled.get(index, 0) + 1

    def uncharge(self, claim: PodUsage) -> None:
        gpus = self._known_gpus(claim.assignment)
        self._move(claim, gpus, -1)
        for index in gpus:
            if self._doubled.get(index):
                self._doubled[index] -= 1
            else:
                self.free_gpus.add(index)

    def _known_gpus(self, assignment: Assignment) -> Sequence[int]:
        return [index for index in assignment.gpus if index in self.gpu_zone]

    def _move(self, claim: PodUsage, gpus: Sequence[int], sign: int) -> None:
        cpu, memory = claim.cpu, claim.memory
        homes: set[int] = set()
        for share in claim.assignment.shares:
            room = self.rooms.get(share.zone)
            if room is None:
                continue
            homes.add(share.zone)
            room.cpu -= sign * share.cpu
            room.memory -= sign * share.memory
            cpu -= share.cpu
            memory -= share.memory
        if cpu > 0:
            self.floating_cpu += sign * cpu
        if memory > 0:
            self.floating_memory += sign * memory
        if claim.gpus > len(gpus):
            self.floating_gpus += sign * (claim.gpus - len(gpus))
        if claim.hugepages:
            self._move_pages(claim, sign)
        for index in gpus:
            if (zone := self.gpu_zone[index]) in self.rooms and zone is not None:
                homes.add(zone)
        self._dwell(claim, homes, sign)

    def _move_pages(self, claim: PodUsage, sign: int) -> None:
        loose = dict(claim.hugepages)
        for share in claim.assignment.shares:
            if (room := self.rooms.get(share.zone)) is None:
                continue
            for name, count in share.hugepages:
                room.hugepages[name] = room.hugepages.get(name, 0) - sign * count
                loose[name] = loose.get(name, 0) - count
        for name, count in loose.items():
            _count(self.floating_hugepages, name, sign * max(0, count))

    def _dwell(self, claim: PodUsage, homes: set[int], sign: int) -> None:
        """Who is where: the pod is a tenant of every NUMA node of which it holds something."""
        gang = claim.gang
        for zone in homes:
            room = self.rooms[zone]
            room.tenants += sign
            if claim.assignment.isolated:
                room.isolated += sign
            if gang is not None:
                _count(room.bound_members, gang, sign)
                if claim.apart:
                    _count(room.apart, gang, sign)
        if gang is not None and not homes and self.rooms:
            _count(self.adrift, gang, sign)

    def state(self) -> tuple[object, ...]:
        """Everything that `charge` changes, as one comparable value."""
        rooms = tuple(
            (
                id_,
                room.cpu,
                room.memory,
                room.tenants,
                room.isolated,
                _sorted(room.hugepages),
                _sorted(room.bound_members),
                _sorted(room.apart),
            )
            for id_, room in sorted(self.rooms.items())
        )
        floating = (self.floating_cpu, self.floating_memory, self.floating_gpus)
        loose = (_sorted(self.floating_hugepages), _sorted(self.adrift), _sorted(self._doubled))
        return rooms, floating, tuple(sorted(self.free_gpus)), loose

    @classmethod
    def of(cls, topology: Topology, claims: tuple[PodUsage, ...] = ()) -> Self:
        layout = cls(topology)
        for claim in claims:
            layout.charge(claim)
        return layout


def _count(counts: dict[K, int], key: K, by: int) -> None:
    """Zeros are not kept: gangs come and go."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def _sorted(counts: Mapping[K, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(key), n) for key, n in counts.items() if n))
