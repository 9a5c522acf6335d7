"""
Where each kind of workload keeps its pod templates, and how many pods it makes of each.

One table; adding a kind is adding a row. `pods_of` turns an object of a known kind into
`PodTemplate` values: the path of the template inside the object, the template itself shaped as
a pod, and the number of pods that will exist at the same time (None where nobody can know).
An unknown kind has no templates; so has a known kind whose fields are missing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One kind of pod that a workload makes."""

    path: str
    pod: Json
    count: int | None
    role: str = ""


Finder = Callable[[Json], Iterator[PodTemplate]]


def pods_of(obj: Json) -> list[PodTemplate]:
    """The pods that an object is or will make; empty where its kind makes none that is known."""
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    find = KINDS.get((group, str(obj.get("kind") or "")))
    return list(find(obj)) if find else []


def _pod(obj: Json) -> Iterator[PodTemplate]:
    yield PodTemplate("", obj, 1)


def _at(obj: object, *path: str) -> Any:
    """The value below `path`, or None where a step is missing or no map."""
    for step in path:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(step)
    return obj


def _whole(value: object, default: int | None) -> int | None:
    """A replica count: the value where it is a whole number, the default where it is missing."""
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _template(
    obj: Json, path: tuple[str, ...], count: int | None, role: str = ""
) -> Iterator[PodTemplate]:
    found = _at(obj, *path)
    if isinstance(found, Mapping):
        yield PodTemplate(".".join(path), found, count, role)


def _times(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b


def _replicated(*path: str) -> Finder:
    """`spec.replicas` pods of the template at `path`."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        yield from _template(obj, path, _whole(_at(obj, "spec", "replicas"), 1))

    return find


def _uncounted(*path: str) -> Finder:
    """Pods of the template at `path`, in a number that nobody can know at admission."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        yield from _template(obj, path, None)

    return find


def _job_count(spec: object) -> int | None:
    """Pods of a Job at one time: its parallelism, but never more than it has completions."""
    parallelism = _whole(_at(spec, "parallelism"), 1)
    completions = _whole(_at(spec, "completions"), None)
    if parallelism is None or completions is None:
        return parallelism
    return min(parallelism, completions)


def _job(*path: str) -> Finder:
    def find(obj: Json) -> Iterator[PodTemplate]:
        spec = _at(obj, *path)
        yield from _template(obj, (*path, "template"), _job_count(spec))

    return find


def _jobset(obj: Json) -> Iterator[PodTemplate]:
    for index, job in enumerate(_list(_at(obj, "spec", "replicatedJobs"))):
        spec = _at(job, "template", "spec")
        template = _at(spec, "template")
        if isinstance(template, Mapping):
            count = _times(_whole(_at(job, "replicas"), 1), _job_count(spec))
            path = f"spec.replicatedJobs[{index}].template.spec.template"
            yield PodTemplate(path, template, count, str(_at(job, "name") or ""))


def _kubeflow(field: str) -> Finder:
    """`spec.<field>` maps a role to `{replicas, template}`."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        roles = _at(obj, "spec", field)
        for role in sorted(roles) if isinstance(roles, Mapping) else ():
            part = roles[role]
            template = _at(part, "template")
            if isinstance(template, Mapping):
                count = _whole(_at(part, "replicas"), 1)
                yield PodTemplate(f"spec.{field}.{role}.template", template, count, role)

    return find


def _ray(*prefix: str) -> Finder:
    def find(obj: Json) -> Iterator[PodTemplate]:
        head = (*prefix, "headGroupSpec", "template")
        yield from _template(obj, head, 1, "head")
        for index, group in enumerate(_list(_at(obj, *prefix, "workerGroupSpecs"))):
            template = _at(group, "template")
            if isinstance(template, Mapping):
                count = _times(
                    _whole(_at(group, "replicas"), 0), _whole(_at(group, "numOfHosts"), 1)
                )
                path = f"{'.'.join(prefix)}.workerGroupSpecs[{index}].template"
                yield PodTemplate(path, template, count, str(_at(group, "groupName") or "worker"))

    return find


def _spark(*prefix: str) -> Finder:
    """Spark keeps no pod templates but a driver and an executor block with a pod's metadata."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        for role, count in (
            ("driver", 1),
            ("executor", _whole(_at(obj, *prefix, "executor", "instances"), 1)),
        ):
            part = _at(obj, *prefix, role)
            if isinstance(part, Mapping):
                metadata = {"labels": part.get("labels"), "annotations": part.get("annotations")}
                pod = {"metadata": metadata, "spec": {}}
                yield PodTemplate(f"{'.'.join(prefix)}.{role}", pod, count, role)

    return find


def _leader_worker_set(obj: Json) -> Iterator[PodTemplate]:
    """Each of `replicas` groups is one leader and `size - 1` workers; the group is the gang."""
    size = _whole(_at(obj, "spec", "leaderWorkerTemplate", "size"), 1)
    base = ("spec", "leaderWorkerTemplate")
    has_leader = isinstance(_at(obj, *base, "leaderTemplate"), Mapping)
    yield from _template(obj, (*base, "leaderTemplate"), 1, "leader")
    workers = None if size is None else (size - 1 if has_leader else size)
    yield from _template(obj, (*base, "workerTemplate"), workers, "worker")


def _volcano(obj: Json) -> Iterator[PodTemplate]:
    for index, task in enumerate(_list(_at(obj, "spec", "tasks"))):
        template = _at(task, "template")
        if isinstance(template, Mapping):
            count = _whole(_at(task, "replicas"), 1)
            role = str(_at(task, "name") or "")
            yield PodTemplate(f"spec.tasks[{index}].template", template, count, role)


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


# (API group, kind) -> where its pods are. The version does not matter: the API server converts.
KINDS: Final[Mapping[tuple[str, str], Finder]] = {
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicated("spec", "template"),
    ("", "PodTemplate"): _uncounted("template"),
    ("apps", "Deployment"): _replicated("spec", "template"),
    ("apps", "StatefulSet"): _replicated("spec", "template"),
    ("apps", "ReplicaSet"): _replicated("spec", "template"),
    ("apps", "DaemonSet"): _uncounted("spec", "template"),
    ("batch", "Job"): _job("spec"),
    ("batch", "CronJob"): _job("spec", "jobTemplate", "spec"),
    ("jobset.x-k8s.io", "JobSet"): _jobset,
    ("kubeflow.org", "PyTorchJob"): _kubeflow("pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _kubeflow("tfReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _kubeflow("mpiReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _kubeflow("xgbReplicaSpecs"),
    ("kubeflow.org", "PaddleJob"): _kubeflow("paddleReplicaSpecs"),
    ("kubeflow.org", "JAXJob"): _kubeflow("jaxReplicaSpecs"),
    ("ray.io", "RayCluster"): _ray("spec"),
    ("ray.io", "RayJob"): _ray("spec", "rayClusterSpec"),
    ("ray.io", "RayService"): _ray("spec", "rayClusterConfig"),
    ("sparkoperator.k8s.io", "SparkApplication"): _spark("spec"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _spark("spec", "template"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("batch.volcano.sh", "Job"): _volcano,
}


def resources_by_group() -> dict[str, list[str]]:
    """API group -> the resource names of its kinds in the table, all in order."""
    groups: dict[str, list[str]] = {}
    for group, kind in sorted(KINDS):
        groups.setdefault(group, []).append(plural(kind))
    return groups


def plural(kind: str) -> str:
    """The resource name of a kind of the table; all of them are formed regularly."""
    return f"{kind.lower()}s"
