"""
Attempts to place the members of a unit, each on a trial of its own; the best is kept.

    anywhere    within one domain of each level that could hold all members, a few of the tightest,
                and without bounds: fewest nodes, then fewest domains
    together    a gang that must share a domain: in every domain that could hold it, until one
                holds all members; nowhere else

Where members are left, the class that was left goes first in another attempt, a bounded number of
times. `RowBounds` bounds an attempt to some rows and gives the others their reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints
from scheduler.model.plan import GangCount, NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.plan import colocation, filters
from scheduler.plan.colocation import ColocationRequirement, DomainAttempts, Mates
from scheduler.plan.placement import PlacementAttempt, PlacementContext
from scheduler.plugins import fabric

Classes = Sequence[Sequence[Pod]]
"""Members that are alike together, in the order in which they are placed."""

_MOST_DOMAINS: Final = 6  # tried for each level where none is required
_MOST_ORDERS: Final = 6


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Rows to stay within, and the reason of the others; None: all rows."""

    rows: Bools | None = None
    reason: str = ""
    counts: bool = False
    """The reason goes on to say how many members the best such rows hold."""


ALL_ROWS: Final = RowBounds()


class AttemptResult:
    """An attempt after its trial was taken back. `told`: with the reasons of who was left."""

    def __init__(
        self, filling: PlacementAttempt, order: Classes, within: RowBounds, *, told: bool
    ) -> None:
        self.placements = tuple(filling.placements)
        self.left = tuple(filling.left)
        self.cost = filling.cost
        self.order, self.within = order, within
        self.why = filling.why() if told and filling.left else None

    @property
    def count(self) -> int:
        return len(self.placements)

    def placed(self) -> Placed:
        """The gang itself waits for nothing: who is left is told about nodes alone."""
        return Placed(self.placements, self.left, self.why)

    def misfit(self, need: int) -> NoFit:
        why = self.why or NoFit()
        reason, full = self.within.reason, self.reason(need)
        reasons = [(full if text == reason else text, count) for text, count in why.reasons]
        return replace(why, reasons=tuple(sorted(reasons)), gang=GangCount("", self.count, 0, ""))

    def reason(self, need: int) -> str:
        """Why rows outside are out, with the numbers."""
        if not self.within.counts:
            return self.within.reason
        return f"{self.within.reason} (largest holds {self.count} of {need})"


def attempt(
    order: Classes, ground: PlacementContext, within: RowBounds = ALL_ROWS, *, told: bool = True
) -> AttemptResult:
    with ground.snapshot.trial():
        filling = PlacementAttempt(ground, within.rows, within.reason)
        for members in order:
            filling.fill(members)
        return AttemptResult(filling, order, within, told=told)


# --- anywhere ---


def anywhere(
    classes: Classes, need: int, ground: PlacementContext, among: RowBounds = ALL_ROWS
) -> AttemptResult:
    """The best attempt, `among` bounding all of them."""
    best: AttemptResult | None = None
    for rows in _bounds(classes, ground, among.rows):
        result = attempt(
            classes, ground, RowBounds(rows, among.reason if rows is among.rows else "")
        )
        if best is None or result.cost() < best.cost():
            best = result
    if best is None or best.count < need:
        best = _reordered(classes, need, ground, best, among)
    return best


def _bounds(
    classes: Classes, ground: PlacementContext, among: Bools | None
) -> Iterator[Bools | None]:
    """
    Rows to stay within, one attempt each: domains that may hold all members, tightest first.

    Equal plain pods need none of it: their nodes are chosen for all of them at once.
    """
    together = sum(map(len, classes)) > 1
    plain = len(classes) == 1 and not filters.depends_on_pods(ground.snapshot, classes[0][0])
    if together and not plain and not ground.spread:
        rooms = _rooms(classes, ground, among)
        for codes in ground.codes():
            held = np.array([np.bincount(codes, weights=room) for room in rooms])
            wanted = np.array([[len(one)] for one in classes])
            able = np.flatnonzero((held >= wanted).all(axis=0) & (np.arange(held.shape[1]) > 0))
            tightest = able[np.lexsort((able, held[:, able].sum(axis=0)))]
            for code in tightest[:_MOST_DOMAINS]:
                rows = codes == code
                yield rows if among is None else rows & among
    yield among


def _rooms(classes: Classes, ground: PlacementContext, among: Bools | None) -> list[Ints]:
    """How many members of each class every row could take by amounts."""
    rooms = []
    for one in classes:
        rows = ground.open(one[0].spec)
        rows = rows if among is None else rows & among
        rooms.append(np.minimum(filters.capacity(ground.snapshot, one[0].spec, rows), len(one)))
    return rooms


def _reordered(
    classes: Classes,
    need: int,
    ground: PlacementContext,
    best: AttemptResult | None,
    within: RowBounds,
    *,
    told: bool = True,
) -> AttemptResult:
    """Attempts in which the class that was left goes first, until one suffices."""
    order = list(classes)
    result = best or attempt(order, ground, within, told=told)
    best, tried = result, {tuple(one[0].uid for one in order)}
    while len(order) > 1 and best.count < need and len(tried) < _MOST_ORDERS and result.left:
        failed = result.left[0].uid
        order.sort(key=lambda one: all(pod.uid != failed for pod in one))
        mark = tuple(one[0].uid for one in order)
        if mark in tried:
            order.reverse()
            mark = tuple(one[0].uid for one in order)
            if mark in tried:
                break
        tried.add(mark)
        result = attempt(tuple(order), ground, within, told=told)
        best = min(best, result, key=lambda one: one.cost())
    return best


# --- together ---


def together(
    classes: Classes,
    need: int,
    ground: PlacementContext,
    gather: ColocationRequirement,
    bound_members: Mates,
) -> AttemptResult:
    """In one domain of all required levels, and of the liked one if that holds all members."""
    snapshot = ground.snapshot
    among = colocation.good_enough(gather, snapshot)
    if gather.trouble:
        among = np.zeros_like(snapshot.table.alive)
    if gather.liked is not None and gather.liked not in gather.levels:
        share = colocation.share((*gather.levels, gather.liked), snapshot, bound_members)
        liked = _in_one(classes, need, ground, share, among)
        if not liked.left:
            return liked
    if gather.levels:
        share = colocation.share(gather.levels, snapshot, bound_members)
        return _in_one(classes, need, ground, share, among)
    reason = fabric.below(gather.least) if gather.least else ""
    return anywhere(classes, need, ground, RowBounds(among, reason))


def _in_one(
    classes: Classes,
    need: int,
    ground: PlacementContext,
    share: DomainAttempts,
    among: Bools | None,
) -> AttemptResult:
    """The best attempt inside one domain: the first that holds all, else who holds most."""
    wanted = [len(one) for one in classes]
    best: AttemptResult | None = None
    for one in colocation.order(share, _rooms(classes, ground, among), wanted, need):
        if best is not None and best.count >= one.most:
            break
        within = _of(share, share.codes == one.code, among)
        result = attempt(classes, ground, within, told=False)
        if result.left:
            result = _reordered(classes, sum(wanted), ground, result, within, told=False)
        if best is None or result.cost() < best.cost():
            best = result
    if best is None:
        return attempt(classes, ground, _of(share, np.zeros_like(share.codes, np.bool_), among))
    return attempt(best.order, ground, best.within) if best.left else best


def _of(share: DomainAttempts, rows: Bools, among: Bools | None) -> RowBounds:
    return RowBounds(rows if among is None else rows & among, share.outside, counts=share.free)
