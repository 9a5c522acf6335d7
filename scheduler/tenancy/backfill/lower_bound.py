"""
Before which time a unit does not fit, by amounts alone: where the search for its start begins.

    what is free on every node that could take such a pod
        + what comes free, one ending after the other, until there is room for as many as needed

A bound, no promise: what rules say of pods side by side, and the insides of hosts, are left to the
planner. Each class of equal pods is counted as if it were alone. Costs one addition an ending, so
that the planner is asked about a time or two and not about all of them.
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


def bound(
    unit: Unit,
    snapshot: Snapshot,
    endings: Sequence[ExpectedEnd],
    memo: Memo,
    *,
    closed: Bools | None = None,
) -> float | None:
    """`endings` in the order of time; None: all of them together do not make enough room."""
    latest = 0.0
    counts = Counter(pod.spec for pod in unit.pods)
    for spec, count in counts.items():
        wanted = unit.need - (len(unit.pods) - count)
        found = _alone(spec, wanted, snapshot, endings, memo, closed)
        if found is None:
            return None
        latest = max(latest, found)
    return latest


def room(
    unit: Unit,
    snapshot: Snapshot,
    nodes: Iterable[str],
    gone: Iterable[Placement],
    ahead: Iterable[Placement],
) -> bool:
    """Whether these nodes have room for the unit by amounts, when some are gone and some came."""
    specs = {pod.spec for pod in unit.pods}
    if len(specs) > 1:
        return True  # left to the planner
    asked = specs.pop().requests
    table = snapshot.table
    free = {
        node: [table.free_at(table.rows[node], name) for name, _ in asked]
        for node in nodes
        if node in snapshot
    }
    for sign, moved in ((1, gone), (-1, ahead)):
        for one in moved:
            if (mine := free.get(one.node)) is not None:
                amounts = dict(one.pod.spec.requests)
                for place, (name, _) in enumerate(asked):
                    mine[place] += sign * amounts.get(name, 0)
    fits = (
        min(left // count for left, (_, count) in zip(mine, asked, strict=True))
        for mine in free.values()
    )
    return sum(max(0, count) for count in fits) >= unit.need


def _alone(
    spec: SchedulingSpec,
    wanted: int,
    snapshot: Snapshot,
    endings: Sequence[ExpectedEnd],
    memo: Memo,
    closed: Bools | None,
) -> float | None:
    table = snapshot.table
    rows = filters.candidates(snapshot, spec, memo)
    if closed is not None:
        rows = rows & ~closed
    free = [table.free(name) for name, _ in spec.requests]
    each = [count for _, count in spec.requests]
    room = np.where(rows, np.int64(max(wanted, 0)), np.int64(0))
    for column, count in zip(free, each, strict=True):
        np.minimum(room, column // count, out=room)
    have = np.maximum(room, 0)
    missing = wanted - int(have.sum())
    if missing <= 0:
        return 0.0
    amounts: dict[int, list[int]] = {}
    for ending in endings:
        row = table.rows.get(ending.occupant.node)
        if row is None or not rows[row]:
            continue
        mine = amounts.get(row)
        if mine is None:
            mine = amounts[row] = [int(column[row]) for column in free]
        gone = dict(ending.occupant.pod.spec.requests)
        for place, (name, _) in enumerate(spec.requests):
            mine[place] += gone.get(name, 0)
        more = min(left // count for left, count in zip(mine, each, strict=True)) - int(have[row])
        if more > 0:
            have[row] += more
            missing -= more
            if missing <= 0:
                return ending.at
    return None
