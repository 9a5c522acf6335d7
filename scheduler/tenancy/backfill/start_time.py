"""
When a unit that does not fit now can start, and who may go ahead of it meanwhile. Pure.

    endings   what runs, each with the time at which it is expected to end; never: not listed
    earliest  the first ending after which the unit is placed, on a trial without what ended by then

A promise is a time and the nodes of the plan that holds then. Whoever is expected to end before it
may use any room; others leave those nodes alone, or prove on a trial that the promise still holds
with them in place. Times are seconds of the epoch. What becomes of a promise that is not kept is
decided elsewhere: see `promising`.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.model.unit import StartReservation, UnitKey
from scheduler.plan.memo import Memo


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """A pod that runs, and when it is expected to end."""

    at: float
    occupant: Placement


_NAMED = 5


def earliest(
    key: UnitKey,
    snapshot: Snapshot,
    endings: Sequence[ExpectedEnd],
    plan: Callable[[Memo], Plan],
    *,
    now: float,
    priority: int = 0,
    statics: Memo | None = None,
    not_before: float = 0.0,
) -> StartReservation | None:
    """
    None: not even when everything that is expected to end has ended.

    `not_before` is a time before which it is known not to fit, however that was found out.
    """
    order = sorted(endings, key=lambda one: (max(one.at, now), one.occupant.pod.uid))
    times = sorted({max(one.at, now) for one in order})

    def at(time: float) -> Placed | None:
        gone = [one for one in order if max(one.at, now) <= time]
        return without(snapshot, [one.occupant for one in gone], plan, statics)

    low, high = bisect_left(times, not_before), len(times)
    found: Placed | None = None
    step = 1
    while low < high and found is None:  # a time that suffices, not far behind the first
        ahead = min(low + step, high) - 1
        found, step = at(times[ahead]), 2 * step
        low, high = (low, ahead) if found is not None else (ahead + 1, high)
    while low < high:  # the first time that suffices
        middle = (low + high) // 2
        placed = at(times[middle])
        if placed is None:
            low = middle + 1
        else:
            high, found = middle, placed
    if found is None or low == len(times):
        return None
    start = times[low]
    nodes = frozenset(one.node for one in found.placements)
    last = [one for one in order if one.occupant.node in nodes and max(one.at, now) <= start]
    named = tuple(str(one.occupant.pod.key) for one in reversed(last))[:_NAMED]
    return StartReservation(key, start, nodes, named, priority)


def without(
    snapshot: Snapshot,
    gone: Sequence[Placement],
    plan: Callable[[Memo], Plan],
    statics: Memo | None = None,
    ahead: Sequence[Placement] = (),
) -> Placed | None:
    """The plan on a trial where these pods are gone, and those ahead have their nodes."""
    memo = Memo() if statics is None else Memo(statics=statics.statics)
    with snapshot.trial():
        for one in gone:
            if one.node in snapshot:
                snapshot.suppose_gone(one.pod, one.node, one.assignment)
        for one in ahead:
            snapshot.place(one.pod, one.node, one.assignment)
        found = plan(memo)
    return found if isinstance(found, Placed) else None


def keeps(
    promise: StartReservation,
    snapshot: Snapshot,
    endings: Sequence[ExpectedEnd],
    plan: Callable[[Memo], Plan],
    ahead: Sequence[Placement],
    *,
    statics: Memo | None = None,
) -> bool:
    """Whether the unit could still start in time if these pods went ahead and stayed."""
    if not any(one.node in promise.nodes for one in ahead):
        return True
    gone = [one.occupant for one in endings if one.at <= promise.start]
    return without(snapshot, gone, plan, statics, ahead) is not None
