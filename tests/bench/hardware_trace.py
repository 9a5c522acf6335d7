"""
A recorded GPU cluster, replayed: the hosts of the trace, and its whole-GPU tasks as they arrived.

The files are those of the public trace `cluster-trace-gpu-v2023` (`openb_*.csv`):

    nodes   sn, cpu_milli, memory_mib, gpu, model
    pods    name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, …, in the order of arrival

A whole-GPU task requests one GPU or more and 1000 thousandths of each; `gpu_spec` names the models
it runs on, `|` between them. Arrivals are inflated: after the last task of the trace, tasks drawn
from it with a seed arrive until all of them together request some multiple of the GPUs. No task
ends, and a task that fits no host is dropped.
"""

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from policies import vocabulary
from scheduler.model import unit as units
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.model.unit import Unit

NODES: Final = "openb_node_list_gpu_node.csv"
WHOLE: Final = 1000
GPU: Final = vocabulary.GPU_RESOURCES[0]
MODEL: Final = vocabulary.GPU_MODEL_LABEL


class TraceError(Exception):
    """The files of the trace are not in the folder, or are something else."""


@dataclass(frozen=True, slots=True)
class Task:
    cpu: int
    memory: int
    """Mebibytes."""
    gpus: int
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Trace:
    hosts: tuple[Host, ...]
    tasks: tuple[Task, ...]

    @property
    def gpus(self) -> int:
        return sum(host.gpus for host in self.hosts)


def read(folder: Path, pods: str) -> Trace:
    """`pods`: which list of tasks, `default` or `multigpu20`."""
    try:
        hosts = tuple(
            Host(
                row["sn"],
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["gpu"]),
                row["model"],
            )
            for row in _rows(folder / NODES)
        )
        tasks = tuple(_tasks(_rows(folder / f"openb_pod_list_{pods}.csv")))
    except (OSError, KeyError, ValueError) as exc:
        raise TraceError(
            f"{folder}: no trace to replay ({exc}); want {NODES} and openb_pod_list_{pods}.csv "
            "of the public cluster-trace-gpu-v2023, give their folder with --trace"
        ) from exc
    return Trace(hosts, tasks)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _tasks(rows: Sequence[dict[str, str]]) -> Iterator[Task]:
    for row in rows:
        gpus = int(row["num_gpu"])
        if gpus >= 1 and int(row["gpu_milli"]) == WHOLE:
            models = tuple(filter(None, (row.get("gpu_spec") or "").split("|")))
            yield Task(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, models)


def arrivals(trace: Trace, *, demand: float, seed: int) -> list[Task]:
    """The trace once in its order, then tasks drawn from it until `demand` times all GPUs."""
    drawn = random.Random(seed)
    tasks = list(trace.tasks)
    wanted = sum(task.gpus for task in tasks)
    while wanted < demand * trace.gpus:
        tasks.append(drawn.choice(trace.tasks))
        wanted += tasks[-1].gpus
    return tasks


# --- as the scheduler sees them ---


def nodes(trace: Trace) -> list[Node]:
    return [
        Node.read(
            {
                "metadata": {"name": host.name, "labels": {MODEL: host.model}},
                "status": {
                    "allocatable": {
                        "cpu": f"{host.cpu}m",
                        "memory": f"{host.memory}Mi",
                        "pods": "110",
                        GPU: str(host.gpus),
                    }
                },
            }
        )
        for host in trace.hosts
    ]


def unit(task: Task, number: int) -> Unit:
    [single] = units.units([Pod.read(_pod(task, number))])
    return single


def _pod(task: Task, number: int) -> dict[str, Any]:
    amounts = {"cpu": f"{task.cpu}m", "memory": f"{task.memory}Mi", GPU: str(task.gpus)}
    spec: dict[str, Any] = {
        "schedulerName": vocabulary.SCHEDULER_NAME,
        "containers": [{"name": "main", "resources": {"requests": amounts}}],
    }
    if task.models:
        match = {"key": MODEL, "operator": "In", "values": list(task.models)}
        required = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    name = f"task-{number:05d}"
    return {
        "metadata": {"name": name, "namespace": "trace", "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"phase": "Pending"},
    }
