"""
Chooses the nodes for a number of equal pods, all at once, on arrays.

    1. the fewest nodes that have the capacity                    `fewest_nodes`
    2. inside the narrowest topology domain that needs no more    rack before zone before anywhere
    3. there, the nodes with the least spare capacity             `_tightest`, `_tighten`

`capacity` is how many of the pods each row can take. Levels are label codes for each row, narrowest
first; 0: the node has no such label. Pure arithmetic: this module does not know pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.columns.node_table import Ints

Codes = NDArray[np.int32]
Floats = NDArray[np.float64]

_MAX_COMPARED: Final = 16  # domains of one level whose leftovers are compared


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Rows to fill in this order, each to its capacity; `spare` is their unused capacity."""

    rows: tuple[int, ...]
    spare: int


def fewest_nodes(capacity: Ints, count: int) -> int:
    """How many rows are needed, largest capacity first; 0: all together do not suffice."""
    if count <= 0:
        return 0
    if capacity.max(initial=0) >= count:
        return 1
    sums = np.cumsum(np.sort(capacity[capacity > 0])[::-1])
    return int(np.searchsorted(sums, count)) + 1 if len(sums) and sums[-1] >= count else 0


def choose(
    capacity: Ints, count: int, levels: Sequence[Codes], *, leftover: Floats, rank: Codes
) -> NodeChoice | None:
    """
    Rows for `count` pods; None if all rows together do not suffice.

    `leftover` is what a row would have free if it took all pods: the smallest wins.
    """
    needed = fewest_nodes(capacity, count)
    if needed == 0:
        return None
    if needed == 1:
        return _tightest(capacity, count, levels, leftover, rank)
    rows = np.flatnonzero(capacity > 0)
    for codes in levels:
        choice = _within_one_domain(rows[codes[rows] > 0], codes, capacity, count, needed, rank)
        if choice is not None:
            return choice
    return _tighten(_by_capacity(rows, capacity, levels, rank), capacity, count, needed)


def _tightest(
    capacity: Ints, count: int, levels: Sequence[Codes], leftover: Floats, rank: Codes
) -> NodeChoice:
    """One row for all; of equal rows the one with the fullest domains: others stay empty."""
    rows = np.flatnonzero(capacity >= count)
    rows = rows[leftover[rows] == leftover[rows].min()]
    for codes in levels:
        if len(rows) == 1:
            break
        by_domain = np.bincount(codes, weights=np.maximum(capacity, 0))[codes[rows]]
        rows = rows[by_domain == by_domain.min()]
    row = int(rows[np.argmin(rank[rows])])
    return NodeChoice((row,), int(capacity[row]) - count)


def _within_one_domain(
    rows: Ints, codes: Codes, capacity: Ints, count: int, needed: int, rank: Codes
) -> NodeChoice | None:
    """The best choice inside one domain of this level that needs no more rows than elsewhere."""
    if len(rows) == 0:
        return None
    rows = rows[np.lexsort((rank[rows], -capacity[rows], codes[rows]))]
    row_codes, capacities = codes[rows], capacity[rows]
    starts = np.flatnonzero(np.r_[True, row_codes[1:] != row_codes[:-1]])
    ends = np.r_[starts[1:], len(rows)]
    sums = np.r_[0, np.cumsum(capacities)]
    # The capacity of the `needed` largest rows of each domain, and of the whole domain.
    best = sums[np.minimum(starts + needed, ends)] - sums[starts]
    total = sums[ends] - sums[starts]
    able = np.flatnonzero(best >= count)
    able = able[np.lexsort((row_codes[starts[able]], total[able]))][:_MAX_COMPARED]
    best_choice: NodeChoice | None = None
    for domain in able:
        choice = _tighten(rows[starts[domain] : ends[domain]], capacity, count, needed)
        if best_choice is None or choice.spare < best_choice.spare:
            best_choice = choice
    return best_choice


def _by_capacity(rows: Ints, capacity: Ints, levels: Sequence[Codes], rank: Codes) -> Ints:
    """Rows by capacity; equals side by side where their domains have most, the widest first."""
    keys: list[NDArray[np.generic]] = [rank[rows]]
    for codes in levels:
        row_codes = codes[rows]
        total = np.bincount(row_codes, weights=capacity[rows])
        keys += [row_codes, -total[row_codes]]
    return rows[np.lexsort((*keys, -capacity[rows]))]


def _tighten(rows: Ints, capacity: Ints, count: int, needed: int) -> NodeChoice:
    """The `needed` largest rows, each exchanged for a smaller one while all pods still fit."""
    chosen = [int(row) for row in rows[:needed]]
    spare = int(capacity[chosen].sum()) - count
    candidates = rows[needed:][::-1]  # smallest first
    candidate_capacities = capacity[candidates]
    used: set[int] = set()
    for index in range(needed - 1, -1, -1):
        if spare == 0 or len(candidates) == 0:
            break
        has = int(capacity[chosen[index]])
        at = int(np.searchsorted(candidate_capacities, has - spare))
        while at < len(candidates) and at in used:
            at += 1
        if at < len(candidates) and int(candidate_capacities[at]) < has:
            used.add(at)
            spare -= has - int(candidate_capacities[at])
            chosen[index] = int(candidates[at])
    # The smallest row is filled last, so that the spare capacity leaves no new gap.
    chosen.sort(key=lambda row: -int(capacity[row]))
    return NodeChoice(tuple(chosen), spare)
