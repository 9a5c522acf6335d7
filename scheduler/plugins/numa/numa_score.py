"""
The score of some NUMA nodes of one host for a pod: 0 to 100, higher is better.

    40 %  fit         100 - |utilisation after placement - 60|; a fifth more on preferred ids
    25 %  bandwidth   100 - the pod's part of the memory, in proportion to the best of the host
    20 %  distance    100 - (average distance - 10) * 5 * weight / 50
    15 %  gang        packed: 100 beside another member, 20 elsewhere; balanced: 20 less for each
                      member; isolated: 0 beside another member, 100 elsewhere

Utilisation weighs CPU 60 and memory 40, where both are requested. Bandwidth counts only for a
memory-intensive pod on a host that reports it. Distance is the average to the other NUMA nodes of
the host for one NUMA node, and between them for several. An unknown value, or one that does not
concern the pod, is neutral: 50. Members on other hosts do not count.

`score` compares NUMA nodes of one host; `host_score` has the same for all hosts at once. Preferred
ids and gang spread are the user's preferences: `allocator` ranks by these first.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa.host_usage import GangId, HostUsage

FIT: Final = 0.40
BANDWIDTH: Final = 0.25
DISTANCE: Final = 0.20
GANG: Final = 0.15

NEUTRAL: Final = 50.0
BEST: Final = 100.0
BEST_USE: Final = 60.0
LOCAL: Final = 10  # the distance of a NUMA node to itself

PREFERRED: Final = 1.2
CPU_WEIGHT: Final = 0.6
MEMORY_WEIGHT: Final = 0.4


def score(
    host: HostUsage, host_request: HostRequest, zones: Sequence[int], gang: GangId | None = None
) -> float:
    """The score of these NUMA nodes for a pod that is not placed yet; neutral where none are."""
    if not zones:
        return NEUTRAL
    total = (
        FIT * _fit(host, host_request, zones)
        + BANDWIDTH * _bandwidth(host, host_request, zones)
        + DISTANCE * _distance(host, host_request, zones)
        + GANG * _gang(host, host_request, zones, gang)
    )
    return round(total, 6)


def _fit(host: HostUsage, host_request: HostRequest, zones: Sequence[int]) -> float:
    numa_nodes, sizes = [host.numa_nodes[id_] for id_ in zones], [host.zones[id_] for id_ in zones]
    cpu, memory = sum(zone.cpu for zone in sizes), sum(zone.memory for zone in sizes)
    parts: list[tuple[float, float]] = []  # (weight, part in use afterwards)
    if host_request.cpu and cpu:
        parts.append(
            (
                CPU_WEIGHT,
                (cpu - sum(numa_node.cpu for numa_node in numa_nodes) + host_request.cpu) / cpu,
            )
        )
    if host_request.memory and memory:
        free = sum(numa_node.memory for numa_node in numa_nodes)
        parts.append((MEMORY_WEIGHT, (memory - free + host_request.memory) / memory))
    if not parts:
        return NEUTRAL
    used = sum(weight * part for weight, part in parts) / sum(weight for weight, _ in parts)
    points = max(0.0, BEST - abs(min(1.0, used) * 100 - BEST_USE))
    preferred = bool(host_request.prefer) and all(id_ in host_request.prefer for id_ in zones)
    return min(BEST, points * PREFERRED) if preferred else points


def _bandwidth(host: HostUsage, host_request: HostRequest, zones: Sequence[int]) -> float:
    best = max(zone.bandwidth for zone in host.topology.zones)
    chosen = [host.zones[id_] for id_ in zones]
    memory = sum(zone.memory for zone in chosen)
    if not host_request.intensive or not memory or not all(zone.bandwidth for zone in chosen):
        return NEUTRAL
    share = sum(zone.bandwidth for zone in chosen) / (best * len(chosen))
    return max(0.0, BEST - 100 * host_request.memory / memory) * share


def average_distance(host: HostUsage, own: int) -> float | None:
    """The average distance of a NUMA node to the others of its host; None: unknown."""
    distances = [distance for other, distance in host.zones[own].distances if other != own]
    if not distances:
        return LOCAL if len(host.numa_nodes) == 1 else None
    return sum(distances) / len(distances)


def _distance(host: HostUsage, host_request: HostRequest, zones: Sequence[int]) -> float:
    if len(zones) > 1:
        pairs = list(combinations(zones, 2))
        distances = (dict(host.zones[a].distances).get(b) for a, b in pairs)
        known = [distance for distance in distances if distance is not None]
        average = sum(known) / len(known) if known else None
    else:
        average = average_distance(host, zones[0])
    if average is None:
        return NEUTRAL
    return min(BEST, max(0.0, BEST - (average - LOCAL) * 5 * host_request.distance / 50))


def _gang(
    host: HostUsage, host_request: HostRequest, zones: Sequence[int], gang: GangId | None
) -> float:
    if gang is None or not any(gang in numa_node.members for numa_node in host.numa_nodes.values()):
        return NEUTRAL
    here = members_on(host, zones, gang)
    if host_request.spread == "balanced":
        return max(0.0, BEST - 20.0 * here)
    if host_request.spread == "isolated":
        return 0.0 if here else BEST
    return BEST if here else 20.0


def members_on(host: HostUsage, zones: Sequence[int], gang: GangId | None) -> int:
    """The number of members of the gang on these NUMA nodes."""
    return (
        sum(host.numa_nodes[id_].members.get(gang, 0) for id_ in zones) if gang is not None else 0
    )
