"""
The cost of hardware rules in planning: CPU time per pod, beside the plain planner of the same run.

    plain    hosts without topology, pods that request CPU, memory and a GPU
    numa     hosts of two NUMA nodes, eight GPUs in two islands and four PCIe switches, in racks and
             cliques; every pod requests one NUMA node, so its GPU is assigned by index
    fabric   the same, and gangs request one rack

480 pods, alone, in gangs of 4 or in gangs of 16, are planned one unit after the other, each plan
assumed before the next one is made. A round runs every case once, in rotated order. The first plan
reads the topology and labels of all hosts, once in the life of a scheduler: it is reported
separately, and so is assuming.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policies import vocabulary
from scheduler.cache.cache import Cache
from scheduler.model import unit as units
from scheduler.model.node import Node
from scheduler.model.plan import Placed
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit
from scheduler.plan import planner
from tests.bench import scheduler_cases as cases
from tests.bench.scheduler_cases import GPU, GPUS_PER_NODE, OURS

PLAIN, NUMA, FABRIC = "plain", "numa", "fabric"
SIZES: Final = (1000, 5000)
GANGS: Final = (1, 4, 16)
PODS: Final = 480
RACK: Final = 50
CLIQUE: Final = 10
REACH: Final = 3.0

Sample = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    nodes: int
    gang: int
    kind: str
    pods: int = PODS

    @property
    def about(self) -> str:
        units_text = "singles" if self.gang == 1 else f"gangs of {self.gang}"
        return f"{units_text} on {self.nodes:,} nodes"


def all_cases(sizes: Sequence[int] = SIZES, pods: int = PODS) -> list[Case]:
    """A single pod has no fabric case: it has no other members."""
    return [
        Case(nodes, gang, kind, pods)
        for nodes in sizes
        for gang in GANGS
        for kind in ((PLAIN, NUMA) if gang == 1 else (PLAIN, NUMA, FABRIC))
    ]


def measure(cases_to_run: Sequence[Case], *, rounds: int) -> Iterator[Sample]:
    for number in range(rounds):
        for place in range(len(cases_to_run)):
            case = cases_to_run[(number + place) % len(cases_to_run)]
            yield {**once(case), "round": number}


def once(case: Case) -> Sample:
    cache = Cache()
    for node in _nodes(case):
        cache.put_node(node)
    memo = planner.Memo()
    planning = assuming = first = 0
    for unit in _units(case):
        start = time.process_time_ns()
        plan = planner.plan(unit, cache.snapshot, memo=memo)
        planned = time.process_time_ns()
        if not isinstance(plan, Placed):
            raise SystemExit(f"{case.about}, {case.kind}: {unit.key} was not placed: {plan.text}")
        for placement in plan.placements:
            cache.assume(placement)
        first = first or planned - start
        planning += planned - start
        assuming += time.process_time_ns() - planned
    later = case.pods - case.gang
    return {
        "nodes": case.nodes,
        "gang": case.gang,
        "kind": case.kind,
        "plan_us": (planning - first) / later / 1e3,
        "first_ms": first / 1e6,
        "assume_us": assuming / case.pods / 1e3,
    }


def ratios(samples: Sequence[Sample], case: Case) -> list[float]:
    """Round by round, this case against the plain one."""
    own, plain = (
        {sample["round"]: sample["plan_us"] for sample in _of(samples, case.nodes, case.gang, kind)}
        for kind in (case.kind, PLAIN)
    )
    return [own[number] / plain[number] for number in sorted(own) if number in plain]


def _of(samples: Sequence[Sample], nodes: int, gang: int, kind: str) -> list[Sample]:
    return [
        sample
        for sample in samples
        if (sample["nodes"], sample["gang"], sample["kind"]) == (nodes, gang, kind)
    ]


# --- objects ---


def _nodes(case: Case) -> Iterator[Node]:
    for number, raw in enumerate(cases.nodes(case.nodes, rack=RACK)):
        about = raw["metadata"]
        about |= {"uid": f"node-{number}", "resourceVersion": "1"}
        if case.kind != PLAIN:
            about["labels"][vocabulary.GPU_CLIQUE_LABEL] = f"clique-{number // CLIQUE:03d}"
            about["annotations"] = {vocabulary.NUMA_TOPOLOGY_ANNOTATION: _INSIDE}
        yield Node.read(raw)


def _inside() -> str:
    half = GPUS_PER_NODE // 2
    zones = [
        {"id": zone, "cpus": f"{zone * 16}-{zone * 16 + 15}", "memory": "128Gi"} for zone in (0, 1)
    ]
    gpus = [
        {"index": i, "numa": i // half, "switch": f"s{i // 2}", "island": f"i{i // half}"}
        for i in range(GPUS_PER_NODE)
    ]
    return json.dumps({"nodes": zones, "gpus": gpus})


_INSIDE: Final = _inside()


def _units(case: Case) -> list[Unit]:
    pods_read: list[Pod] = []
    for number in range(case.pods):
        gang = f"g{number // case.gang:04d}" if case.gang > 1 else ""
        raw = cases.pod(f"p{number:04d}", OURS, gang=gang, size=case.gang)
        notes: dict[str, str] = {}
        if case.kind != PLAIN:
            notes[vocabulary.NUMA_POLICY_ANNOTATION] = "single-numa"
        if case.kind == FABRIC:
            notes[vocabulary.CO_LOCATE_ANNOTATION] = "strict:rack"
        raw["metadata"] |= {
            "uid": f"uid-p{number:04d}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": notes,
        }
        amounts = {"cpu": "2", "memory": "8Gi", GPU: "1"}
        raw["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        raw["status"] = {"phase": "Pending"}
        pods_read.append(Pod.read(raw))
    return units.units(pods_read)
