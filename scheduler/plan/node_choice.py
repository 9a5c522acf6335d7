"""
Which nodes hold a number of equal pods best: chosen for all of them at once, on columns of numbers.

    1. the fewest nodes that can hold them                        `fewest`
    2. inside the narrowest topology domain that needs no more    rack before zone before anywhere
    3. there, the nodes that leave the least over                 `_tightest`, `_tighten`

`room` says how many of the pods each row can take. Levels are label codes for each row, narrowest
first; 0 means that the node does not say. Pure arithmetic: what a pod is, is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.node_table import Ints

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]

_MOST_COMPARED: Final = 16  # domains of one level whose leftovers are compared


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Rows to fill in this order, each to its room; `over` is the room left in them."""

    rows: tuple[int, ...]
    over: int


def fewest(room: Ints, wanted: int) -> int:
    """How many rows are needed, the roomiest first; 0: they do not hold so many."""
    if wanted <= 0:
        return 0
    if room.max(initial=0) >= wanted:
        return 1
    held = np.cumsum(np.sort(room[room > 0])[::-1])
    return int(np.searchsorted(held, wanted)) + 1 if len(held) and held[-1] >= wanted else 0


def choose(
    room: Ints, wanted: int, levels: Sequence[Codes], *, leftover: Floats, rank: Codes
) -> NodeChoice | None:
    """
    Rows for all that are wanted; None when the rows together do not hold so many.

    `leftover` is what a row would have free when it alone took all: the smallest wins.
    """
    needed = fewest(room, wanted)
    if needed == 0:
        return None
    if needed == 1:
        return _tightest(room, wanted, levels, leftover, rank)
    rows = np.flatnonzero(room > 0)
    for codes in levels:
        found = _within_one(rows[codes[rows] > 0], codes, room, wanted, needed, rank)
        if found is not None:
            return found
    return _tighten(_together(rows, room, levels, rank), room, wanted, needed)


def _tightest(
    room: Ints, wanted: int, levels: Sequence[Codes], leftover: Floats, rank: Codes
) -> NodeChoice:
    """One row for all; among equals the one whose domains are fullest: empty ones stay whole."""
    rows = np.flatnonzero(room >= wanted)
    rows = rows[leftover[rows] == leftover[rows].min()]
    for codes in levels:
        if len(rows) == 1:
            break
        held = np.bincount(codes, weights=np.maximum(room, 0))[codes[rows]]
        rows = rows[held == held.min()]
    row = int(rows[np.argmin(rank[rows])])
    return NodeChoice((row,), int(room[row]) - wanted)


def _within_one(
    rows: Ints, codes: Codes, room: Ints, wanted: int, needed: int, rank: Codes
) -> NodeChoice | None:
    """The best choice inside a single domain of this level that needs no more rows than any."""
    if len(rows) == 0:
        return None
    rows = rows[np.lexsort((rank[rows], -room[rows], codes[rows]))]
    mine, rooms = codes[rows], room[rows]
    starts = np.flatnonzero(np.r_[True, mine[1:] != mine[:-1]])
    ends = np.r_[starts[1:], len(rows)]
    held = np.r_[0, np.cumsum(rooms)]
    # What the `needed` roomiest rows of each domain hold, and what the whole domain holds.
    best = held[np.minimum(starts + needed, ends)] - held[starts]
    whole = held[ends] - held[starts]
    able = np.flatnonzero(best >= wanted)
    able = able[np.lexsort((mine[starts[able]], whole[able]))][:_MOST_COMPARED]
    found: NodeChoice | None = None
    for domain in able:
        choice = _tighten(rows[starts[domain] : ends[domain]], room, wanted, needed)
        if found is None or choice.over < found.over:
            found = choice
    return found


def _together(rows: Ints, room: Ints, levels: Sequence[Codes], rank: Codes) -> Ints:
    """Rows by room; equals side by side where their domains have most room, the widest first."""
    keys: list[NDArray[np.generic]] = [rank[rows]]
    for codes in levels:
        mine = codes[rows]
        whole = np.bincount(mine, weights=room[rows])
        keys += [mine, -whole[mine]]
    return rows[np.lexsort((*keys, -room[rows]))]


def _tighten(rows: Ints, room: Ints, wanted: int, needed: int) -> NodeChoice:
    """The `needed` roomiest rows, each exchanged for a tighter one as far as all still fit."""
    chosen = [int(row) for row in rows[:needed]]
    over = int(room[chosen].sum()) - wanted
    spare = rows[needed:][::-1]  # tightest first
    rooms = room[spare]
    used: set[int] = set()
    for place in range(needed - 1, -1, -1):
        if over == 0 or len(spare) == 0:
            break
        has = int(room[chosen[place]])
        at = int(np.searchsorted(rooms, has - over))
        while at < len(spare) and at in used:
            at += 1
        if at < len(spare) and int(rooms[at]) < has:
            used.add(at)
            over -= has - int(rooms[at])
            chosen[place] = int(spare[at])
    # The last one takes what remains: the tightest, so that what is left over is no new hole.
    chosen.sort(key=lambda row: -int(room[row]))
    return NodeChoice(tuple(chosen), over)
