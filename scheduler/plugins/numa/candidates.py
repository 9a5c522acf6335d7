"""
What each NUMA node of a host could give to one pod, and what the pod wants of them together.

Closed to the pod are: ids that it avoids; NUMA nodes of isolated pods; for an isolated pod, NUMA
nodes with any tenant; NUMA nodes of mates, where a member of the gang wants to be apart. GPUs are
usable when they are free, large enough, and on no closed NUMA node. What floats is counted against
every NUMA node. Pure views of a `HostUsage`; which of them is taken is decided in `choice`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from scheduler.model.numa_request import HostRequest, Hugepages
from scheduler.plugins.numa.host_usage import GangId, HostUsage, NumaUsage

_NO_ZONES: Final[frozenset[int]] = frozenset()
VRAM_TOLERANCE: Final = 0.98  # a GPU sold as 80 GB reports a little less than 80Gi


class AlignedAmounts(NamedTuple):
    """The amounts that must sit together."""

    cpu: int
    memory: int
    gpus: int
    hugepages: Hugepages = ()


class NumaOffer(NamedTuple):
    """What one NUMA node could give; no amount is below zero."""

    zone: int
    cpu: int
    memory: int
    gpus: Sequence[int]
    spare: int
    """GPUs that are certainly free: strangers may hold any."""
    preferred: bool = False
    hugepages: Hugepages = ()


def wanted(layout: HostUsage, host_request: HostRequest) -> AlignedAmounts:
    """
    The ask without the amounts that may sit anywhere, or of which the host does not tell where.

    Only a policy that the user chose insists on GPUs beside the CPUs where their place is unknown.
    """
    gpus = "gpu" in host_request.aligned and (
        layout.located or (host_request.strict and not host_request.by_default)
    )
    return AlignedAmounts(
        cpu=host_request.cpu if "cpu" in host_request.aligned else 0,
        memory=host_request.memory if "memory" in host_request.aligned else 0,
        gpus=host_request.gpus if gpus else 0,
        hugepages=tuple(
            (name, count)
            for name, count in host_request.hugepages
            if name in host_request.aligned and name in layout.paged
        ),
    )


def closed(layout: HostUsage, host_request: HostRequest, gang: GangId | None) -> frozenset[int]:
    """The NUMA nodes that the pod may not use."""
    found = [
        zone
        for zone, room in layout.rooms.items()
        if (room.tenants if host_request.isolated else room.isolated)
        or (gang is not None and _crowded(room, host_request, gang))
    ]
    return frozenset((*found, *host_request.avoid)) if found or host_request.avoid else _NO_ZONES


def usable_gpus(
    layout: HostUsage, host_request: HostRequest, shut: frozenset[int], vram: int
) -> Sequence[int]:
    """The free GPUs that are large enough; one that does not tell its VRAM goes by its node's."""
    if not shut and not vram:
        return sorted(layout.free_gpus)
    least = int(vram * VRAM_TOLERANCE)
    return sorted(
        index
        for index in layout.free_gpus
        if layout.gpu_zone[index] not in shut
        and not (host_request.gpus and 0 < layout.gpus[index].vram < least)
    )


def offers(
    layout: HostUsage, host_request: HostRequest, shut: frozenset[int], gpus: Sequence[int]
) -> list[NumaOffer]:
    """One for each NUMA node that is open to the pod, by id; `gpus` are the usable ones."""
    here: dict[int | None, list[int]] = {}
    for index in gpus:
        here.setdefault(layout.gpu_zone[index], []).append(index)
    found: list[NumaOffer] = []
    for zone, room in layout.rooms.items():
        if zone in shut:
            continue
        mine = here.get(zone, ())
        found.append(
            NumaOffer(
                zone,
                max(0, room.cpu - layout.floating_cpu),
                max(0, room.memory - layout.floating_memory),
                mine,
                max(0, len(mine) - layout.floating_gpus),
                zone in host_request.prefer,
                _pages(layout, room, host_request) if host_request.hugepages else (),
            )
        )
    return found


def _crowded(room: NumaUsage, host_request: HostRequest, gang: GangId) -> bool:
    """A mate is here, and one of the two wants to be apart."""
    return gang in room.apart or (host_request.apart and gang in room.bound_members)


def _pages(layout: HostUsage, room: NumaUsage, host_request: HostRequest) -> Hugepages:
    return tuple(
        (name, max(0, room.hugepages.get(name, 0) - layout.floating_hugepages.get(name, 0)))
        for name, _ in host_request.hugepages
    )


def holds(group: Sequence[NumaOffer], want: AlignedAmounts) -> bool:
    if len(group) == 1 and not want.hugepages:
        one = group[0]
        return one.cpu >= want.cpu and one.memory >= want.memory and one.spare >= want.gpus
    return (
        sum(offer.cpu for offer in group) >= want.cpu
        and sum(offer.memory for offer in group) >= want.memory
        and (not want.gpus or sum(offer.spare for offer in group) >= want.gpus)
        and all(
            sum(dict(offer.hugepages).get(name, 0) for offer in group) >= count
            for name, count in want.hugepages
        )
    )
