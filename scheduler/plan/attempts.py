"""
Attempts to place the members of a unit, each on its own trial; the best one wins.

    anywhere    within single domains with enough capacity, a few of the tightest of each level, and
                without bounds: fewest nodes, then fewest domains
    colocated   a gang that must share a domain: in every domain with enough capacity, until all
                members fit in one; nowhere else

If members are unplaced, their class goes first in another attempt, a bounded number of times.
`RowBounds` bounds an attempt to some rows and gives the others their reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints
from scheduler.model.plan import GangCount, NoFit, Placed
from scheduler.model.pod import Pod
from scheduler.plan import colocation, filters
from scheduler.plan.colocation import BoundMembers, ColocationRequirement, DomainConstraint
from scheduler.plan.placement import PlacementAttempt, PlacementContext
from scheduler.plugins import fabric

Classes = Sequence[Sequence[Pod]]
"""Equal members together, in the order in which they are placed."""

_MAX_DOMAINS: Final = 6  # tried for each level if the gang requires none
_MAX_ORDERS: Final = 6


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Rows to stay within, and the reason of the others; None: all rows."""

    rows: Bools | None = None
    reason: str = ""
    counts: bool = False
    """Append to the reason how many members fit on the best such rows."""


ALL_ROWS: Final = RowBounds()


class AttemptResult:
    """An attempt after its trial was undone. `explain`: with the reasons of an unplaced pod."""

    def __init__(
        self, placement: PlacementAttempt, order: Classes, within: RowBounds, *, explain: bool
    ) -> None:
        self.placements = tuple(placement.placements)
        self.unplaced = tuple(placement.unplaced)
        self.cost = placement.cost
        self.order = order
        self.within = within
        self.why = placement.no_fit() if explain and placement.unplaced else None

    @property
    def count(self) -> int:
        return len(self.placements)

    def placed(self) -> Placed:
        """The gang is complete, so that unplaced members have reasons about nodes only."""
        return Placed(self.placements, self.unplaced, self.why)

    def no_fit(self, need: int) -> NoFit:
        why = self.why or NoFit()
        reason, full = self.within.reason, self.reason(need)
        reasons = [(full if text == reason else text, count) for text, count in why.reasons]
        return replace(why, reasons=tuple(sorted(reasons)), gang=GangCount("", self.count, 0, ""))

    def reason(self, need: int) -> str:
        """Why rows outside the bounds are filtered, with the numbers."""
        if not self.within.counts:
            return self.within.reason
        return f"{self.within.reason} (largest holds {self.count} of {need})"


def attempt(
    order: Classes, context: PlacementContext, within: RowBounds = ALL_ROWS, *, explain: bool = True
) -> AttemptResult:
    with context.snapshot.trial():
        placement = PlacementAttempt(context, within.rows, within.reason)
        for members in order:
            placement.fill(members)
        return AttemptResult(placement, order, within, explain=explain)


# --- anywhere ---


def anywhere(
    classes: Classes, need: int, context: PlacementContext, allowed: RowBounds = ALL_ROWS
) -> AttemptResult:
    """The best attempt; `allowed` bounds all of them."""
    best: AttemptResult | None = None
    for rows in _bounds(classes, context, allowed.rows):
        result = attempt(
            classes, context, RowBounds(rows, allowed.reason if rows is allowed.rows else "")
        )
        if best is None or result.cost() < best.cost():
            best = result
    if best is None or best.count < need:
        best = _reordered(classes, need, context, best, allowed)
    return best


def _bounds(
    classes: Classes, context: PlacementContext, allowed: Bools | None
) -> Iterator[Bools | None]:
    """
    Rows for one attempt each: domains with the capacity for all members, tightest first.

    Equal plain pods need no such bounds: `node_choice` chooses for all of them at once.
    """
    colocated = sum(map(len, classes)) > 1
    plain = len(classes) == 1 and not filters.depends_on_pods(context.snapshot, classes[0][0])
    if colocated and not plain and not context.spread:
        capacities = _capacities(classes, context, allowed)
        for codes in context.codes():
            by_domain = np.array([np.bincount(codes, weights=capacity) for capacity in capacities])
            counts = np.array([[len(members)] for members in classes])
            able = np.flatnonzero(
                (by_domain >= counts).all(axis=0) & (np.arange(by_domain.shape[1]) > 0)
            )
            tightest = able[np.lexsort((able, by_domain[:, able].sum(axis=0)))]
            for code in tightest[:_MAX_DOMAINS]:
                rows = codes == code
                yield rows if allowed is None else rows & allowed
    yield allowed


def _capacities(classes: Classes, context: PlacementContext, allowed: Bools | None) -> list[Ints]:
    """How many members of each class every row could take, by amounts."""
    capacities = []
    for members in classes:
        spec = members[0].spec
        rows = context.candidate_rows(spec)
        rows = rows if allowed is None else rows & allowed
        capacities.append(np.minimum(filters.capacity(context.snapshot, spec, rows), len(members)))
    return capacities


def _reordered(
    classes: Classes,
    need: int,
    context: PlacementContext,
    best: AttemptResult | None,
    within: RowBounds,
    *,
    explain: bool = True,
) -> AttemptResult:
    """Attempts in which the class of an unplaced member goes first, until one suffices."""
    order = list(classes)
    result = best or attempt(order, context, within, explain=explain)
    best, tried = result, {tuple(members[0].uid for members in order)}
    while len(order) > 1 and best.count < need and len(tried) < _MAX_ORDERS and result.unplaced:
        failed = result.unplaced[0].uid
        order.sort(key=lambda members: all(pod.uid != failed for pod in members))
        mark = tuple(members[0].uid for members in order)
        if mark in tried:
            order.reverse()
            mark = tuple(members[0].uid for members in order)
            if mark in tried:
                break
        tried.add(mark)
        result = attempt(tuple(order), context, within, explain=explain)
        best = min(best, result, key=lambda each: each.cost())
    return best


# --- colocated ---


def colocated(
    classes: Classes,
    need: int,
    context: PlacementContext,
    requirement: ColocationRequirement,
    bound_members: BoundMembers,
) -> AttemptResult:
    """In one domain of all required levels, and of the preferred level if all members fit."""
    snapshot = context.snapshot
    allowed = colocation.rows_with_fabric(requirement, snapshot)
    if requirement.unresolvable:
        allowed = np.zeros_like(snapshot.table.alive)
    if requirement.preferred is not None and requirement.preferred not in requirement.levels:
        constraint = colocation.domain_constraint(
            (*requirement.levels, requirement.preferred),
            snapshot,
            bound_members,
        )
        preferred = _in_one_domain(classes, need, context, constraint, allowed)
        if not preferred.unplaced:
            return preferred
    if requirement.levels:
        constraint = colocation.domain_constraint(requirement.levels, snapshot, bound_members)
        return _in_one_domain(classes, need, context, constraint, allowed)
    reason = fabric.below(requirement.min_fabric) if requirement.min_fabric else ""
    return anywhere(classes, need, context, RowBounds(allowed, reason))


def _in_one_domain(
    classes: Classes,
    need: int,
    context: PlacementContext,
    constraint: DomainConstraint,
    allowed: Bools | None,
) -> AttemptResult:
    """The best attempt inside one domain: the first that places all members, else most."""
    counts = [len(members) for members in classes]
    best: AttemptResult | None = None
    for domain in colocation.candidate_domains(
        constraint, _capacities(classes, context, allowed), counts, need
    ):
        if best is not None and best.count >= domain.most:
            break
        within = _bounds_of(constraint, constraint.codes == domain.code, allowed)
        result = attempt(classes, context, within, explain=False)
        if result.unplaced:
            result = _reordered(classes, sum(counts), context, result, within, explain=False)
        if best is None or result.cost() < best.cost():
            best = result
    if best is None:
        return attempt(
            classes,
            context,
            _bounds_of(constraint, np.zeros_like(constraint.codes, np.bool_), allowed),
        )
    return attempt(best.order, context, best.within) if best.unplaced else best


def _bounds_of(constraint: DomainConstraint, rows: Bools, allowed: Bools | None) -> RowBounds:
    return RowBounds(
        rows if allowed is None else rows & allowed,
        constraint.outside_reason,
        counts=constraint.unpinned,
    )
