"""
Where each kind of workload keeps its pod templates, and how many pods it makes of each.

One table; adding a kind is adding a row. `pods_of` turns an object of a known kind into
`PodTemplate` values: the path of the template inside the object, the template itself shaped as
a pod, and the number of pods that will exist at the same time (None where admission cannot know,
and at least that many where an autoscaler may add to them).
An unknown kind has no templates; so has a known kind whose fields are missing.
`scaled` is an object after a write to its `scale`, which carries a number only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from policies.bounds import MOST_TEMPLATES
from policies.json_fields import Json, mapping


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One kind of pod that a workload makes."""

    path: str
    pod: Json
    count: int | None
    role: str = ""
    elastic: bool = False
    """An autoscaler may make more of them than `count`."""
    bare: bool = False
    """Labels and annotations stand at `path` itself, not in a `metadata` below it."""
    together: str = ""
    """The setting that would start the pods together, where they start one after another."""
    auxiliary: bool = False
    """Does no work of its own, so that a gang is complete without it."""

    def place(self, field: str) -> str:
        """Where a field of the pod stands in the object."""
        if self.bare:
            field = field.removeprefix("metadata.")
        return f"{self.path}.{field}" if self.path else field


Finder = Callable[[Json], Iterator[PodTemplate]]


def pods_of(obj: Json) -> list[PodTemplate]:
    """
    The pods that an object is or will make; empty where its kind makes none that is known.

    Of an object beyond the bound, one more than the bound allows: admission denies it.
    """
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    find = KINDS.get((group, str(obj.get("kind") or "")))
    return list(islice(find(obj), MOST_TEMPLATES + 1)) if find else []


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
    template = _at(obj, *path)
    if isinstance(template, Mapping):
        yield PodTemplate(".".join(path), template, count, role)


def _times(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b


def _replicated(*path: str) -> Finder:
    """`spec.replicas` pods of the template at `path`."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        yield from _template(obj, path, _whole(_at(obj, "spec", "replicas"), 1))

    return find


def _stateful(obj: Json) -> Iterator[PodTemplate]:
    parallel = _at(obj, "spec", "podManagementPolicy") == "Parallel"
    for part in _replicated("spec", "template")(obj):
        yield part if parallel else replace(part, together="spec.podManagementPolicy: Parallel")


def _uncounted(*path: str) -> Finder:
    """Pods of the template at `path`, in a number that admission cannot know."""

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
    order = ("spec", "startupPolicy", "startupPolicyOrder")
    together = f"{'.'.join(order)}: AnyOrder" if _at(obj, *order) == "InOrder" else ""
    for index, job in enumerate(_list(_at(obj, "spec", "replicatedJobs"))):
        spec = _at(job, "template", "spec")
        template = _at(spec, "template")
        if isinstance(template, Mapping):
            count = _times(_whole(_at(job, "replicas"), 1), _job_count(spec))
            path = f"spec.replicatedJobs[{index}].template.spec.template"
            name = str(_at(job, "name") or "")
            yield PodTemplate(path, template, count, name, together=together)


def _kubeflow(field: str) -> Finder:
    """`spec.<field>` maps a role to `{replicas, template}`; an elastic job adds workers."""

    def find(obj: Json) -> Iterator[PodTemplate]:
        roles = _at(obj, "spec", field)
        elastic = isinstance(_at(obj, "spec", "elasticPolicy"), Mapping)
        for role in sorted(roles) if isinstance(roles, Mapping) else ():
            part = roles[role]
            template = _at(part, "template")
            if isinstance(template, Mapping):
                count = _whole(_at(part, "replicas"), 1)
                path = f"spec.{field}.{role}.template"
                yield PodTemplate(path, template, count, role, elastic and role == "Worker")

    return find


def _ray(*prefix: str) -> Finder:
    def find(obj: Json) -> Iterator[PodTemplate]:
        elastic = _at(obj, *prefix, "enableInTreeAutoscaling") is True
        head = (*prefix, "headGroupSpec", "template")
        yield from _template(obj, head, 1, "head")
        for index, group in enumerate(_list(_at(obj, *prefix, "workerGroupSpecs"))):
            template = _at(group, "template")
            if isinstance(template, Mapping):
                count = _times(
                    _whole(_at(group, "replicas"), 0), _whole(_at(group, "numOfHosts"), 1)
                )
                path = f"{'.'.join(prefix)}.workerGroupSpecs[{index}].template"
                role = str(_at(group, "groupName") or "worker")
                yield PodTemplate(path, template, count, role, elastic)

    return find


def _ray_job(obj: Json) -> Iterator[PodTemplate]:
    """The cluster's pods, and the one that only hands the work to them."""
    yield from _ray("spec", "rayClusterSpec")(obj)
    for part in _template(obj, ("spec", "submitterPodTemplate"), 1, "submitter"):
        yield replace(part, auxiliary=True)


def _spark(*prefix: str) -> Finder:
    """
    Spark has a driver and an executor block with a pod's labels and annotations.

    A block may hold a pod template too; the block's own fields win.
    """

    def find(obj: Json) -> Iterator[PodTemplate]:
        dynamic = _at(obj, *prefix, "dynamicAllocation", "enabled") is True
        for role, count in (
            ("driver", 1),
            ("executor", _whole(_at(obj, *prefix, "executor", "instances"), 1)),
        ):
            part = _at(obj, *prefix, role)
            if isinstance(part, Mapping):
                pod = _merged((_at(part, "template"), {"metadata": part}))
                elastic = dynamic and role == "executor"
                yield PodTemplate(
                    f"{'.'.join(prefix)}.{role}", pod, count, role, elastic, bare=True
                )

    return find


def _merged(layers: Iterable[object]) -> Json:
    """One pod of several layers with parts of it; the later ones win."""
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    for layer in layers:
        labels.update(mapping(_at(layer, "metadata", "labels")))
        annotations.update(mapping(_at(layer, "metadata", "annotations")))
        spec.update(mapping(_at(layer, "spec")))
    metadata = {"labels": labels, "annotations": annotations}
    return {"metadata": {key: value for key, value in metadata.items() if value}, "spec": spec}


# Jobs of Kubeflow's runtimes that always run one pod.
_SINGLE_JOBS: Final = frozenset({"dataset-initializer", "model-initializer", "launcher"})


def _train_job(obj: Json) -> Iterator[PodTemplate]:
    """
    A TrainJob has no pod templates: it patches those of a runtime, which is another object.

    One template for each job that it patches, and one for the job `node`, which does the training;
    what only the runtime defines is unknown. Two generations of the API patch in two ways.
    """
    patches: dict[str, list[tuple[str, object]]] = {}  # job -> where and what, the later ones win
    for path, job, patch in (*_overrides(obj), *_runtime_patches(obj)):
        patches.setdefault(job, []).append((path, patch))
    trainer = _at(obj, "spec", "trainer")
    if isinstance(trainer, Mapping):
        patches.setdefault("node", [])
    for job, layers in patches.items():
        pod = _merged(patch for _, patch in layers)
        count = 1 if job in _SINGLE_JOBS else None
        if job == "node":
            count = _whole(_at(trainer, "numNodes"), None)
            pod = _merged((pod, {"spec": _trainer_spec(trainer)}))
        named = [path for path, patch in layers if _at(patch, "metadata") is not None]
        paths = named or [path for path, _ in layers] or ["spec.trainer"]
        yield PodTemplate(paths[-1], pod, count, job)


def _overrides(obj: Json) -> Iterator[tuple[str, str, object]]:
    for index, override in enumerate(_list(_at(obj, "spec", "podTemplateOverrides"))):
        for target in _list(_at(override, "targetJobs")):
            path = f"spec.podTemplateOverrides[{index}]"
            yield path, str(_at(target, "name") or ""), override


def _runtime_patches(obj: Json) -> Iterator[tuple[str, str, object]]:
    below = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
    for index, patch in enumerate(_list(_at(obj, "spec", "runtimePatches"))):
        for number, job in enumerate(_list(_at(patch, *below))):
            path = f"spec.runtimePatches[{index}].{'.'.join(below)}[{number}]"
            template = _at(job, "template", "spec", "template")
            yield f"{path}.template.spec.template", str(_at(job, "name") or ""), template


def _trainer_spec(trainer: object) -> Json:
    """The training container as far as the TrainJob defines it."""
    fields = {"image": _at(trainer, "image"), "resources": _at(trainer, "resourcesPerNode")}
    known = {key: value for key, value in fields.items() if value is not None}
    return {"containers": [{"name": "node", **known}]} if known else {}


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


# (API group, kind) -> where its pods are: in the same place in every version that is served.
KINDS: Final[Mapping[tuple[str, str], Finder]] = {
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replicated("spec", "template"),
    ("", "PodTemplate"): _uncounted("template"),
    ("apps", "Deployment"): _replicated("spec", "template"),
    ("apps", "StatefulSet"): _stateful,
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
    ("ray.io", "RayJob"): _ray_job,
    ("ray.io", "RayService"): _ray("spec", "rayClusterConfig"),
    ("sparkoperator.k8s.io", "SparkApplication"): _spark("spec"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _spark("spec", "template"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("batch.volcano.sh", "Job"): _volcano,
}

_REPLICAS: Final = ("spec", "replicas")


def _workers(field: str) -> tuple[str, ...]:
    return ("spec", field, "Worker", "replicas")


# (API group, kind) -> the count that a write to its `scale` sets, where it counts pods.
SCALED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "ReplicationController"): _REPLICAS,
    ("apps", "Deployment"): _REPLICAS,
    ("apps", "ReplicaSet"): _REPLICAS,
    ("apps", "StatefulSet"): _REPLICAS,
    ("kubeflow.org", "PyTorchJob"): _workers("pytorchReplicaSpecs"),
    ("kubeflow.org", "TFJob"): _workers("tfReplicaSpecs"),
    ("kubeflow.org", "MPIJob"): _workers("mpiReplicaSpecs"),
    ("kubeflow.org", "XGBoostJob"): _workers("xgbReplicaSpecs"),
    ("kubeflow.org", "PaddleJob"): _workers("paddleReplicaSpecs"),
    ("kubeflow.org", "JAXJob"): _workers("jaxReplicaSpecs"),
}


def scaled_kind(group: str, resource: str) -> str | None:
    """The kind whose `scale` counts pods, by its resource name."""
    kinds = (kind for of, kind in SCALED if of == group and plural(kind) == resource)
    return next(kinds, None)


def scaled(obj: Json, count: int) -> Json:
    """The object once its `scale` is `count`; a kind without one stays as it is."""
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    path = SCALED.get((group, str(obj.get("kind") or "")))
    return _with(obj, path, count) if path else obj


def _with(obj: Json, path: Sequence[str], value: object) -> Json:
    step, *rest = path
    return {**obj, step: _with(mapping(obj.get(step)), rest, value) if rest else value}


def resources_by_group() -> dict[str, list[str]]:
    """API group -> the resource names of its kinds in the table, all in order."""
    groups: dict[str, list[str]] = {}
    for group, kind in sorted(KINDS):
        groups.setdefault(group, []).append(plural(kind))
    return groups


def plural(kind: str) -> str:
    """The resource name of a kind of the table; all of them are formed regularly."""
    return f"{kind.lower()}s"
