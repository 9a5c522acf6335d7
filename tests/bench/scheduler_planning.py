"""
The cost of planning alone: no API server, no requests, CPU time of this process.

1,200 pods, alone or in gangs of four, are planned one unit after the other on 1,000 and on 5,000
nodes, each plan assumed before the next is made. Objects are read from what an API server would
send. Figures are microseconds of CPU per pod, the least of some rounds: noise only adds.
"""

import time
from typing import Any, Final

from scheduler.cache.cache import Cache
from scheduler.model import unit as units
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.plan import planner
from tests.bench import scheduler_cases as cases
from tests.bench.scheduler_cases import OURS, Case

Sample = dict[str, Any]

SIZES: Final = (1000, 5000)
PODS: Final = 1200
GANG: Final = 4


def planning_cases() -> list[Case]:
    return [
        Case(f"planning-{kind}@{nodes}", nodes, (size,) * (PODS // size), gangs=size > 1)
        for nodes in SIZES
        for kind, size in (("singles", 1), (f"gangs-{GANG}", GANG))
    ]


def measure(*, rounds: int) -> list[Sample]:
    """Rounds are interleaved; the best of each case is kept."""
    best: dict[str, Sample] = {}
    for _ in range(rounds):
        for case in planning_cases():
            sample = once(case)
            fastest = best.get(case.name)
            if fastest is None or sample["plan_us"] < fastest["plan_us"]:
                best[case.name] = sample
    return list(best.values())


def once(case: Case) -> Sample:
    cache = Cache()
    for number, raw in enumerate(cases.nodes(case.nodes, rack=case.rack)):
        raw["metadata"] |= {"uid": f"node-{number}", "resourceVersion": "1"}
        cache.put_node(Node.read(raw))
    waiting = units.units(_pods(case))
    memo = planner.Memo()
    planning = assuming = 0
    for unit in waiting:
        start = time.process_time_ns()
        plan = planner.plan(unit, cache.snapshot, memo=memo)
        planned = time.process_time_ns()
        if not isinstance(plan, Placed):
            raise SystemExit(f"{case.name}: {unit.key} was not placed: {plan.text}")
        for placement in plan.placements:
            cache.assume(placement)
        planning += planned - start
        assuming += time.process_time_ns() - planned
    return {
        "case": case.name,
        "nodes": case.nodes,
        "gangs": case.gangs,
        "pods": case.pods,
        "plan_us": planning / case.pods / 1e3,
        "assume_us": assuming / case.pods / 1e3,
    }


def _pods(case: Case) -> list[Pod]:
    pods = []
    for unit in range(len(case.units)):
        for raw in cases.members(case, OURS, unit):
            raw["metadata"] |= {
                "uid": f"uid-{raw['metadata']['name']}",
                "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            # The API server fills requests in from limits.
            resources = raw["spec"]["containers"][0]["resources"]
            resources["requests"] = dict(resources["limits"])
            raw["status"] = {"phase": "Pending"}
            pods.append(Pod.read(raw))
    return pods
