"""
Gangs on small clusters beside an exact solver: what can be placed is found, nothing else is said.

Few numbers and fixed seeds by default; KUBENEXUS_OPTIMAL_CASES and KUBENEXUS_OPTIMAL_BASE draw
others. `pytest -s` shows how many were found.
"""

import os
from collections import Counter

from scheduler.cache.snapshot import Snapshot
from scheduler.model.plan import Placed
from scheduler.model.unit import units
from scheduler.plan import planner
from tests.unit.scheduler.plugins.numa import exact_solver, instances, invariants

CASES = int(os.environ.get("KUBENEXUS_OPTIMAL_CASES", "500"))
BASE = int(os.environ.get("KUBENEXUS_OPTIMAL_BASE", "0"))
LEAST = 0.98  # of the instances that have a placement


def planned(instance: instances.Instance) -> list[invariants.Row] | None:
    """(member, host, annotation) of the scheduler's plan; None: it says that none fits."""
    (unit,) = units(instances.gang(instance))
    snapshot = Snapshot.of(instances.nodes(instance), instances.running_pods(instance))
    plan = planner.plan(unit, snapshot)
    if not isinstance(plan, Placed):
        return None
    return [
        (one.pod.key.name, one.node, one.assignment.render() if one.assignment else "")
        for one in plan.placements
    ]


def test_plans_are_sound_and_what_can_be_placed_is_found() -> None:
    wrong: dict[int, object] = {}
    missed: list[int] = []
    counts: Counter[str] = Counter()
    for seed in range(BASE, BASE + CASES):
        instance = instances.draw(seed)
        possible, rows = exact_solver.exists(instance), planned(instance)
        counts["possible" if possible else "impossible"] += 1
        if rows is None:
            missed += [seed] if possible else []
            continue
        found = invariants.faults(instance, rows)
        if found or not possible:
            wrong[seed] = found or "an exact solver knows that there is none"
    share = 1 - len(missed) / max(1, counts["possible"])
    print(f"{counts['possible']} of {CASES} can be placed, {share:.2%} found; missed: {missed}")
    assert wrong == {}
    assert share >= LEAST
    assert min(counts["possible"], counts["impossible"]) >= CASES // 10
