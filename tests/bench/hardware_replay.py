"""
Replay arrivals under one placement policy, and count the GPUs in use.

    ours          the planner as it ships
    random        any host that can take the task, drawn with a seed
    best-fit      the host with the least left afterwards: the parts of CPU, memory and GPUs that
                  stay free, each in relation to the largest host, added up
    gpu-packing   hosts whose GPUs are in use already before idle ones, then the fewest free GPUs

All policies choose among the nodes that pass the planner's own filters, on the same snapshot. Equals
go to the first name. A replay is a value: same trace, same seed, same curve.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import Ints, NodeTable
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.plan import filters, planner
from tests.bench.hardware_trace import GPU, Task, Trace, arrivals, nodes, unit

DEMAND: Final = 1.3
POINTS: Final = 130  # of a curve, evenly over the demand

Choose = Callable[[NodeTable, Pod, Ints], int]  # of these rows, one


@dataclass(frozen=True, slots=True)
class Replay:
    """`curve`: parts of all GPUs, (requested so far, in use), rising."""

    policy: str
    seed: int
    curve: tuple[tuple[float, float], ...]
    dropped: tuple[tuple[int, int, int], ...]
    """(GPUs of a task, such tasks, those that found no host)"""

    @property
    def rate(self) -> float:
        return self.curve[-1][1]

    def sample(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "rate": round(self.rate, 5),
            "rate_at_all": round(self.rate_at(1.0), 5),
            "dropped": [list(row) for row in self.dropped],
            "curve": [[round(x, 4), round(y, 4)] for x, y in self.curve],
        }

    def rate_at(self, demand: float) -> float:
        """In use when so much was requested."""
        return max(
            (used for requested, used in self.curve if requested <= demand + 1e-9), default=0.0
        )


def replay(trace: Trace, policy: str, *, seed: int, demand: float = DEMAND) -> Replay:
    snapshot = Snapshot.of(nodes(trace))
    place = _places(policy, snapshot, seed)
    requested = used = 0
    counts: dict[int, list[int]] = {}
    curve = [(0.0, 0.0)]
    for number, task in enumerate(arrivals(trace, demand=demand, seed=seed)):
        placed = place(task, number)
        requested += task.gpus
        used += task.gpus if placed else 0
        tally = counts.setdefault(task.gpus, [0, 0])
        tally[0] += 1
        tally[1] += not placed
        if requested / trace.gpus - curve[-1][0] >= demand / POINTS:
            curve.append((requested / trace.gpus, used / trace.gpus))
    curve.append((requested / trace.gpus, used / trace.gpus))
    dropped = tuple((gpus, *counts[gpus]) for gpus in sorted(counts))
    return Replay(policy, seed, tuple(curve), tuple((a, b, c) for a, b, c in dropped))


def _places(policy: str, snapshot: Snapshot, seed: int) -> Callable[[Task, int], bool]:
    memo = planner.Memo()

    def ours(task: Task, number: int) -> bool:
        plan = planner.plan(unit(task, number), snapshot, memo=memo)
        if isinstance(plan, Placed):
            for placement in plan.placements:
                snapshot.place(placement.pod, placement.node, placement.assignment)
        return isinstance(plan, Placed)

    def other(task: Task, number: int) -> bool:
        pod = unit(task, number).pods[0]
        rows = np.flatnonzero(filters.feasible(snapshot, pod, memo))
        if len(rows):
            row = choose(snapshot.table, pod, rows)
            snapshot.place(pod, snapshot.table.names[row], NO_ASSIGNMENT)
        return bool(len(rows))

    if policy == OURS:
        return ours
    choose = BASELINES[policy](seed)
    return other


def _random(seed: int) -> Choose:
    drawn = random.Random(seed)

    def choose(table: NodeTable, pod: Pod, rows: Ints) -> int:
        return int(drawn.choice(rows.tolist()))

    return choose


def _best_fit(seed: int) -> Choose:
    def choose(table: NodeTable, pod: Pod, rows: Ints) -> int:
        left = np.zeros(len(rows))
        for name in ("cpu", "memory", GPU):
            most = table.allocatable(name).max()
            left += (table.free(name)[rows] - pod.spec.amount(name)) / most
        return _first(table, rows, [left])

    return choose


def _gpu_packing(seed: int) -> Choose:
    def choose(table: NodeTable, pod: Pod, rows: Ints) -> int:
        free = table.free(GPU)[rows]
        return _first(table, rows, [free, free == table.allocatable(GPU)[rows]])

    return choose


def _first(table: NodeTable, rows: Ints, keys: Sequence[np.ndarray]) -> int:
    """The best by the last key, then by those before it, then by name."""
    return int(rows[np.lexsort((table.rank[rows], *keys))[0]])


OURS: Final = "ours"
BASELINES: Final[dict[str, Callable[[int], Choose]]] = {
    "random": _random,
    "best-fit": _best_fit,
    "gpu-packing": _gpu_packing,
}
POLICIES: Final = (OURS, *BASELINES)
