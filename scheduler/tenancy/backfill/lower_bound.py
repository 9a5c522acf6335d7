"""
A time before which a unit cannot fit, by resource amounts alone: where the search for its earliest
start begins.

    free on every node that passes the filters
        + released by each expected end, in the order of time, until enough pods fit

It is a lower bound: the planner decides about affinity, spread and NUMA. Each class of equal pods
is counted as if the unit had no other. One addition per expected end replaces most calls of the
planner.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools
from scheduler.model.plan import Placement
from scheduler.model.pod import SchedulingSpec
from scheduler.model.unit import Unit
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.start_time import ExpectedEnd


def lower_bound(
    unit: Unit,
    snapshot: Snapshot,
    ends: Sequence[ExpectedEnd],
    memo: Memo,
    *,
    closed: Bools | None = None,
) -> float | None:
    """`ends` in the order of time; None: all of them together do not free enough capacity."""
    latest = 0.0
    counts = Counter(pod.spec for pod in unit.pods)
    for spec, count in counts.items():
        needed = unit.need - (len(unit.pods) - count)
        bound = _bound_of_spec(spec, needed, snapshot, ends, memo, closed)
        if bound is None:
            return None
        latest = max(latest, bound)
    return latest


def has_capacity(
    unit: Unit,
    snapshot: Snapshot,
    nodes: Iterable[str],
    ended: Iterable[Placement],
    ahead: Iterable[Placement],
) -> bool:
    """Whether these nodes have the capacity for the unit when some pods ended and some started."""
    specs = {pod.spec for pod in unit.pods}
    if len(specs) > 1:
        return True  # left to the planner
    requests = specs.pop().requests
    table = snapshot.table
    free = {
        node: [table.free_at(table.rows[node], name) for name, _ in requests]
        for node in nodes
        if node in snapshot
    }
    for sign, moved in ((1, ended), (-1, ahead)):
        for placement in moved:
            if (node_free := free.get(placement.node)) is not None:
                amounts = dict(placement.pod.spec.requests)
                for column, (name, _) in enumerate(requests):
                    node_free[column] += sign * amounts.get(name, 0)
    fitting = (
        min(left // count for left, (_, count) in zip(node_free, requests, strict=True))
        for node_free in free.values()
    )
    return sum(max(0, count) for count in fitting) >= unit.need


def _bound_of_spec(
    spec: SchedulingSpec,
    needed: int,
    snapshot: Snapshot,
    ends: Sequence[ExpectedEnd],
    memo: Memo,
    closed: Bools | None,
) -> float | None:
    table = snapshot.table
    rows = filters.candidates(snapshot, spec, memo)
    if closed is not None:
        rows = rows & ~closed
    free = [table.free(name) for name, _ in spec.requests]
    requests = [count for _, count in spec.requests]
    fitting = np.where(rows, np.int64(max(needed, 0)), np.int64(0))
    for column, count in zip(free, requests, strict=True):
        np.minimum(fitting, column // count, out=fitting)
    fitting = np.maximum(fitting, 0)
    missing = needed - int(fitting.sum())
    if missing <= 0:
        return 0.0
    free_by_row: dict[int, list[int]] = {}
    for end in ends:
        row = table.rows.get(end.placement.node)
        if row is None or not rows[row]:
            continue
        row_free = free_by_row.get(row)
        if row_free is None:
            row_free = free_by_row[row] = [int(column[row]) for column in free]
        released = dict(end.placement.pod.spec.requests)
        for place, (name, _) in enumerate(spec.requests):
            row_free[place] += released.get(name, 0)
        fits = min(left // count for left, count in zip(row_free, requests, strict=True))
        more = fits - int(fitting[row])
        if more > 0:
            fitting[row] += more
            missing -= more
            if missing <= 0:
                return end.at
    return None
