"""
Deciding where a unit goes. Pure: same unit, same snapshot, same plan; no clock, no I/O.

    1. a forming gang is not planned; a pod that asks in vain is refused
    2. members that are alike form a class; the leader's class first, then the most demanding
    3. attempts, each on a trial: within one domain of the narrowest topology level that can hold
       the gang, and anywhere; the best is kept: fewest nodes, then fewest domains
    4. at least `need` members placed: `Placed`, the others follow if they fit. Otherwise the
       class that did not fit goes first in another attempt, a bounded number of times: `NoFit`
    5. whatever was placed on the snapshot is taken back: the caller assumes a plan, not planning

A single pod without GPUs is placed as kube-scheduler would score it; GPU pods and gangs are packed.
Pods that another scheduler is making room for count as placed, where they are no less important.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from policies import vocabulary

from . import filters
from .columns import Bools
from .filling import Filling, Ground, dominant
from .filters import Memo
from .model import Pod, Shape
from .outcome import GangCount, NoFit, Placed, Plan
from .snapshot import Snapshot
from .units import Unit, forming_count

__all__ = ["LEVELS", "Memo", "fill", "helps", "plan", "rows_of"]

LEVELS: Final = (
    vocabulary.GPU_CLIQUE_LABEL,
    vocabulary.RACK_LABEL,
    vocabulary.FABRIC_ID_LABEL,
    vocabulary.ZONE_LABEL,
)
"""Topology levels, narrowest first."""

_MOST_DOMAINS: Final = 6  # tried for each level
_MOST_ORDERS: Final = 6


def plan(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo | None = None,
    levels: tuple[str, ...] = LEVELS,
    closed: frozenset[str] = frozenset(),
) -> Plan:
    """Nodes for the unit, or why there are none; `closed` nodes are held for somebody else."""
    if unit.forming:
        return NoFit(len(snapshot), gang=forming_count(unit), forming=True)
    memo = memo or Memo()
    alike = tuple((pod.shape, snapshot.peers.signature(pod)) for pod in unit.pods)
    key = (alike, unit.need if unit.is_gang else 0, closed, unit.order[0])
    moment = _moment(unit, snapshot)
    known = memo.misfits.get(key)
    if known is not None and known[0] == moment:
        return _for_gang(known[1], unit)
    ground = Ground(snapshot, memo, levels, rows_of(snapshot, closed), spread=_spreads(unit))
    with snapshot.trial():
        _count_nominees(unit, snapshot)
        found = _plan(unit, ground)
    if isinstance(found, NoFit):
        memo.remember(memo.misfits, key, (moment, found))
        return _for_gang(found, unit)
    return found


def fill(
    unit: Unit,
    snapshot: Snapshot,
    *,
    memo: Memo,
    levels: tuple[str, ...] = LEVELS,
    closed: frozenset[str] = frozenset(),
) -> Pod | None:
    """Place on the present trial what fits of the unit; the first pod that does not, if any."""
    ground = Ground(snapshot, memo, levels, rows_of(snapshot, closed), spread=_spreads(unit))
    _count_nominees(unit, snapshot)
    filling = Filling(ground)
    for members in _classes(unit.pods, snapshot):
        filling.fill(members)
    return filling.left[0] if filling.left else None


def helps(shape: Shape, snapshot: Snapshot, node: str, memo: Memo) -> bool:
    """Whether a change on this node may help a unit with such a pod: it would fit there now."""
    return filters.fits_now(snapshot, shape, node, memo)


def _moment(unit: Unit, snapshot: Snapshot) -> tuple[int, int, int]:
    """
    Between two changes that free something, what did not fit does not fit.

    A pod that looks at others may be helped by any change.
    """
    social = any(filters.depends(snapshot, pod) for pod in unit.pods)
    return snapshot.freed, len(snapshot), snapshot.moved if social else 0


def _spreads(unit: Unit) -> bool:
    return not unit.is_gang and unit.pods[0].shape.ask.gpus == 0


def rows_of(snapshot: Snapshot, names: frozenset[str]) -> Bools | None:
    """The rows of these nodes; None: there are none."""
    if not names:
        return None
    rows = np.zeros_like(snapshot.columns.alive)
    rows[[snapshot.columns.rows[name] for name in names if name in snapshot]] = True
    return rows


def _count_nominees(unit: Unit, snapshot: Snapshot) -> None:
    mine = {pod.uid for pod in unit.pods}
    priority = max(pod.priority for pod in unit.pods)
    for uid, pod in sorted(snapshot.nominees.items()):
        if uid not in mine and pod.priority >= priority and pod.nominated in snapshot:
            snapshot.suppose(pod, pod.nominated)


# --- attempts ---


def _plan(unit: Unit, ground: Ground) -> Placed | NoFit:
    classes = _classes(unit.pods, ground.snapshot)
    best: _Result | None = None
    for within in _bounds(classes, ground):
        result = _attempt(classes, ground, within)
        if best is None or result.cost() < best.cost():
            best = result
    if best is None or best.count < unit.need:
        best = _reordered(classes, unit.need, ground, best)
    if best.count >= unit.need:
        return best.placed()
    return best.misfit()


class _Result:
    """An attempt after its trial was taken back."""

    def __init__(self, filling: Filling) -> None:
        self.placements = tuple(filling.placements)
        self.left = tuple(filling.left)
        self.cost = filling.cost
        self.why = filling.why() if filling.left else None

    @property
    def count(self) -> int:
        return len(self.placements)

    def placed(self) -> Placed:
        """The gang itself waits for nothing: who is left is told about nodes alone."""
        return Placed(self.placements, self.left, self.why)

    def misfit(self) -> NoFit:
        why = self.why or NoFit()
        return replace(why, gang=GangCount("", self.count, 0, ""))


def _attempt(
    order: Sequence[Sequence[Pod]], ground: Ground, within: Bools | None = None
) -> _Result:
    with ground.snapshot.trial():
        filling = Filling(ground, within)
        for members in order:
            filling.fill(members)
        return _Result(filling)


def _bounds(classes: Sequence[Sequence[Pod]], ground: Ground) -> Iterator[Bools | None]:
    """
    Rows to stay within, one attempt each: domains that may hold all members, tightest first.

    Equal plain pods need none of it: their nodes are chosen for all of them at once.
    """
    together = sum(map(len, classes)) > 1
    plain = len(classes) == 1 and not filters.depends(ground.snapshot, classes[0][0])
    if together and not plain and not ground.spread:
        rooms = [
            np.minimum(
                filters.capacity(ground.snapshot, one[0].shape, ground.open(one[0].shape)),
                len(one),
            )
            for one in classes
        ]
        for codes in ground.codes():
            held = np.array([np.bincount(codes, weights=room) for room in rooms])
            wanted = np.array([[len(one)] for one in classes])
            able = np.flatnonzero((held >= wanted).all(axis=0) & (np.arange(held.shape[1]) > 0))
            tightest = able[np.lexsort((able, held[:, able].sum(axis=0)))]
            for code in tightest[:_MOST_DOMAINS]:
                yield codes == code
    yield None


def _reordered(
    classes: Sequence[Sequence[Pod]], need: int, ground: Ground, best: _Result | None
) -> _Result:
    """Attempts in which the class that was left goes first, until one suffices."""
    order = list(classes)
    result = best or _attempt(order, ground)
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
        result = _attempt(order, ground)
        best = min(best, result, key=lambda one: one.cost())
    return best


def _for_gang(found: NoFit, unit: Unit) -> NoFit:
    """Counted for this gang: an equal one that did not fit may have another name."""
    if not unit.is_gang or unit.bound >= unit.size:
        return replace(found, gang=None)
    have = unit.bound + (found.gang.have if found.gang else 0)
    return replace(found, gang=GangCount(unit.key.name, have, unit.size, "members fit"))


def _classes(pods: Sequence[Pod], snapshot: Snapshot) -> list[list[Pod]]:
    """Members that are alike together; leaders first, then by what they demand."""
    groups: dict[tuple[bool, Shape, tuple[int, ...]], list[Pod]] = {}
    for pod in pods:
        leads = bool(pod.gang and pod.gang.leader)
        groups.setdefault((not leads, pod.shape, snapshot.peers.signature(pod)), []).append(pod)
    if len(groups) == 1:
        return list(groups.values())
    demand = {shape: _demand(shape, snapshot) for _, shape, _ in groups}
    return [
        groups[key] for key in sorted(groups, key=lambda k: (k[0], -demand[k[1]], groups[k][0].uid))
    ]


def _demand(shape: Shape, snapshot: Snapshot) -> float:
    name, share = dominant(shape, snapshot.columns)
    return share + (1 if name in filters.GPUS else 0)
