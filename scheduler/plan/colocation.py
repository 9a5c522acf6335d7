"""
Gangs whose members must share a domain of a topology level: which domains, in which order.

    members ask ──▶ Gathering   the levels that all of them ask for together, the least fabric
    + bound mates ─▶ Share      one number a row; the gang stays among rows with the same one

The strictest member speaks for the gang: what one of them requires holds for all. Members that
have a node already pin the gang to their domain; where they stand in several, nobody can join them
without breaking the promise further, so nobody does. A domain is worth trying when it could hold
enough members by amounts alone: those that could hold most first, then those that need the fewest
nodes, then the tightest, so that larger domains stay whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints
from scheduler.model.fabric import NO_FABRIC
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.policy import TopologyLevel
from scheduler.plugins import fabric
from scheduler.plugins.placement_policy import PlacementPolicy

Mates = Sequence[tuple[Pod, str]]
"""Members of a gang that have a node, with its name."""

_OPEN: Final = -1  # any domain will do


@dataclass(frozen=True, slots=True)
class ColocationRequirement:
    """What a gang asks for as a whole."""

    levels: tuple[TopologyLevel, ...] = ()
    """All members in one domain of each."""
    liked: TopologyLevel | None = None
    """The same if it can be."""
    least: int = 0
    """How good the fabric of every node must be."""
    trouble: bool = False
    """A member asks for a level that does not exist."""


def of(specs: Iterable[SchedulingSpec], places: PlacementPolicy) -> ColocationRequirement | None:
    """What these members ask for together; None: nothing, as almost always."""
    asking = dict.fromkeys(spec for spec in specs if spec.fabric is not NO_FABRIC)
    levels: dict[TopologyLevel, None] = {}
    liked: list[TopologyLevel] = []
    for spec in asking:
        levels |= dict.fromkeys(fabric.required(places.tables, spec.fabric))
        level = fabric.preferred(places.tables, spec.fabric)
        liked += [level] if level is not None else []
    least = max((spec.fabric.minimum for spec in asking), default=0)
    trouble = any(places.unknown_level(spec) for spec in asking)
    if not (levels or liked or least or trouble):
        return None
    order = places.tables.levels
    narrowest = min(liked, key=order.index, default=None)
    return ColocationRequirement(tuple(levels), narrowest, least, trouble)


def joinable(pods: Iterable[Pod], snapshot: Snapshot, bound_members: Mates) -> Bools | None:
    """The rows that members with a node leave to these; None: all."""
    specs = (pod.spec for pod in (*pods, *(mate for mate, _ in bound_members)))
    gathering = of(specs, snapshot.placement_policy) if bound_members else None
    if gathering is None or not gathering.levels:
        return None
    found = share(gathering.levels, snapshot, bound_members)
    return None if found.free else (found.codes == found.pinned) & (found.codes != ABSENT)


def good_enough(gathering: ColocationRequirement, snapshot: Snapshot) -> Bools | None:
    """The rows whose fabric will do; None: all."""
    if not gathering.least:
        return None
    return fabric.grades(snapshot.table) >= gathering.least


@dataclass(frozen=True, slots=True)
class DomainIndex:
    """The rows of every domain side by side; derived from labels alone, and kept with them."""

    codes: Codes
    """The domain of each row; 0: none."""
    rows: Ints
    """Those that have one, domain by domain."""
    starts: Ints
    names: Codes
    """The code of each domain."""
    first: Codes
    """The place of its first node among all names."""

    @classmethod
    def of(cls, codes: Codes, rank: Codes) -> "DomainIndex":
        rows = np.argsort(codes, kind="stable")
        rows = rows[codes[rows] != ABSENT]
        names, starts = np.unique(codes[rows], return_index=True)
        first = np.minimum.reduceat(rank[rows], starts) if len(rows) else names
        return cls(codes, rows, starts, names, first)


@dataclass(frozen=True, slots=True)
class DomainAttempts:
    """The gang stays among the rows of one domain."""

    name: str
    domains: DomainIndex
    pinned: int = _OPEN
    """The code that members with a node have; 0: they have none in common."""

    @property
    def codes(self) -> Codes:
        return self.domains.codes

    @property
    def free(self) -> bool:
        """Nobody has a node yet: any domain will do."""
        return self.pinned == _OPEN

    @property
    def outside(self) -> str:
        """The reason of nodes that are left out; how much the best domain holds may follow."""
        if self.free:
            return f"node(s) were outside any {self.name} that can hold the gang"
        if self.pinned == ABSENT:
            return f"node(s) could not join a gang whose bound members share no {self.name}"
        return f"node(s) were outside the {self.name} of the gang's bound members"


def share(
    levels: Sequence[TopologyLevel], snapshot: Snapshot, bound_members: Mates
) -> DomainAttempts:
    places, table = snapshot.placement_policy, snapshot.table
    found = places.derived(tuple(levels), lambda: _domains(levels, snapshot))
    name = " and ".join(level.name for level in levels)
    rows = [table.rows[node] for _, node in bound_members if node in snapshot]
    if not rows:
        return DomainAttempts(name, found)
    held = np.unique(found.codes[rows])
    return DomainAttempts(name, found, int(held[0]) if len(held) == 1 else ABSENT)


def _domains(levels: Sequence[TopologyLevel], snapshot: Snapshot) -> DomainIndex:
    codes = _combined([snapshot.placement_policy.codes(level) for level in levels])
    return DomainIndex.of(codes, snapshot.table.rank)


def _combined(found: Sequence[Codes]) -> Codes:
    """One code for each combination; 0 where any of them is."""
    first, *others = found
    for more in others:
        both = first.astype(np.int64) * (int(more.max(initial=0)) + 1) + more
        _, numbers = np.unique(both, return_inverse=True)
        first = np.where((first == ABSENT) | (more == ABSENT), 0, numbers + 1).astype(np.int32)
    return first


@dataclass(frozen=True, slots=True)
class DomainCandidate:
    """A domain, and how many members it holds at most, by amounts."""

    code: int
    most: int


def order(
    share: DomainAttempts, rooms: Sequence[Ints], wanted: Sequence[int], need: int
) -> list[DomainCandidate]:
    """
    The domains to try. Where none could hold `need` members, the one that holds most, for its
    reasons. `rooms` are how many members of each class every row could take.
    """
    found = share.domains
    if len(found.names) == 0:
        return []
    most, whole, nodes = _sums(found, rooms, wanted)
    ranked = np.lexsort((found.first, whole, nodes, -most))
    if not share.free:
        ranked = ranked[found.names[ranked] == share.pinned]
    able = ranked[most[ranked] >= need]
    chosen = able if len(able) else ranked[:1]
    return [
        DomainCandidate(int(code), int(n))
        for code, n in zip(found.names[chosen], most[chosen], strict=True)
    ]


def _sums(
    found: DomainIndex, rooms: Sequence[Ints], wanted: Sequence[int]
) -> tuple[Ints, Ints, Ints]:
    """For each domain how many members it holds, what room it has, and how many nodes it takes."""
    most = whole = nodes = np.zeros(len(found.names), dtype=np.int64)
    for room, want in zip(rooms, wanted, strict=True):
        mine = room[found.rows]
        held = np.add.reduceat(mine, found.starts)
        most, whole = most + np.minimum(held, want), whole + held
        nodes = np.maximum(nodes, _fewest(found, mine, want))
    return most, whole, nodes


def _fewest(found: DomainIndex, mine: Ints, wanted: int) -> Ints:
    """How many nodes of each domain are needed; all that have room where they do not suffice."""
    roomiest = np.maximum.reduceat(mine, found.starts)
    if ((roomiest >= wanted) | (roomiest == 0)).all():
        return (roomiest > 0).astype(np.int64)  # one of each will do
    sizes = np.diff(np.r_[found.starts, len(mine)])
    place = np.repeat(np.arange(len(sizes)), sizes)
    by_room = np.lexsort((-mine, place))
    rooms = mine[by_room]
    before = np.cumsum(rooms) - rooms
    needed = (before - np.repeat(before[found.starts], sizes) < wanted) & (rooms > 0)
    return np.bincount(place[needed], minlength=len(sizes))
