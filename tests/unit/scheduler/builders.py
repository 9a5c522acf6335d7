"""Pods and nodes in a few words. They go through the real decoding, as from the API server."""

from typing import Any

from policies import vocabulary
from scheduler.model.assignment import NO_ASSIGNMENT, Assignment
from scheduler.model.node import Node
from scheduler.model.plan import Placement
from scheduler.model.pod import Pod

Json = dict[str, Any]


def pod_json(
    name: str = "p",
    *,
    cpu: str = "1",
    memory: str | None = None,
    gpus: int = 0,
    gang: tuple[str, int] | None = None,
    numa: str | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    uid: str | None = None,
    node: str | None = None,
    status: Json | None = None,
    deleted: bool = False,
    **spec: Any,
) -> Json:
    words = dict(labels or {})
    notes = dict(annotations or {})
    if gang is not None:
        words[vocabulary.GANG_NAME_LABEL] = gang[0]
        words[vocabulary.GANG_MIN_AVAILABLE_LABEL] = str(gang[1])
    if numa is not None:
        notes[vocabulary.NUMA_POLICY_ANNOTATION] = numa
    amounts = {"cpu": cpu}
    if memory is not None:
        amounts["memory"] = memory
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "labels": words,
            "annotations": notes,
            "creationTimestamp": created,
            **({"deletionTimestamp": "2026-01-02T00:00:00Z"} if deleted else {}),
        },
        "spec": {
            "schedulerName": vocabulary.SCHEDULER_NAME,
            "containers": [{"name": "c", "resources": {"requests": amounts}}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": status or {"phase": "Pending"},
    }


def a_pod(name: str = "p", **more: Any) -> Pod:
    return Pod.read(pod_json(name, **more))


def a_gang(count: int, *, size: int | None = None, name: str = "g", **more: Any) -> list[Pod]:
    return [a_pod(f"{name}-{i}", gang=(name, size or count), **more) for i in range(count)]


def a_node(
    name: str = "n",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    gpus: int = 0,
    zones: int = 0,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    """With `zones`, CPUs, memory and GPUs are split evenly over so many NUMA nodes."""
    words = {**numa_labels(int(cpu), memory, gpus, zones), **(labels or {})}
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    return Node.read(
        {
            "metadata": {"name": name, "labels": words},
            "spec": spec,
            "status": {"allocatable": amounts},
        }
    )


def numa_labels(cpus: int, memory: str, gpus: int, zones: int) -> dict[str, str]:
    if not zones:
        return {}
    words = {vocabulary.NUMA_NODE_COUNT_LABEL: str(zones)}
    each = cpus // zones
    for zone in range(zones):
        words[vocabulary.numa_node_label(zone, "cpus")] = f"{zone * each}-{(zone + 1) * each - 1}"
        size = int(memory.removesuffix("Gi")) // zones
        words[vocabulary.numa_node_label(zone, "memory")] = f"{size}Gi"
    for gpu in range(gpus):
        words[vocabulary.gpu_numa_labels(gpu)[0]] = str(gpu * zones // gpus)
    return words


def placed(pod: Pod, node: str, assignment: Assignment = NO_ASSIGNMENT) -> Placement:
    return Placement(pod, node, assignment)
