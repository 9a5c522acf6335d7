"""
What each NUMA node of a host can offer to a pod, and the amounts that the pod must align.

Closed to the pod are: ids that it avoids; NUMA nodes of isolated pods; for an isolated pod, NUMA
nodes with any pod; NUMA nodes of other gang members, where one of the two must be alone. GPUs are
usable when they are free, large enough, and on no closed NUMA node. Floating amounts count against
every NUMA node. Pure views of a `HostUsage`; `allocator` chooses among the offers.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from scheduler.model.numa_request import HostRequest, Hugepages
from scheduler.plugins.numa.host_usage import GangId, HostUsage, NumaUsage

_NO_ZONES: Final[frozenset[int]] = frozenset()
VRAM_TOLERANCE: Final = 0.98  # a GPU sold as 80 GB reports a little less than 80Gi


class AlignedAmounts(NamedTuple):
    """The amounts that must be on the same NUMA nodes."""

    cpu: int
    memory: int
    gpus: int
    hugepages: Hugepages = ()


class NumaOffer(NamedTuple):
    """What one NUMA node can offer; no amount is below zero."""

    zone: int
    cpu: int
    memory: int
    gpus: Sequence[int]
    spare: int
    """GPUs that are certainly free: floating pods may use any."""
    preferred: bool = False
    hugepages: Hugepages = ()


def aligned_amounts(host: HostUsage, host_request: HostRequest) -> AlignedAmounts:
    """
    The request without amounts that may be anywhere, or whose place the host does not report.

    GPUs of unknown place must be beside the CPUs only under a strict policy of the user's choice.
    """
    gpus = "gpu" in host_request.aligned and (
        host.gpus_located or (host_request.strict and not host_request.by_default)
    )
    return AlignedAmounts(
        cpu=host_request.cpu if "cpu" in host_request.aligned else 0,
        memory=host_request.memory if "memory" in host_request.aligned else 0,
        gpus=host_request.gpus if gpus else 0,
        hugepages=tuple(
            (name, count)
            for name, count in host_request.hugepages
            if name in host_request.aligned and name in host.located_hugepages
        ),
    )


def closed_numa_nodes(
    host: HostUsage, host_request: HostRequest, gang: GangId | None
) -> frozenset[int]:
    """The NUMA nodes that the pod may not use."""
    zones = [
        zone
        for zone, numa_node in host.numa_nodes.items()
        if (numa_node.pods if host_request.isolated else numa_node.isolated)
        or (gang is not None and _crowded(numa_node, host_request, gang))
    ]
    return frozenset((*zones, *host_request.avoid)) if zones or host_request.avoid else _NO_ZONES


def usable_gpus(
    host: HostUsage, host_request: HostRequest, closed: frozenset[int], vram: int
) -> Sequence[int]:
    """The free GPUs that are large enough; the node's VRAM holds for a GPU that reports none."""
    if not closed and not vram:
        return sorted(host.free_gpus)
    least = int(vram * VRAM_TOLERANCE)
    return sorted(
        index
        for index in host.free_gpus
        if host.gpu_zone[index] not in closed
        and not (host_request.gpus and 0 < host.gpus[index].vram < least)
    )


def offers(
    host: HostUsage, host_request: HostRequest, closed: frozenset[int], gpus: Sequence[int]
) -> list[NumaOffer]:
    """One for each NUMA node that is open to the pod, by id; `gpus` are the usable ones."""
    here: dict[int | None, list[int]] = {}
    for index in gpus:
        here.setdefault(host.gpu_zone[index], []).append(index)
    open_offers: list[NumaOffer] = []
    for zone, numa_node in host.numa_nodes.items():
        if zone in closed:
            continue
        zone_gpus = here.get(zone, ())
        open_offers.append(
            NumaOffer(
                zone,
                max(0, numa_node.cpu - host.floating_cpu),
                max(0, numa_node.memory - host.floating_memory),
                zone_gpus,
                max(0, len(zone_gpus) - host.floating_gpus),
                zone in host_request.prefer,
                _pages(host, numa_node, host_request) if host_request.hugepages else (),
            )
        )
    return open_offers


def _crowded(numa_node: NumaUsage, host_request: HostRequest, gang: GangId) -> bool:
    """Another member is here, and one of the two must be alone."""
    return gang in numa_node.apart or (host_request.apart and gang in numa_node.members)


def _pages(host: HostUsage, numa_node: NumaUsage, host_request: HostRequest) -> Hugepages:
    return tuple(
        (name, max(0, numa_node.hugepages.get(name, 0) - host.floating_hugepages.get(name, 0)))
        for name, _ in host_request.hugepages
    )


def suffices(group: Sequence[NumaOffer], want: AlignedAmounts) -> bool:
    if len(group) == 1 and not want.hugepages:
        offer = group[0]
        return offer.cpu >= want.cpu and offer.memory >= want.memory and offer.spare >= want.gpus
    return (
        sum(offer.cpu for offer in group) >= want.cpu
        and sum(offer.memory for offer in group) >= want.memory
        and (not want.gpus or sum(offer.spare for offer in group) >= want.gpus)
        and all(
            sum(dict(offer.hugepages).get(name, 0) for offer in group) >= count
            for name, count in want.hugepages
        )
    )
