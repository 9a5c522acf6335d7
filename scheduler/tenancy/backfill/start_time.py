"""
The earliest time at which a unit that does not fit now can start. Pure.

    ends            running pods, each with the time at which it is expected to end; a pod without
                    a known duration is not in the list
    earliest_start  the first end after which the planner places the unit, on a trial without the
                    pods that ended by then

A start reservation is a time and the nodes of the plan for that time. A unit that is expected to
end before may use any capacity. Other units leave those nodes alone, or a trial proves that the
reserved start holds with them in place. Times are seconds of the epoch. `controller` decides what
happens to a start reservation that can no longer be met.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed, Placement, Plan
from scheduler.model.unit import StartReservation, UnitKey
from scheduler.plan.memo import Memo

MAX_NAMED: Final = 5  # pods that a start reservation names as the last to end


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """A running pod, and when it is expected to end."""

    at: float
    placement: Placement


def earliest_start(
    key: UnitKey,
    snapshot: Snapshot,
    ends: Sequence[ExpectedEnd],
    plan: Callable[[Memo], Plan],
    *,
    now: float,
    priority: int = 0,
    statics: Memo | None = None,
    not_before: float = 0.0,
) -> StartReservation | None:
    """
    None: the unit does not fit even when all these pods have ended.

    `not_before` is a lower bound: the unit does not fit before that time.
    """
    ordered = sorted(ends, key=lambda end: (max(end.at, now), end.placement.pod.uid))
    times = sorted({max(end.at, now) for end in ordered})

    def plan_at(time: float) -> Placed | None:
        ended = [end.placement for end in ordered if max(end.at, now) <= time]
        return plan_without(snapshot, ended, plan, statics)

    low, high = bisect_left(times, not_before), len(times)
    placed: Placed | None = None
    step = 1
    while low < high and placed is None:  # a time that suffices, not far behind the first
        probe = min(low + step, high) - 1
        placed, step = plan_at(times[probe]), 2 * step
        low, high = (low, probe) if placed is not None else (probe + 1, high)
    while low < high:  # the first time that suffices
        middle = (low + high) // 2
        earlier = plan_at(times[middle])
        if earlier is None:
            low = middle + 1
        else:
            high, placed = middle, earlier
    if placed is None or low == len(times):
        return None
    start = times[low]
    nodes = frozenset(placement.node for placement in placed.placements)
    last = [e for e in ordered if e.placement.node in nodes and max(e.at, now) <= start]
    waits_for = tuple(str(end.placement.pod.key) for end in reversed(last))[:MAX_NAMED]
    return StartReservation(key, start, nodes, waits_for, priority)


def plan_without(
    snapshot: Snapshot,
    ended: Sequence[Placement],
    plan: Callable[[Memo], Plan],
    statics: Memo | None = None,
    ahead: Sequence[Placement] = (),
) -> Placed | None:
    """The plan on a trial without the pods that ended, and with those ahead on their nodes."""
    memo = Memo() if statics is None else statics.for_trial()
    with snapshot.trial():
        for placement in ended:
            if placement.node in snapshot:
                snapshot.suppose_gone(placement.pod, placement.node, placement.assignment)
        for placement in ahead:
            snapshot.place(placement.pod, placement.node, placement.assignment)
        result = plan(memo)
    return result if isinstance(result, Placed) else None


def starts_in_time(
    reservation: StartReservation,
    snapshot: Snapshot,
    ends: Sequence[ExpectedEnd],
    plan: Callable[[Memo], Plan],
    ahead: Sequence[Placement],
    *,
    statics: Memo | None = None,
) -> bool:
    """Whether the unit could still start in time if these pods started ahead and kept running."""
    if not any(placement.node in reservation.nodes for placement in ahead):
        return True
    ended = [end.placement for end in ends if end.at <= reservation.start]
    return plan_without(snapshot, ended, plan, statics, ahead) is not None
