"""
Gangs on small clusters beside an exact solver: what can be placed is found, nothing else is said.

Few numbers and fixed seeds by default; KUBENEXUS_OPTIMAL_CASES and KUBENEXUS_OPTIMAL_BASE draw
others. `pytest -s` shows how many were found.
"""

import os
from collections import Counter

from scheduler import planner
from scheduler.outcome import Placed
from scheduler.snapshot import Snapshot
from scheduler.units import units
from tests.unit.scheduler import hardware_exact, hardware_faults, hardware_instances

CASES = int(os.environ.get("KUBENEXUS_OPTIMAL_CASES", "500"))
BASE = int(os.environ.get("KUBENEXUS_OPTIMAL_BASE", "0"))
LEAST = 0.98  # of the instances that have a placement


def planned(instance: hardware_instances.Instance) -> list[hardware_faults.Row] | None:
    """(member, host, annotation) of the scheduler's plan; None: it says that none fits."""
    (unit,) = units(hardware_instances.gang(instance))
    snapshot = Snapshot.of(
        hardware_instances.nodes(instance), hardware_instances.standing(instance)
    )
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
        instance = hardware_instances.draw(seed)
        possible, rows = hardware_exact.exists(instance), planned(instance)
        counts["possible" if possible else "impossible"] += 1
        if rows is None:
            missed += [seed] if possible else []
            continue
        found = hardware_faults.faults(instance, rows)
        if found or not possible:
            wrong[seed] = found or "an exact solver knows that there is none"
    share = 1 - len(missed) / max(1, counts["possible"])
    print(f"{counts['possible']} of {CASES} can be placed, {share:.2%} found; missed: {missed}")
    assert wrong == {}
    assert share >= LEAST
    assert min(counts["possible"], counts["impossible"]) >= CASES // 10
