"""
The pods that a workload's controller makes.

Names are counted instead of drawn (`train-0`, `train-1`), so that two runs agree. Each pod gets
an ownerReference to the workload and the labels that the Job and StatefulSet controllers add;
for other kinds the template says everything that admission and placement read. Controllers in
between (a Deployment's ReplicaSet, a CronJob's Job) are passed over.
"""

import copy
import uuid
from collections.abc import Iterator
from typing import Final

from policies.json_fields import Json, JsonDict, mapping
from policies.pods import workloads
from policies.pods.workloads import PodTemplate

MOST_PODS: Final = 10_000  # of one workload
_UIDS: Final = uuid.UUID("6f1d9c1e-5d0b-4b7e-9a53-0d1f6f0c2b11")  # any fixed name space will do


class TooManyError(ValueError):
    """The workload makes more pods than are simulated."""


def uid(kind: str, namespace: str, name: str) -> str:
    """The same for the same object in every run."""
    return str(uuid.uuid5(_UIDS, f"{kind}/{namespace}/{name}"))


def pods(workload: JsonDict) -> list[JsonDict]:
    """The pods that the workload is or makes at one time; none where the number is unknown."""
    templates = workloads.pods_of(workload)
    if workload["kind"] == "Pod":
        return [copy.deepcopy(workload)]
    total = sum(template.count or 0 for template in templates) * _groups(workload)
    if total > MOST_PODS:
        raise TooManyError(f"makes {total} pods, at most {MOST_PODS} are simulated; request fewer")
    if _spec(workload).get("suspend") is True:
        return []
    several = len(templates) > 1
    return [
        _pod(workload, template, f"{stem}-{index}", index)
        for template in templates
        for stem in _stems(workload, template.role if several else "")
        for index in range(template.count or 0)
    ]


def why_none(workload: JsonDict) -> str:
    """Why a workload makes no pods."""
    if _spec(workload).get("suspend") is True:
        return "suspended: makes no pods until spec.suspend is false"
    if workload["kind"] == "DaemonSet":
        return "its controller makes one pod for each node and names the node itself"
    return "makes no pods"


def _groups(workload: JsonDict) -> int:
    """A LeaderWorkerSet's templates describe one of its groups; other kinds have one."""
    if workload["kind"] != "LeaderWorkerSet":
        return 1
    replicas = _spec(workload).get("replicas", 1)
    return replicas if isinstance(replicas, int) and replicas >= 0 else 1


def _stems(workload: JsonDict, role: str) -> Iterator[str]:
    name = str(workload["metadata"]["name"])
    role = f"-{role.lower()}" if role else ""
    if workload["kind"] != "LeaderWorkerSet":
        yield f"{name}{role}"
        return
    for group in range(_groups(workload)):
        yield f"{name}-{group}{role}"


def _pod(workload: JsonDict, template: PodTemplate, name: str, index: int) -> JsonDict:
    owner = workload["metadata"]
    given = template.pod.get("metadata") or {}
    labels = dict(given.get("labels") or {})
    annotations = dict(given.get("annotations") or {})
    _add_job_labels(workload, labels, annotations, index)
    if workload["kind"] == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = name
        labels["apps.kubernetes.io/pod-index"] = str(index)
    metadata: JsonDict = {
        "name": name,
        "namespace": owner["namespace"],
        "uid": uid("Pod", owner["namespace"], name),
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": workload["apiVersion"],
                "kind": workload["kind"],
                "name": owner["name"],
                "uid": owner["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": copy.deepcopy(dict(template.pod.get("spec") or {})),
    }


def _add_job_labels(
    workload: JsonDict, labels: dict[str, str], annotations: dict[str, str], index: int
) -> None:
    if workload["kind"] != "Job" or workload["apiVersion"] != "batch/v1":
        return
    owner = workload["metadata"]
    for key in ("batch.kubernetes.io/job-name", "job-name"):
        labels[key] = owner["name"]
    for key in ("batch.kubernetes.io/controller-uid", "controller-uid"):
        labels[key] = owner["uid"]
    if _spec(workload).get("completionMode") == "Indexed":
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
        annotations["batch.kubernetes.io/job-completion-index"] = str(index)


def _spec(workload: JsonDict) -> Json:
    return mapping(workload.get("spec"))
