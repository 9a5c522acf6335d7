"""
Amounts: nodes with enough left of every resource, and even use of CPU and memory as a score.

    fits, capacity   free amounts against requests
    filter           the same, with one reason for each resource that is short
    spread_score     NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation

Scores of one request are kept, and computed again only for rows whose amounts have changed.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler import bounded
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.resources import PODS
from scheduler.plugins.protocol import MAX_SCORE, Plugin, Rejection

TOO_MANY_PODS: Final = "Too many pods"

RESOURCES: Final = ("cpu", "memory")

_FEW: Final = 8  # rows up to which plain numbers are quicker than arrays
_MOST_REQUESTS: Final = 128  # different requests for which scores are kept up to date

Floats = NDArray[np.float64]
Small = NDArray[np.int16]

_NONE: Final[Small] = np.zeros(0, dtype=np.int16)


class NodeResources(Plugin):
    """kube-scheduler's NodeResourcesFit and NodeResourcesBalancedAllocation."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        # amounts of a request -> the table's mark, and the score of each row then
        self._scores: dict[tuple[int, ...], tuple[int, Small]] = {}

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        spec = pod.spec
        self._table.use(row, spec.requests, +1)
        if spec.default_requests != (0, 0):
            self._table.use_defaults(row, spec.default_requests, +1)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        spec = pod.spec
        self._table.use(row, spec.requests, -1)
        if spec.default_requests != (0, 0):
            self._table.use_defaults(row, spec.default_requests, -1)

    def state(self, row: int) -> tuple[object, ...]:
        return self._table.used_at(row)

    # --- filters ---

    def fits(self, spec: SchedulingSpec, rows: Bools) -> None:
        for name, count in spec.requests:
            rows &= self._table.free(name) >= count

    def capacity(self, spec: SchedulingSpec, counts: Ints) -> None:
        for name, count in spec.requests:
            np.minimum(counts, self._table.free(name) // count, out=counts)

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        for name, count in pod.spec.requests:
            reason = TOO_MANY_PODS if name == PODS else f"Insufficient {name}"
            yield reason, rows & (self._table.free(name) < count)

    # --- scores ---

    def spread_score(self, pod: Pod, rows: Bools) -> Ints | None:
        return self._load_scores(pod.spec).astype(np.int64)

    def _load_scores(self, spec: SchedulingSpec) -> Small:
        table = self._table
        cpu, memory = (spec.amount(name) for name in RESOURCES)
        key = (cpu, memory, *spec.default_requests)
        mark, scores = self._scores.get(key, (-1, _NONE))
        changed = table.since(mark) if len(scores) == len(table.alive) else None
        if changed is None:
            scores = _scores(table, slice(None), spec)
        elif len(changed) > _FEW:
            index = np.fromiter(changed, dtype=np.int64, count=len(changed))
            scores[index] = _scores(table, index, spec)
        else:
            for row in changed:
                scores[row] = _score(table, row, spec)
        bounded.remember(self._scores, key, (table.mark(), scores), _MOST_REQUESTS)
        return scores


def _scores(table: NodeTable, where: Ints | slice, spec: SchedulingSpec) -> Small:
    cpu, memory = (
        _share(
            table,
            where,
            name,
            spec.amount(name),
            table.default_requests[i],
            spec.default_requests[i],
        )
        for i, name in enumerate(RESOURCES)
    )
    both = (cpu.size > 0) & (memory.size > 0)
    # A node that lacks one of the resources is scored by the other, and is never lopsided.
    scores = np.where(both, (cpu.left + memory.left) // 2, cpu.left + memory.left)
    if any(spec.amount(name) for name in RESOURCES):
        before = np.where(both, np.abs((cpu.before - memory.before) / 2), 0.0)
        after = np.where(both, np.abs((cpu.after - memory.after) / 2), 0.0)
        change = _percent(1 - after) - _percent(1 - before)
        scores += MAX_SCORE // 2 + (MAX_SCORE // 2 + change) // 2
    return scores.astype(np.int16)


def _score(table: NodeTable, row: int, spec: SchedulingSpec) -> int:
    """The same as `_scores`, for one row."""
    left: list[int] = []
    before: list[float] = []
    after: list[float] = []
    for i, name in enumerate(RESOURCES):
        size = int(table.allocatable(name)[row])
        if size == 0:
            continue
        free, requested = int(table.free(name)[row]), spec.amount(name)
        spare = free - int(table.default_requests[i][row]) - requested - spec.default_requests[i]
        left.append(max(0, spare) * MAX_SCORE // size)
        before.append(min(float(size - free) / float(size), 1.0))
        after.append(min(float(size - free + requested) / float(size), 1.0))
    score = sum(left) // max(1, len(left))
    if any(spec.amount(name) for name in RESOURCES):
        change = _evenness(after) - _evenness(before)
        score += MAX_SCORE // 2 + (MAX_SCORE // 2 + change) // 2
    return score


def _evenness(parts: list[float]) -> int:
    apart = abs((parts[0] - parts[1]) / 2) if len(parts) > 1 else 0.0
    return int((1 - apart) * MAX_SCORE)


class _ResourceShare(NamedTuple):
    """One resource on some rows: the percentage left with the pod, and the used parts."""

    size: Ints
    left: Ints
    before: Floats
    after: Floats


def _share(
    table: NodeTable, where: Ints | slice, name: str, requested: int, defaults: Ints, more: int
) -> _ResourceShare:
    size, free = table.allocatable(name)[where], table.free(name)[where]
    divisor, used = np.maximum(size, 1), size - free
    return _ResourceShare(
        size=size,
        left=np.maximum(free - defaults[where] - (requested + more), 0) * MAX_SCORE // divisor,
        before=np.minimum(used / divisor, 1.0),
        after=np.minimum((used + requested) / divisor, 1.0),
    )


def _percent(part: Floats) -> Ints:
    return (part * MAX_SCORE).astype(np.int64)
