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

from . import domains
from .columns import ABSENT, Bools, Codes, Ints
from .model import Pod, Shape
from .rules import fabric
from .rules.places import Places
from .snapshot import Snapshot
from .tables import Level
from .wishes.fabric import NO_FABRIC

Mates = Sequence[tuple[Pod, str]]
"""Members of a gang that have a node, with its name."""

_OPEN: Final = -1  # any domain will do


@dataclass(frozen=True, slots=True)
class Gathering:
    """What a gang asks for as a whole."""

    levels: tuple[Level, ...] = ()
    """All members in one domain of each."""
    liked: Level | None = None
    """The same if it can be."""
    least: int = 0
    """How good the fabric of every node must be."""
    trouble: bool = False
    """A member asks for a level that does not exist."""


def of(shapes: Iterable[Shape], places: Places) -> Gathering | None:
    """What these members ask for together; None: nothing, as almost always."""
    asking = dict.fromkeys(shape for shape in shapes if shape.fabric is not NO_FABRIC)
    levels: dict[Level, None] = {}
    liked: list[Level] = []
    for shape in asking:
        levels |= dict.fromkeys(fabric.required(places.tables, shape.fabric))
        level = fabric.liked(places.tables, shape.fabric)
        liked += [level] if level is not None else []
    least = max((shape.fabric.least for shape in asking), default=0)
    trouble = any(places.trouble(shape) for shape in asking)
    if not (levels or liked or least or trouble):
        return None
    order = places.tables.levels
    narrowest = min(liked, key=order.index, default=None)
    return Gathering(tuple(levels), narrowest, least, trouble)


def joinable(pods: Iterable[Pod], snapshot: Snapshot, mates: Mates) -> Bools | None:
    """The rows that members with a node leave to these; None: all."""
    shapes = (pod.shape for pod in (*pods, *(mate for mate, _ in mates)))
    gathering = of(shapes, snapshot.places) if mates else None
    if gathering is None or not gathering.levels:
        return None
    found = share(gathering.levels, snapshot, mates)
    return None if found.free else (found.codes == found.pinned) & (found.codes != ABSENT)


def good_enough(gathering: Gathering, snapshot: Snapshot) -> Bools | None:
    """The rows whose fabric will do; None: all."""
    if not gathering.least:
        return None
    return fabric.grades(snapshot.columns) >= gathering.least


@dataclass(frozen=True, slots=True)
class Share:
    """The gang stays among rows with one code above 0."""

    name: str
    codes: Codes
    pinned: int = _OPEN
    """The code that members with a node have; 0: they have none in common."""

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


def share(levels: Sequence[Level], snapshot: Snapshot, mates: Mates) -> Share:
    places, columns = snapshot.places, snapshot.columns
    codes = _combined([places.codes(level) for level in levels])
    name = " and ".join(level.name for level in levels)
    rows = [columns.rows[node] for _, node in mates if node in snapshot]
    if not rows:
        return Share(name, codes)
    held = np.unique(codes[rows])
    return Share(name, codes, int(held[0]) if len(held) == 1 else ABSENT)


def _combined(found: Sequence[Codes]) -> Codes:
    """One code for each combination; 0 where any of them is."""
    first, *others = found
    for more in others:
        both = first.astype(np.int64) * (int(more.max(initial=0)) + 1) + more
        _, numbers = np.unique(both, return_inverse=True)
        first = np.where((first == ABSENT) | (more == ABSENT), 0, numbers + 1).astype(np.int32)
    return first


@dataclass(frozen=True, slots=True)
class Try:
    """A domain, and how many members it holds at most, by amounts."""

    code: int
    most: int


def order(
    share: Share, rooms: Sequence[Ints], wanted: Sequence[int], need: int, rank: Codes
) -> list[Try]:
    """
    The domains to try. Where none could hold `need` members, the one that holds most, for its
    reasons. `rooms` are how many members of each class every row could take.
    """
    size = int(share.codes.max(initial=0)) + 1
    held = [np.bincount(share.codes, weights=room, minlength=size) for room in rooms]
    most = np.sum([np.minimum(each, n) for each, n in zip(held, wanted, strict=True)], axis=0)
    codes = np.arange(1, size) if share.free else np.array([share.pinned])
    codes = codes[codes > ABSENT]
    if len(codes) == 0:
        return []
    nodes = np.max(
        [
            domains.fewest_each(room, share.codes, want)
            for room, want in zip(rooms, wanted, strict=True)
        ],
        axis=0,
    )
    first = np.full(size, len(rank), dtype=np.int64)
    np.minimum.at(first, share.codes, rank)
    whole = np.sum(held, axis=0)
    ranked = codes[np.lexsort((first[codes], whole[codes], nodes[codes], -most[codes]))]
    able = [code for code in ranked if most[code] >= need]
    return [Try(int(code), int(most[code])) for code in able or ranked[:1]]
