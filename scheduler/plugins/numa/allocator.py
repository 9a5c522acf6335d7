"""
Choosing NUMA nodes and GPUs for a pod on one node, given what is free there.

    policy        NUMA nodes it takes                                     when that cannot be
    none, unset   the fewest that have room now                           place left to the host
    best-effort   the same                                                place left to the host
    restricted    as few as an empty host would need                      the node is refused
    single-numa   exactly one                                             the node is refused
    isolated      as `restricted`, among those that nobody shares         the node is refused

Ids to avoid are closed to the pod, as are NUMA nodes of mates when the gang's members are to be
apart; where that leaves nothing, or an isolated pod holds a part of the host, nobody's place is
left to the host. Among equals in number the order is

    1  GPUs of one island before one switch before one NUMA node; no untouched island is broken
    2  preferred ids
    3  mates: packed beside them, balanced away from them
    4  what is left of the island (`islands`)
    5  with a NUMA policy the `scoring`, which likes NUMA nodes three fifths in use; without one the
       tightest, which keeps NUMA nodes free for those who want a whole one
    6  the lowest ids

Pods without GPUs go where the fewest GPUs are free, before 5. Where the kubelet's Topology Manager
could refuse the pod, only places that it admits are chosen, and 4 and 5 are left to it (`manager`).
Pure: nothing is taken by choosing. Comparing different hosts is the planner's work.
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
    closed,
    holds,
    offers,
    usable_gpus,
    wanted,
)
from scheduler.plugins.numa.gpu_islands import BREAKS, NOTHING, PickCost, grade, pick, settle
from scheduler.plugins.numa.host_usage import GangId, HostUsage
from scheduler.plugins.numa.numa_score import score

# Hosts have up to 16 NUMA nodes; beyond this many combinations of one width the rest is not tried.
_MOST_TRIED: Final = 2000
_MOST_KEPT: Final = 64

NO_TOPOLOGY: Final = "node(s) had no NUMA topology"
TOO_WIDE: Final = "node(s) could not hold the pod on the fewest NUMA nodes"
NONE_UNSHARED: Final = "node(s) had no unshared NUMA node with sufficient capacity"
HELD_BY_ISOLATED: Final = "node(s) had NUMA nodes held by isolated pods"
AVOIDED: Final = "node(s) had room only on NUMA nodes that the pod avoids"
APART: Final = "node(s) had no NUMA node with room and without another member of the pod group"

WITH_SHORTAGE: Final = frozenset({vocabulary.NO_SINGLE_NUMA_NODE, TOO_WIDE, NONE_UNSHARED})
"""Reasons that are reported with the request and the largest free capacity."""

Rank = tuple[Any, ...]
_Graded = tuple[Sequence[NumaOffer], PickCost]


class _Allocation(NamedTuple):
    """One pod before one host."""

    layout: HostUsage
    host_request: HostRequest
    gang: GangId | None
    want: AlignedAmounts
    gpus: Sequence[int]
    """Those that the pod may take."""
    offers: Sequence[NumaOffer]
    manager: TopologyManager | None


def choose(
    layout: HostUsage, host_request: HostRequest, *, gang: GangId | None = None, vram: int = 0
) -> Assignment | NumaMisfit:
    """The best assignment by the pod's policy, or why there is none; `vram` is that of each GPU."""
    shut = closed(layout, host_request, gang)
    gpus = usable_gpus(layout, host_request, shut, vram) if layout.gpus else ()
    if (
        vram
        and host_request.gpus
        and layout.gpus
        and len(gpus) < host_request.gpus <= len(layout.free_gpus)
    ):
        return NumaMisfit(_small(host_request, vram))
    if not layout.rooms:
        return (
            NumaMisfit(NO_TOPOLOGY)
            if host_request.needs_topology
            else _gpus_alone(layout, host_request, gpus)
        )
    case = _Allocation(
        layout,
        host_request,
        gang,
        wanted(layout, host_request),
        gpus,
        offers(layout, host_request, shut, gpus),
        kubelet.of(layout, host_request),
    )
    if not (host_request.apart and gang in layout.adrift):
        for width in _widths(case):
            found = _narrowest(case, width)
            if found is not None:
                return found
    return _otherwise(case)


def _otherwise(case: _Allocation) -> Assignment | NumaMisfit:
    """No NUMA nodes can be named: the place is left to the host, unless somebody minds."""
    layout, host_request = case.layout, case.host_request
    if case.manager is not None and not kubelet.admits(
        case.manager, layout, host_request, case.offers
    ):
        return NumaMisfit(kubelet.reason(case.manager))
    if host_request.apart:
        return NumaMisfit(APART)
    if host_request.strict:
        return NumaMisfit(_reason(host_request))
    if any(room.isolated for room in layout.rooms.values()):
        return NumaMisfit(HELD_BY_ISOLATED)
    if any(zone in layout.rooms for zone in host_request.avoid):
        return NumaMisfit(AVOIDED)
    if case.gang is not None and any(case.gang in room.apart for room in layout.rooms.values()):
        return NumaMisfit(APART)
    return _gpus_alone(layout, host_request, case.gpus)


def _reason(host_request: HostRequest) -> str:
    if host_request.policy == "single-numa":
        return vocabulary.NO_SINGLE_NUMA_NODE
    return NONE_UNSHARED if host_request.isolated else TOO_WIDE


def _small(host_request: HostRequest, vram: int) -> str:
    return (
        f"{vocabulary.INSUFFICIENT_VRAM}: need {quantity.binary(vram)} a GPU, "
        f"fewer than {host_request.gpus} free GPUs of the node have it"
    )


# --- how many NUMA nodes ---


def _widths(case: _Allocation) -> Iterable[int]:
    """How many NUMA nodes may be tried, fewest first."""
    if case.host_request.policy == "single-numa":
        return (1,)
    if case.host_request.policy in ("restricted", "isolated"):
        least = _least_width(case.layout, case.want)
        return () if least is None else (least,)
    return range(1, len(case.offers) + 1)


def _least_width(layout: HostUsage, want: AlignedAmounts) -> int | None:
    """How many NUMA nodes the pod needs on this host when it is empty."""
    key = (want.cpu, want.memory, want.gpus, want.hugepages)
    if key not in layout.least:
        if len(layout.least) >= _MOST_KEPT:
            layout.least.clear()
        empty = [
            NumaOffer(
                zone.id, zone.cpu, zone.memory, (), layout.gpus_of[zone.id], False, zone.hugepages
            )
            for zone in layout.topology.zones
        ]
        layout.least[key] = next(
            (
                width
                for width in range(1, len(empty) + 1)
                for group in islice(combinations(empty, width), _MOST_TRIED)
                if holds(group, want)
            ),
            None,
        )
    return layout.least[key]


def _could_hold(found: Sequence[NumaOffer], want: AlignedAmounts, width: int) -> bool:
    """Whether the largest of the offers suffice, resource by resource: worth combining."""
    return (
        sum(sorted(offer.cpu for offer in found)[-width:]) >= want.cpu
        and sum(sorted(offer.memory for offer in found)[-width:]) >= want.memory
        and sum(sorted(offer.spare for offer in found)[-width:]) >= want.gpus
    )


# --- which NUMA nodes ---


def _narrowest(case: _Allocation, width: int) -> Assignment | None:
    """The best group of `width` NUMA nodes."""
    graded = [
        (group, found)
        for group in _groups(case, width)
        if (found := _graded(case, group)) is not None
    ]
    if not graded:
        return None
    if len(graded) > 1:
        graded = _least(graded, [_wishes(case, group, found) for group, found in graded])
    if len(graded) > 1:
        graded = _least(graded, [_worth(case, group) for group, _ in graded])
    group, found = graded[0]
    layout = case.layout
    count = case.host_request.gpus if layout.gpus else 0
    picked = settle(layout.tiers, found, count, layout.free_gpus)
    return _split(case, group, picked.indices)


def _least(graded: list[_Graded], ranks: list[Rank]) -> list[_Graded]:
    """Those of the least rank; dear ranks are made for these alone."""
    best = min(ranks)
    return [one for one, rank in zip(graded, ranks, strict=True) if rank == best]


def _groups(case: _Allocation, width: int) -> list[Sequence[NumaOffer]]:
    """The groups that hold what is wanted, and that the kubelet admits."""
    want = case.want
    if width > 1 and not _could_hold(case.offers, want, width):
        return []
    tried = islice(combinations(case.offers, width), _MOST_TRIED)
    found: list[Sequence[NumaOffer]] = [group for group in tried if holds(group, want)]
    if case.manager is not None:
        found = [
            group
            for group in found
            if kubelet.admits(case.manager, case.layout, case.host_request, group)
        ]
    return found


def _graded(case: _Allocation, group: Sequence[NumaOffer]) -> PickCost | None:
    """GPUs beside the CPUs, or from anywhere where they may sit anywhere."""
    layout = case.layout
    if not case.host_request.gpus or not layout.gpus:
        return NOTHING
    usable = case.gpus
    if case.want.gpus:
        near = [index for offer in group for index in offer.gpus]
        usable = near if len(group) == 1 else sorted(near)
    return grade(
        layout.tiers,
        case.host_request.gpus,
        usable=usable,
        free=layout.free_gpus,
        floating=layout.floating_gpus,
    )


def _wishes(case: _Allocation, group: Sequence[NumaOffer], found: PickCost) -> Rank:
    """What costs little to know; the smaller the better."""
    first = (found.level, found.harm == BREAKS, -sum(offer.preferred for offer in group))
    beside = _beside(case, group) if case.gang is not None else 0
    if case.manager is not None:
        return *first, beside, tuple(offer.zone for offer in group)
    spare = 0 if case.host_request.gpus else sum(offer.spare for offer in group)
    return *first, beside, found.harm, found.left, spare


def _worth(case: _Allocation, group: Sequence[NumaOffer]) -> Rank:
    """Ends in the ids, so that it is total."""
    zones = tuple(offer.zone for offer in group)
    how_well = 0.0
    if case.host_request.policy != "none":
        how_well = -score(case.layout, case.host_request, zones, case.gang)
    return (
        how_well,
        sum(offer.cpu for offer in group),
        sum(offer.memory for offer in group),
        zones,
    )


def _beside(case: _Allocation, group: Sequence[NumaOffer]) -> int:
    """How many mates are there, as the gang likes it: fewer is better than more."""
    rooms = [case.layout.rooms[offer.zone] for offer in group]
    if case.host_request.spread == "packed":
        return -sum(case.gang in room.bound_members for room in rooms)
    return sum(room.bound_members.get(case.gang, 0) for room in rooms)


# --- the assignment ---


def _gpus_alone(layout: HostUsage, host_request: HostRequest, gpus: Sequence[int]) -> Assignment:
    """GPUs by index, where they are known by index, and the rest left to the host."""
    if not host_request.gpus or not layout.gpus:
        return NO_ASSIGNMENT
    picked = pick(
        layout.tiers,
        host_request.gpus,
        usable=gpus,
        free=layout.free_gpus,
        floating=layout.floating_gpus,
    )
    return NO_ASSIGNMENT if picked is None else Assignment(gpus=picked.indices)


def _split(case: _Allocation, group: Sequence[NumaOffer], gpus: tuple[int, ...]) -> Assignment:
    cpu, memory = case.want.cpu, case.want.memory
    pages = dict(case.want.hugepages)
    if len(group) == 1 and not pages:
        share = NumaShare(group[0].zone, cpu, memory)
        return Assignment((share,), gpus, case.host_request.isolated)
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
    return Assignment(tuple(shares), gpus, case.host_request.isolated)
