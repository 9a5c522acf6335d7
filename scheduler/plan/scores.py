"""
Which of the nodes that fit are better: kube-scheduler's default scores, over all rows at once.

    TaintToleration    3   fewer taints that speak against the node         preferences
    NodeAffinity       2   the weights of preferred terms                        "
    PodTopologySpread  2   soft spread, from `rules.peers`                       "
    InterPodAffinity   2   preferred (anti-)affinity, from `rules.peers`         "
    ImageLocality      1   images that need not be pulled                        "
    NodeResourcesFit   1   LeastAllocated: the more is left, the better     spreading
    BalancedAllocation 1   CPU and memory used up evenly                         "

and the product's own, which only pods have that ask for GPUs or that admission has stamped:

    places                 liked hardware tier, lesser GPUs, better fabric   preferences

Each gives 0 to 100, where needed in proportion to the best of the rows that are compared, rounded
as kube-scheduler rounds. A score that is the same for all of these rows is left out: it decides
nothing. What depends on the nodes' own facts is kept in the `Memo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.taints import Toleration, tolerated
from scheduler.plan.memo import Memo
from scheduler.plugins import node_affinity

BEST: Final = 100
RESOURCES: Final = ("cpu", "memory")

_TAINTS: Final = 3
_AFFINITY: Final = 2
_PEERS: Final = 2

_LEAST_IMAGE: Final = 23 * 2**20
_MOST_IMAGE: Final = 1000 * 2**20

_FEW: Final = 8  # rows up to which plain numbers are quicker than arrays
_MOST_LOADS: Final = 128  # different requests for which scores are kept up to date

Floats = NDArray[np.float64]
Small = NDArray[np.int16]

_NONE: Final[Small] = np.zeros(0, dtype=np.int16)


@dataclass(frozen=True, slots=True)
class _Preferences:
    """What speaks for and against every row by the nodes' own facts; None: nothing anywhere."""

    against: Ints | None
    affinity: Ints | None
    images: Ints | None


_NOTHING: Final = _Preferences(None, None, None)


def preferences(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints | None:
    """What the user prefers, for each of the rows; None when the pod prefers nothing there."""
    likes = _likes(snapshot.table, pod.spec, memo)
    peers = snapshot.interpod.scores(pod, rows)
    own = snapshot.placement_policy.likes(pod.spec)
    if likes is _NOTHING and peers is None and own is None:
        return None
    found: list[Ints] = [] if own is None else [own]
    if likes.against is not None and (worst := _top(likes.against, rows)):
        found.append(_TAINTS * (BEST - BEST * likes.against // worst))
    if likes.affinity is not None and (best := _top(likes.affinity, rows)):
        found.append(_AFFINITY * (BEST * likes.affinity // best))
    if likes.images is not None:
        found.append(likes.images)
    if peers is not None:
        found += [_PEERS * scores for scores in peers]
    return _sum(found) if found else None


def spreading(snapshot: Snapshot, pod: Pod, rows: Bools, memo: Memo) -> Ints:
    """The whole default profile, for each of the rows."""
    loads = _loads(snapshot.table, pod.spec, memo)
    wishes = preferences(snapshot, pod, rows, memo)
    return loads.astype(np.int64) if wishes is None else wishes + loads


# --- the nodes' own facts ---


def _likes(table: NodeTable, spec: SchedulingSpec, memo: Memo) -> _Preferences:
    key = (spec.tolerations, spec.node_constraints.preferred, spec.node_constraints.images)
    moment = (table.statics, table.images.changes)
    known = memo.wishes.get(key)
    if known is not None and known[0] == moment and isinstance(known[1], _Preferences):
        return known[1]
    found = (
        _against(table, spec.tolerations),
        node_affinity.preferred(table, spec.node_constraints),
        _images(table, spec.node_constraints.images),
    )
    likes = _NOTHING if all(scores is None for scores in found) else _Preferences(*found)
    memo.remember(memo.wishes, key, (moment, likes))
    return likes


def _against(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Ints | None:
    """How many taints that are not tolerated speak against each row."""
    counts = np.array(
        [
            sum(not tolerated(taint, tolerations) for taint in found)
            for found in table.soft_taint_sets
        ],
        dtype=np.int64,
    )
    return counts[table.soft_taints] if counts.any() else None


def _images(table: NodeTable, names: Sequence[str]) -> Ints | None:
    """
    An image counts by its size and by how widely it is spread.

    So that pods do not all gather on the one node that pulled it first.
    """
    total = np.zeros(len(table.alive), dtype=np.int64)
    for name in names:
        found = table.images.on(name)
        if found is not None:
            size, rows = found
            total[rows] += int(size * (len(rows) / len(table)))
    most = _MOST_IMAGE * len(names)
    if not names or total.max(initial=0) <= _LEAST_IMAGE:
        return None
    return BEST * (np.clip(total, _LEAST_IMAGE, most) - _LEAST_IMAGE) // (most - _LEAST_IMAGE)


# --- what is free ---


def _loads(table: NodeTable, spec: SchedulingSpec, memo: Memo) -> Small:
    """LeastAllocated and BalancedAllocation for every row; only where amounts changed, anew."""
    cpu, memory = (spec.amount(name) for name in RESOURCES)
    key = (cpu, memory, *spec.default_requests)
    mark, scores = memo.loads.get(key, (-1, _NONE))
    changed = table.since(mark) if len(scores) == len(table.alive) else None
    if changed is None:
        if len(memo.loads) >= _MOST_LOADS:
            memo.loads.clear()
        scores = _load_scores(table, slice(None), spec)
    elif len(changed) > _FEW:
        index = np.fromiter(changed, dtype=np.int64, count=len(changed))
        scores[index] = _load_scores(table, index, spec)
    else:
        for row in changed:
            scores[row] = _load_score(table, row, spec)
    memo.loads[key] = (table.mark(), scores)
    return scores


def _load_scores(table: NodeTable, where: Ints | slice, spec: SchedulingSpec) -> Small:
    parts = [
        _part(
            table,
            where,
            name,
            spec.amount(name),
            table.default_requests[i],
            spec.default_requests[i],
        )
        for i, name in enumerate(RESOURCES)
    ]
    one, other = parts
    whole = (one.size > 0) & (other.size > 0)
    # A node that lacks one of the resources is judged by the other, and is never lopsided.
    scores = np.where(whole, (one.left + other.left) // 2, one.left + other.left)
    if any(spec.amount(name) for name in RESOURCES):
        before = np.where(whole, np.abs((one.before - other.before) / 2), 0.0)
        after = np.where(whole, np.abs((one.after - other.after) / 2), 0.0)
        change = _percent(1 - after) - _percent(1 - before)
        scores += BEST // 2 + (BEST // 2 + change) // 2
    return scores.astype(np.int16)


def _load_score(table: NodeTable, row: int, spec: SchedulingSpec) -> int:
    """What `_load_scores` says, for one row."""
    left: list[int] = []
    before: list[float] = []
    after: list[float] = []
    for i, name in enumerate(RESOURCES):
        size = int(table.allocatable(name)[row])
        if size == 0:
            continue
        free, wanted = int(table.free(name)[row]), spec.amount(name)
        spare = free - int(table.default_requests[i][row]) - wanted - spec.default_requests[i]
        left.append(max(0, spare) * BEST // size)
        before.append(min(float(size - free) / float(size), 1.0))
        after.append(min(float(size - free + wanted) / float(size), 1.0))
    score = sum(left) // max(1, len(left))
    if any(spec.amount(name) for name in RESOURCES):
        change = _evenness(after) - _evenness(before)
        score += BEST // 2 + (BEST // 2 + change) // 2
    return score


def _evenness(parts: list[float]) -> int:
    apart = abs((parts[0] - parts[1]) / 2) if len(parts) > 1 else 0.0
    return int((1 - apart) * BEST)


class _ResourceShare(NamedTuple):
    """One resource on some rows: what would be left of it in percent, and which parts are used."""

    size: Ints
    left: Ints
    before: Floats
    after: Floats


def _part(
    table: NodeTable, where: Ints | slice, name: str, wanted: int, unsaid: Ints, more: int
) -> _ResourceShare:
    size, free = table.allocatable(name)[where], table.free(name)[where]
    some, used = np.maximum(size, 1), size - free
    return _ResourceShare(
        size=size,
        left=np.maximum(free - unsaid[where] - (wanted + more), 0) * BEST // some,
        before=np.minimum(used / some, 1.0),
        after=np.minimum((used + wanted) / some, 1.0),
    )


def _percent(part: Floats) -> Ints:
    return (part * BEST).astype(np.int64)


def _top(scores: Ints, rows: Bools) -> int:
    return int(scores.max(where=rows, initial=0))


def _sum(scores: Sequence[Ints]) -> Ints:
    total = scores[0]
    for more in scores[1:]:
        total = total + more
    return total
