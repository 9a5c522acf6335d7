"""
Choosing NUMA nodes and GPUs for a pod on one node, given what is free there.

    policy        NUMA nodes it takes                                     when that cannot be
    none, unset   the fewest that have room now                           place left to the host
    best-effort   the same                                                place left to the host
    restricted    as few as an empty host would need                      the node is refused
    single-numa   exactly one                                             the node is refused
    isolated      as `restricted`, among those that nobody shares         the node is refused

Ids to avoid are closed to the pod; preferred ids win among equals in number. NUMA nodes held by an
isolated pod are closed to everybody else, and then nobody's place is left to the host.
Pure: nothing is taken by choosing. Comparing different hosts is the planner's work.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Final

from policies import vocabulary

from .assignment import NOWHERE, Assignment, Share
from .layout import Layout

# Hosts have up to 16 NUMA nodes; beyond this many combinations of one width the rest is not tried.
_MOST_TRIED: Final = 2000

NO_TOPOLOGY: Final = "node(s) had no NUMA topology"
TOO_WIDE: Final = "node(s) could not hold the pod on the fewest NUMA nodes"
NONE_UNSHARED: Final = "node(s) had no unshared NUMA node with sufficient capacity"
HELD_BY_ISOLATED: Final = "node(s) had NUMA nodes held by isolated pods"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod wants of a host's inside. `aligned` says which amounts must sit together."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    policy: str = "none"
    aligned: frozenset[str] = frozenset({"cpu", "memory", "gpu"})
    prefer: tuple[int, ...] = ()
    avoid: tuple[int, ...] = ()
    by_default: bool = False
    """The policy came from a default: a host that tells no NUMA nodes counts as one."""

    @property
    def needs_topology(self) -> bool:
        return self.strict and not self.by_default

    @property
    def strict(self) -> bool:
        return self.policy in vocabulary.NUMA_STRICT_POLICIES

    @property
    def isolated(self) -> bool:
        return self.policy == "isolated"


ASK_NOTHING: Final = Ask()


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why the node is refused."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one NUMA node could give to this pod."""

    zone: int
    cpu: int
    memory: int
    gpus: tuple[int, ...]
    preferred: bool


def choose(layout: Layout, ask: Ask) -> Assignment | Misfit:
    """The best assignment by the pod's policy, or why there is none."""
    want = _aligned(ask)
    offers = _offers(layout, ask)
    found: Assignment | None = None
    for width in _widths(layout, ask, want):
        found = _narrowest(layout, ask, want, offers, width)
        if found is not None:
            return found
    if ask.strict:
        return Misfit(_reason(ask))
    if any(room.isolated for room in layout.rooms.values()):
        return Misfit(HELD_BY_ISOLATED)
    return NOWHERE


def _aligned(ask: Ask) -> Ask:
    """The ask without the amounts that may sit anywhere."""
    return Ask(
        cpu=ask.cpu if "cpu" in ask.aligned else 0,
        memory=ask.memory if "memory" in ask.aligned else 0,
        gpus=ask.gpus if "gpu" in ask.aligned else 0,
        policy=ask.policy,
    )


def _reason(ask: Ask) -> str:
    if ask.policy == "single-numa":
        return vocabulary.NO_SINGLE_NUMA_NODE
    return NONE_UNSHARED if ask.isolated else TOO_WIDE


def _offers(layout: Layout, ask: Ask) -> list[_Offer]:
    offers: list[_Offer] = []
    for zone, room in sorted(layout.rooms.items()):
        shared = room.tenants > 0 if ask.isolated else room.isolated > 0
        if zone in ask.avoid or shared:
            continue
        here = sorted(index for index in layout.free_gpus if layout.gpu_zone[index] == zone)
        offers.append(
            _Offer(
                zone=zone,
                cpu=room.cpu - layout.floating_cpu,
                memory=room.memory - layout.floating_memory,
                gpus=tuple(here[: max(0, len(here) - layout.floating_gpus)]),
                preferred=zone in ask.prefer,
            )
        )
    return offers


def _widths(layout: Layout, ask: Ask, want: Ask) -> Iterable[int]:
    """How many NUMA nodes may be tried, fewest first."""
    if ask.policy == "single-numa":
        return (1,)
    if ask.policy in ("restricted", "isolated"):
        least = _least_width(layout, want)
        return () if least is None else (least,)
    return range(1, len(layout.rooms) + 1)


def _least_width(layout: Layout, want: Ask) -> int | None:
    """How many NUMA nodes the pod needs on this host when it is empty."""
    zones = layout.topology.zones
    gpus = {
        zone.id: sum(1 for place in layout.gpu_zone.values() if place == zone.id) for zone in zones
    }
    for width in range(1, len(zones) + 1):
        for group in islice(combinations(zones, width), _MOST_TRIED):
            if (
                sum(zone.cpu for zone in group) >= want.cpu
                and sum(zone.memory for zone in group) >= want.memory
                and sum(gpus[zone.id] for zone in group) >= want.gpus
            ):
                return width
    return None


def _narrowest(
    layout: Layout, ask: Ask, want: Ask, offers: Sequence[_Offer], width: int
) -> Assignment | None:
    """The tightest group of `width` NUMA nodes; preferred ids first, then the lowest ids."""
    fitting = [
        group for group in islice(combinations(offers, width), _MOST_TRIED) if _holds(group, want)
    ]
    if not fitting:
        return None
    best = min(fitting, key=_tightness)
    loose = () if "gpu" in ask.aligned else _any_gpus(layout, ask.gpus)
    return None if loose is None else _split(best, want, loose, isolated=ask.isolated)


def _holds(group: Sequence[_Offer], want: Ask) -> bool:
    return (
        sum(max(0, offer.cpu) for offer in group) >= want.cpu
        and sum(max(0, offer.memory) for offer in group) >= want.memory
        and sum(len(offer.gpus) for offer in group) >= want.gpus
    )


def _tightness(group: Sequence[_Offer]) -> tuple[int, int, int, int, tuple[int, ...]]:
    """The asked amounts are the same for every group, so the free sums order the leftovers."""
    return (
        -sum(offer.preferred for offer in group),
        sum(len(offer.gpus) for offer in group),
        sum(offer.cpu for offer in group),
        sum(offer.memory for offer in group),
        tuple(offer.zone for offer in group),
    )


def _any_gpus(layout: Layout, count: int) -> tuple[int, ...] | None:
    """GPUs from anywhere, lowest index first; none by index where none are known by index."""
    if not layout.gpu_zone:
        return ()
    free = sorted(layout.free_gpus)
    return tuple(free[:count]) if len(free) - layout.floating_gpus >= count else None


def _split(
    group: Sequence[_Offer], want: Ask, loose: tuple[int, ...], *, isolated: bool
) -> Assignment:
    cpu, memory, gpus = want.cpu, want.memory, want.gpus
    shares: list[Share] = []
    taken: list[int] = list(loose)
    for offer in group:
        share = Share(offer.zone, min(cpu, max(0, offer.cpu)), min(memory, max(0, offer.memory)))
        mine = offer.gpus[:gpus]
        cpu, memory, gpus = cpu - share.cpu, memory - share.memory, gpus - len(mine)
        taken += mine
        shares.append(share)
    return Assignment(tuple(shares), tuple(sorted(taken)), isolated)
