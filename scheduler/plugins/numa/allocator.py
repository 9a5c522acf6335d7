"""
The choice of NUMA nodes and GPUs for a pod on one node.

    policy        NUMA nodes it takes                                     otherwise
    none, unset   the fewest that have capacity now                       place left to the host
    best-effort   the same                                                place left to the host
    restricted    as few as an empty host would need                      the node is rejected
    single-numa   exactly one                                             the node is rejected
    isolated      as `restricted`, among those without other pods         the node is rejected

Closed to the pod are the ids that it avoids, and NUMA nodes of other gang members that must be
alone. Where that leaves none, or an isolated pod is on the host, no place is left to the host.
Among groups of equal size the order is

    1  GPUs of one island before one switch before one NUMA node; no untouched island is broken
    2  preferred ids
    3  other gang members: packed beside them, balanced away from them
    4  what is left of the island (`gpu_islands`)
    5  with a NUMA policy `numa_score`, which is best at 60 % utilisation; without one the tightest,
       which keeps NUMA nodes free for pods that need a whole one
    6  the lowest ids

Pods without GPUs go where the fewest GPUs are free, before 5. Where the kubelet's Topology Manager
could reject the pod, only NUMA nodes that it admits are chosen, and the GPUs that it takes there; 4
and 5 are left to the kubelet (`topology_manager`). Pure: choosing charges nothing. The planner
compares different hosts.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations, islice
from typing import Any, Final, NamedTuple

from policies import quantity, vocabulary
from policies.hosts.topology import TopologyManager
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment, NumaMisfit, NumaShare
from scheduler.model.numa_request import HostRequest
from scheduler.plugins.numa import topology_manager as kubelet
from scheduler.plugins.numa.candidates import (
    AlignedAmounts,
    NumaOffer,
    aligned_amounts,
    closed_numa_nodes,
    offers,
    suffices,
    usable_gpus,
)
from scheduler.plugins.numa.gpu_islands import (
    BREAKS,
    NOTHING,
    PickCost,
    finish_pick,
    pick,
    pick_cost,
)
from scheduler.plugins.numa.host_usage import GangId, HostUsage
from scheduler.plugins.numa.numa_score import score

# Hosts have up to 16 NUMA nodes; beyond this many combinations of one width the rest is not tried.
_MOST_TRIED: Final = 2000
_MOST_KEPT: Final = 64

NO_TOPOLOGY: Final = "node(s) had no NUMA topology"
TOO_WIDE: Final = "node(s) could not hold the pod on the fewest NUMA nodes"
NONE_UNSHARED: Final = "node(s) had no unshared NUMA node with sufficient capacity"
HELD_BY_ISOLATED: Final = "node(s) had NUMA nodes held by isolated pods"
AVOIDED: Final = "node(s) had capacity only on NUMA nodes that the pod avoids"
APART: Final = "node(s) had no NUMA node with capacity and without another member of the pod group"

WITH_SHORTAGE: Final = frozenset({vocabulary.NO_SINGLE_NUMA_NODE, TOO_WIDE, NONE_UNSHARED})
"""Reasons that are reported with the request and the largest free capacity."""

Rank = tuple[Any, ...]
# A group of NUMA nodes, and what the kubelet takes of it; None where it rejects no pod.
_Candidate = tuple[Sequence[NumaOffer], kubelet.Affinity | None]
_Graded = tuple[_Candidate, PickCost]


class _Allocation(NamedTuple):
    """One pod on one host."""

    host: HostUsage
    host_request: HostRequest
    gang: GangId | None
    want: AlignedAmounts
    gpus: Sequence[int]
    """GPUs that the pod may take."""
    offers: Sequence[NumaOffer]
    manager: TopologyManager | None


def choose(
    host: HostUsage, host_request: HostRequest, *, gang: GangId | None = None, vram: int = 0
) -> Assignment | NumaMisfit:
    """The best assignment by the pod's policy, or why there is none; `vram` is that of each GPU."""
    closed = closed_numa_nodes(host, host_request, gang)
    gpus = usable_gpus(host, host_request, closed, vram) if host.gpus else ()
    if (
        vram
        and host_request.gpus
        and host.gpus
        and len(gpus) < host_request.gpus <= len(host.free_gpus)
    ):
        return NumaMisfit(_vram_reason(host_request, vram))
    if not host.numa_nodes:
        return (
            NumaMisfit(NO_TOPOLOGY)
            if host_request.needs_topology
            else _gpus_alone(host, host_request, gpus)
        )
    allocation = _Allocation(
        host,
        host_request,
        gang,
        aligned_amounts(host, host_request),
        gpus,
        offers(host, host_request, closed, gpus),
        kubelet.of(host, host_request),
    )
    if not (host_request.apart and gang in host.unlocated_members):
        for width in _widths(allocation):
            assignment = _narrowest(allocation, width)
            if assignment is not None:
                return assignment
    return _without_numa_nodes(allocation)


def _without_numa_nodes(allocation: _Allocation) -> Assignment | NumaMisfit:
    """No NUMA nodes suit: the place is left to the host, unless that breaks a constraint."""
    host, host_request = allocation.host, allocation.host_request
    usable = allocation.gpus
    if allocation.manager is not None:
        affinity = kubelet.affinity(allocation.manager, host, host_request, allocation.offers)
        if affinity is None:
            return NumaMisfit(kubelet.reason(allocation.manager))
        usable = _kubelet_gpus(allocation, usable, affinity)
    if host_request.apart:
        return NumaMisfit(APART)
    if host_request.strict:
        return NumaMisfit(_reason(host_request))
    if any(numa_node.isolated for numa_node in host.numa_nodes.values()):
        return NumaMisfit(HELD_BY_ISOLATED)
    if any(zone in host.numa_nodes for zone in host_request.avoid):
        return NumaMisfit(AVOIDED)
    if allocation.gang is not None and any(
        allocation.gang in numa_node.apart for numa_node in host.numa_nodes.values()
    ):
        return NumaMisfit(APART)
    return _gpus_alone(host, host_request, usable)


def _reason(host_request: HostRequest) -> str:
    if host_request.policy == "single-numa":
        return vocabulary.NO_SINGLE_NUMA_NODE
    return NONE_UNSHARED if host_request.isolated else TOO_WIDE


def _vram_reason(host_request: HostRequest, vram: int) -> str:
    return (
        f"{vocabulary.INSUFFICIENT_VRAM}: need {quantity.binary(vram)} per GPU, "
        f"fewer than {host_request.gpus} free GPUs of the node have it"
    )


# --- how many NUMA nodes ---


def _widths(allocation: _Allocation) -> Iterable[int]:
    """How many NUMA nodes may be tried, fewest first."""
    if allocation.host_request.policy == "single-numa":
        return (1,)
    if allocation.host_request.policy in ("restricted", "isolated"):
        least = _least_width(allocation.host, allocation.want)
        return () if least is None else (least,)
    return range(1, len(allocation.offers) + 1)


def _least_width(host: HostUsage, want: AlignedAmounts) -> int | None:
    """How many NUMA nodes the pod needs on this host when it is empty."""
    key = (want.cpu, want.memory, want.gpus, want.hugepages)
    if key not in host.fewest:
        if len(host.fewest) >= _MOST_KEPT:
            host.fewest.clear()
        empty = [
            NumaOffer(
                zone.id, zone.cpu, zone.memory, (), host.gpus_of[zone.id], False, zone.hugepages
            )
            for zone in host.topology.zones
        ]
        host.fewest[key] = next(
            (
                width
                for width in range(1, len(empty) + 1)
                for group in islice(combinations(empty, width), _MOST_TRIED)
                if suffices(group, want)
            ),
            None,
        )
    return host.fewest[key]


def _could_hold(offers: Sequence[NumaOffer], want: AlignedAmounts, width: int) -> bool:
    """Whether the largest of the offers suffice, resource by resource: worth combining."""
    return (
        sum(sorted(offer.cpu for offer in offers)[-width:]) >= want.cpu
        and sum(sorted(offer.memory for offer in offers)[-width:]) >= want.memory
        and sum(sorted(offer.spare for offer in offers)[-width:]) >= want.gpus
    )


# --- which NUMA nodes ---


def _narrowest(allocation: _Allocation, width: int) -> Assignment | None:
    """The best group of `width` NUMA nodes."""
    graded = [
        (candidate, cost)
        for candidate in _candidates(allocation, width)
        if (cost := _graded(allocation, candidate)) is not None
    ]
    if not graded:
        return None
    if len(graded) > 1:
        graded = _least(
            graded,
            [_preference_rank(allocation, group, cost) for (group, _), cost in graded],
        )
    if len(graded) > 1:
        graded = _least(graded, [_score_rank(allocation, group) for (group, _), _ in graded])
    candidate, cost = graded[0]
    host = allocation.host
    count = allocation.host_request.gpus if host.gpus else 0
    picked = finish_pick(host.levels, cost, count, host.free_gpus)
    return _split(allocation, candidate, picked.indices)


def _least(graded: list[_Graded], ranks: list[Rank]) -> list[_Graded]:
    """The groups of the least rank; expensive ranks are computed for these alone."""
    best = min(ranks)
    return [entry for entry, rank in zip(graded, ranks, strict=True) if rank == best]


def _candidates(allocation: _Allocation, width: int) -> list[_Candidate]:
    """The groups that hold the aligned amounts, and that the kubelet admits."""
    want, manager = allocation.want, allocation.manager
    if width > 1 and not _could_hold(allocation.offers, want, width):
        return []
    tried = islice(combinations(allocation.offers, width), _MOST_TRIED)
    if manager is None:
        return [(group, None) for group in tried if suffices(group, want)]
    host, host_request = allocation.host, allocation.host_request
    return [
        (group, affinity)
        for group in tried
        if suffices(group, want)
        and (affinity := kubelet.affinity(manager, host, host_request, group)) is not None
    ]


def _graded(allocation: _Allocation, candidate: _Candidate) -> PickCost | None:
    """GPUs beside the CPUs, or any GPUs where they need not be aligned."""
    host = allocation.host
    if not allocation.host_request.gpus or not host.gpus:
        return NOTHING
    group, affinity = candidate
    usable = allocation.gpus
    if allocation.want.gpus:
        near = [index for offer in group for index in offer.gpus]
        usable = near if len(group) == 1 else sorted(near)
    if affinity is not None and not (allocation.want.gpus and len(group) == 1):
        usable = _kubelet_gpus(allocation, usable, affinity)
    return pick_cost(
        host.levels,
        allocation.host_request.gpus,
        usable=usable,
        free=host.free_gpus,
        floating=host.floating_gpus,
    )


def _kubelet_gpus(
    allocation: _Allocation, usable: Sequence[int], affinity: kubelet.Affinity
) -> Sequence[int]:
    """The GPUs among which the kubelet chooses; all where its NUMA nodes hold too few at once."""
    host = allocation.host
    near = [index for index in usable if host.gpu_zone[index] in affinity.gpu_zones]
    return near if len(near) - host.floating_gpus >= allocation.host_request.gpus else usable


def _preference_rank(allocation: _Allocation, group: Sequence[NumaOffer], cost: PickCost) -> Rank:
    """Ranks that are cheap to compute; smaller is better."""
    first = (cost.level, cost.harm == BREAKS, -sum(offer.preferred for offer in group))
    beside = _gang_rank(allocation, group) if allocation.gang is not None else 0
    if allocation.manager is not None:
        return *first, beside, tuple(offer.zone for offer in group)
    spare = 0 if allocation.host_request.gpus else sum(offer.spare for offer in group)
    return *first, beside, cost.harm, cost.left, spare


def _score_rank(allocation: _Allocation, group: Sequence[NumaOffer]) -> Rank:
    """The rest; ends in the ids, so that the order is total."""
    zones = tuple(offer.zone for offer in group)
    how_well = 0.0
    if allocation.host_request.policy != "none":
        how_well = -score(allocation.host, allocation.host_request, zones, allocation.gang)
    return (
        how_well,
        sum(offer.cpu for offer in group),
        sum(offer.memory for offer in group),
        zones,
    )


def _gang_rank(allocation: _Allocation, group: Sequence[NumaOffer]) -> int:
    """Members of the gang on these NUMA nodes, signed by its spread: smaller is better."""
    numa_nodes = [allocation.host.numa_nodes[offer.zone] for offer in group]
    if allocation.host_request.spread == "packed":
        return -sum(allocation.gang in numa_node.members for numa_node in numa_nodes)
    return sum(numa_node.members.get(allocation.gang, 0) for numa_node in numa_nodes)


# --- the assignment ---


def _gpus_alone(host: HostUsage, host_request: HostRequest, gpus: Sequence[int]) -> Assignment:
    """GPUs by index where the host reports them; the rest is left to the host."""
    if not host_request.gpus or not host.gpus:
        return NO_ASSIGNMENT
    picked = pick(
        host.levels,
        host_request.gpus,
        usable=gpus,
        free=host.free_gpus,
        floating=host.floating_gpus,
    )
    return NO_ASSIGNMENT if picked is None else Assignment(gpus=picked.indices)


def _split(allocation: _Allocation, candidate: _Candidate, gpus: tuple[int, ...]) -> Assignment:
    """As much as possible on each NUMA node, first on those from which the kubelet takes."""
    group, affinity = candidate
    cpu, memory = allocation.want.cpu, allocation.want.memory
    pages = dict(allocation.want.hugepages)
    if len(group) == 1 and not pages:
        share = NumaShare(group[0].zone, cpu, memory)
        return Assignment((share,), gpus, allocation.host_request.isolated)
    if affinity is not None:
        group = sorted(group, key=lambda offer: offer.zone not in affinity.zones)
    shares: list[NumaShare] = []
    for offer in group:
        share = NumaShare(
            offer.zone,
            min(cpu, offer.cpu),
            min(memory, offer.memory),
            tuple(
                (name, taken)
                for name, free in offer.hugepages
                if (taken := min(pages.get(name, 0), free))
            ),
        )
        cpu, memory = cpu - share.cpu, memory - share.memory
        for name, taken in share.hugepages:
            pages[name] -= taken
        shares.append(share)
    shares.sort(key=lambda share: share.zone)
    return Assignment(tuple(shares), gpus, allocation.host_request.isolated)
