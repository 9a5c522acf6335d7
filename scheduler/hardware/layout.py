"""
Who holds what inside one node: the free part of every NUMA node and the free GPUs.

    take(claim) ──▶ free shrinks ──give(claim)──▶ free as before, exactly

A pod whose place is known is charged to its NUMA nodes and GPUs. What is known only in amount (a
pod that another scheduler bound, a resource left out of the pod's NUMA list) floats: it may sit
anywhere, so every NUMA node counts it against itself. `floating` never breaks an isolation,
or a daemon on every host would forbid it everywhere. No choice is made here: see `choice`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from policies.numa_nodes import Topology

from .assignment import NOWHERE, Assignment


@dataclass(frozen=True, slots=True)
class Claim:
    """What a placed pod holds in all, and where as far as it is known."""

    cpu: int
    memory: int
    gpus: int
    assignment: Assignment = NOWHERE


@dataclass(slots=True)
class Room:
    """One NUMA node as it stands; `tenants` and `isolated` count pods."""

    cpu: int
    memory: int
    tenants: int = 0
    isolated: int = 0


class Layout:
    """The books of one node's inside."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.rooms = {zone.id: Room(zone.cpu, zone.memory) for zone in topology.zones}
        self.gpu_zone: Mapping[int, int | None] = {gpu.index: gpu.zone for gpu in topology.gpus}
        self.free_gpus = set(self.gpu_zone)
        self.floating_cpu = 0
        self.floating_memory = 0
        self.floating_gpus = 0
        # GPU index -> claims on it beyond the first, which only a change of the host can cause.
        self._doubled: dict[int, int] = {}

    def take(self, claim: Claim) -> None:
        self._move(claim, +1)
        for index in self._known_gpus(claim.assignment):
            if index in self.free_gpus:
                self.free_gpus.remove(index)
            else:
                self._doubled[index] = self._doubled.get(index, 0) + 1

    def give(self, claim: Claim) -> None:
        self._move(claim, -1)
        for index in self._known_gpus(claim.assignment):
            if self._doubled.get(index):
                self._doubled[index] -= 1
            else:
                self.free_gpus.add(index)

    def _known_gpus(self, assignment: Assignment) -> tuple[int, ...]:
        return tuple(index for index in assignment.gpus if index in self.gpu_zone)

    def _move(self, claim: Claim, sign: int) -> None:
        cpu, memory = claim.cpu, claim.memory
        for share in claim.assignment.shares:
            room = self.rooms.get(share.zone)
            if room is None:
                continue
            room.cpu -= sign * share.cpu
            room.memory -= sign * share.memory
            room.tenants += sign
            room.isolated += sign if claim.assignment.isolated else 0
            cpu -= share.cpu
            memory -= share.memory
        self.floating_cpu += sign * max(0, cpu)
        self.floating_memory += sign * max(0, memory)
        unplaced = claim.gpus - len(self._known_gpus(claim.assignment))
        self.floating_gpus += sign * max(0, unplaced)

    def state(self) -> tuple[object, ...]:
        """Everything that `take` changes, as one comparable value."""
        rooms = tuple(
            (id_, room.cpu, room.memory, room.tenants, room.isolated)
            for id_, room in sorted(self.rooms.items())
        )
        doubled = tuple(sorted((k, n) for k, n in self._doubled.items() if n))
        floating = (self.floating_cpu, self.floating_memory, self.floating_gpus)
        return rooms, floating, tuple(sorted(self.free_gpus)), doubled

    @classmethod
    def of(cls, topology: Topology, claims: tuple[Claim, ...] = ()) -> Self:
        layout = cls(topology)
        for claim in claims:
            layout.take(claim)
        return layout
