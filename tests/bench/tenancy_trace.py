"""
Jobs of three tenants, from a recorded GPU cluster: the public trace `cluster-trace-gpu-v2023`.

    pods     the trace's whole-GPU tasks, with their requests
    gangs    tasks with equal requests that arrive within a minute of the one before
    run time from being scheduled to being deleted, at least a minute and at most two hours
    tenants  three, drawn with a seed in the ratio of their weights, 3 : 2 : 1
    hosts    every n-th host of the trace
    arrivals gangs in an order drawn with a seed, at random times whose rate gives the demand

A gang runs as long as the longest of its tasks. The demand is the GPU time of all jobs without any
wait, in relation to all GPU time. The expected duration of a job is exact, or a guess: then the run
time is the guess times a factor drawn from a lognormal distribution with median 1, and some jobs
have no expected duration.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kubenexus.simulate.virtual_time.engine import Job
from policies import vocabulary
from policies.documents.tenancy import Sharing
from policies.engine.policyset import PolicyTables as PolicyTables
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.policy import PlacementTables
from tests.bench import hardware_trace
from tests.bench.hardware_trace import GPU, WHOLE, Trace, TraceError

WEIGHTS: Final = {"a": 3, "b": 2, "c": 1}
TOGETHER: Final = 60  # seconds between two tasks of one gang, at most
SHORTEST, LONGEST = 60, 2 * 3600
PODS: Final = "openb_pod_list_default.csv"


@dataclass(frozen=True, slots=True)
class Guess:
    """How wrong jobs are about their duration."""

    sigma: float = 0.5
    """Of the logarithm of the factor; 0.5: two of three are within 0.6 and 1.65 times."""
    silent: float = 0.1
    """The part of the jobs that says nothing."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Equal tasks that arrive together."""

    count: int
    cpu: int
    memory: int
    gpus: int
    """Of each."""
    run_time: int

    @property
    def work(self) -> int:
        """GPU seconds."""
        return self.count * self.gpus * self.run_time


def read(folder: Path) -> tuple[Trace, tuple[Gang, ...]]:
    hosts = hardware_trace.read(folder, "default")
    try:
        with (folder / PODS).open(newline="") as file:
            gangs = tuple(_gangs(csv.DictReader(file)))
    except (OSError, KeyError, ValueError) as exc:
        raise TraceError(f"{folder}: no tasks to replay ({exc}); want {PODS}") from exc
    return hosts, gangs


def _gangs(rows: Iterable[dict[str, str]]) -> Iterable[Gang]:
    groups: list[list[tuple[int, Gang]]] = []
    last: dict[tuple[int, int, int], list[tuple[int, Gang]]] = {}
    for row in sorted(rows, key=lambda row: (int(row["creation_time"]), row["name"])):
        if int(row["num_gpu"]) < 1 or int(row["gpu_milli"]) != WHOLE:
            continue
        created = int(row["creation_time"])
        run_time = int(row["deletion_time"]) - int(row["scheduled_time"] or created)
        request = int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"])
        single = created, Gang(1, *request, max(SHORTEST, min(LONGEST, run_time)))
        known = last.get(request)
        if known is not None and created - known[-1][0] <= TOGETHER:
            known.append(single)
        else:
            last[request] = [single]
            groups.append(last[request])
    for group in groups:
        longest = max(single.run_time for _, single in group)
        yield replace(group[0][1], count=len(group), run_time=longest)


def hosts(trace: Trace, every: int) -> list[Node]:
    return hardware_trace.nodes(replace(trace, hosts=trace.hosts[::every]))


def work(
    gangs: Sequence[Gang],
    gpus: int,
    *,
    demand: float,
    hours: float,
    seed: int,
    guess: Guess | None = None,
) -> list[Job]:
    """So many hours of arrivals at this demand; guesses do not change the jobs."""
    drawn = random.Random(seed)
    budget = demand * gpus * hours * 3600
    chosen: list[Gang] = []
    spent = 0
    while spent < budget:
        chosen.append(drawn.choice(gangs))
        spent += chosen[-1].work
    times = sorted(drawn.uniform(0, hours * 3600) for _ in chosen)
    names = drawn.choices(list(WEIGHTS), list(WEIGHTS.values()), k=len(chosen))
    rows = zip(chosen, times, names, strict=True)
    guessed = random.Random(f"{seed} guessed")
    return [
        _job(gang, number, at, tenant, _stated(gang, guess, guessed))
        for number, (gang, at, tenant) in enumerate(rows)
    ]


def _stated(gang: Gang, guess: Guess | None, drawn: random.Random) -> int | None:
    """Seconds; None: nothing is said."""
    if guess is None:
        return gang.run_time
    factor, silent = drawn.lognormvariate(0.0, guess.sigma), drawn.random() < guess.silent
    return None if silent else max(1, round(gang.run_time / factor))


def _job(gang: Gang, number: int, at: float, tenant: str, stated: int | None) -> Job:
    name = f"job-{number:05d}"
    pods = tuple(
        Pod.read(_pod(gang, name if gang.count == 1 else f"{name}-{i}", name, at, tenant, stated))
        for i in range(gang.count)
    )
    return Job(pods, at, float(gang.run_time))


def _pod(
    gang: Gang, name: str, group: str, at: float, tenant: str, stated: int | None
) -> dict[str, Any]:
    labels = {vocabulary.TENANT_LABEL: tenant}
    if gang.count > 1:
        labels[vocabulary.GANG_NAME_LABEL] = group
        labels[vocabulary.GANG_MIN_AVAILABLE_LABEL] = str(gang.count)
    amounts = {"cpu": f"{gang.cpu}m", "memory": f"{gang.memory}Mi", GPU: str(gang.gpus)}
    whole = int(at)
    stamp = f"2026-01-{1 + whole // 86400:02d}T{whole // 3600 % 24:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}Z"
    return {
        "metadata": {
            "name": name,
            "namespace": tenant,
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": {vocabulary.EXPECTED_DURATION_ANNOTATION: f"{stated}s"}
            if stated
            else {},
            "creationTimestamp": stamp,
        },
        "spec": {
            "schedulerName": vocabulary.SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"requests": amounts}}],
        },
        "status": {"phase": "Pending"},
    }


def tables(half_life: str = "1h") -> PlacementTables:
    """The three tenants with their weights."""
    tenants = [{"name": name, "weight": weight} for name, weight in WEIGHTS.items()]
    sharing = Sharing.model_validate({"halfLife": half_life, "tenants": tenants})
    return PlacementTables(policy=PolicyTables({}, {}, {}, (), sharing=sharing))
