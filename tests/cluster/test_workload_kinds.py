"""Every kind of workload at `kubectl apply`: a gang that cannot be placed is refused there."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.api import path_of
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import Stack
from policies import vocabulary
from policies.pods import workloads
from tests.builders import a_pod, a_template, in_gang
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]

HOME = "test-kinds"
CRDS = sorted((Path(__file__).parent / "crds").glob("*.yaml"))
MIN = vocabulary.GANG_MIN_AVAILABLE_LABEL


@dataclass(frozen=True, slots=True)
class Row:
    """A kind whose templates make `makes` pods in all; None: they cannot be counted."""

    api_version: str
    kind: str
    makes: int | None
    paths: tuple[str, ...]
    spec: Callable[[Json, Json], Json]

    @property
    def id(self) -> str:
        return f"{self.kind} of {self.api_version}"

    @property
    def name(self) -> str:
        """One for each row, and for its gang: two rows never mean the same pods."""
        version = self.api_version.replace("/", "-").replace(".", "-")
        return f"{self.kind.lower()}-{version}"

    def in_gang(self, first: int | str | None, second: int | str | None = None) -> Json:
        """The workload with the gang's size at its first template and at its second, if it has."""
        return self.with_labels(in_gang(self.name, first), in_gang(self.name, second))

    def with_labels(self, first: Mapping[str, str], second: Mapping[str, str]) -> Json:
        restart = "Never" if self.kind in ("Job", "CronJob") else "Always"
        one, other = (
            a_template(a_pod(labels={"app": self.name, **labels}, restartPolicy=restart))
            for labels in (first, second)
        )
        found = self.spec(one, other)
        metadata = {"name": self.name, "namespace": HOME, **found.get("metadata", {})}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            **found,
            "metadata": metadata,
        }


def selecting(**spec: Any) -> Callable[[Json, Json], Json]:
    return lambda one, _: {
        "spec": {"selector": {"matchLabels": selector(one)}, "template": one, **spec}
    }


def selector(template: Json) -> Json:
    return {"app": template["metadata"]["labels"]["app"]}


def kubeflow(kind: str, field: str, version: str = "v1", lead: str = "Master") -> Row:
    return Row(
        f"kubeflow.org/{version}",
        kind,
        4,
        (f"spec.{field}.{lead}.template", f"spec.{field}.Worker.template"),
        lambda one, other: {
            "spec": {field: {lead: {"template": one}, "Worker": {"replicas": 3, "template": other}}}
        },
    )


def ray(kind: str, *below: str) -> Row:
    path = ".".join(("spec", *below))

    def spec(one: Json, other: Json) -> Json:
        found: Json = {
            "headGroupSpec": {"template": one},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": other}],
        }
        for step in (*reversed(below), "spec"):
            found = {step: found}
        return found

    paths = (f"{path}.headGroupSpec.template", f"{path}.workerGroupSpecs[0].template")
    return Row("ray.io/v1", kind, 3, paths, spec)


def spark(kind: str, *below: str) -> Row:
    path = ".".join(("spec", *below))

    def spec(one: Json, other: Json) -> Json:
        found: Json = {
            "driver": {"labels": one["metadata"]["labels"]},
            "executor": {"instances": 2, "labels": other["metadata"]["labels"]},
        }
        for step in (*reversed(below), "spec"):
            found = {step: found}
        return found

    return Row(
        "sparkoperator.k8s.io/v1beta2", kind, 3, (f"{path}.driver", f"{path}.executor"), spec
    )


def of_train_job(one: Json, other: Json) -> Json:
    def override(job: str, template: Json) -> Json:
        return {"targetJobs": [{"name": job}], "metadata": template["metadata"]}

    return {
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 3},
            "podTemplateOverrides": [override("node", one), override("launcher", other)],
        }
    }


def of_job_set(one: Json, other: Json) -> Json:
    def job(name: str, template: Json, **spec: int) -> Json:
        return {"name": name, "template": {"spec": {**spec, "template": template}}}

    jobs = [job("workers", one, parallelism=3), job("driver", other)]
    return {"spec": {"replicatedJobs": jobs}}


def of_leader_worker_set(one: Json, other: Json) -> Json:
    template = {"size": 4, "leaderTemplate": one, "workerTemplate": other}
    return {"spec": {"replicas": 1, "leaderWorkerTemplate": template}}


def of_volcano(one: Json, other: Json) -> Json:
    tasks = [
        {"name": "a", "replicas": 2, "template": one},
        {"name": "b", "replicas": 1, "template": other},
    ]
    return {"spec": {"tasks": tasks}}


REPLICATED = ("spec.template",)
ROWS = [
    Row("v1", "Pod", None, ("",), lambda one, _: one),
    Row(
        "v1",
        "ReplicationController",
        2,
        REPLICATED,
        lambda one, _: {"spec": {"replicas": 2, "selector": selector(one), "template": one}},
    ),
    Row("v1", "PodTemplate", None, ("template",), lambda one, _: {"template": one}),
    Row("apps/v1", "Deployment", 2, REPLICATED, selecting(replicas=2)),
    Row(
        "apps/v1",
        "StatefulSet",
        2,
        REPLICATED,
        selecting(replicas=2, serviceName="s", podManagementPolicy="Parallel"),
    ),
    Row("apps/v1", "ReplicaSet", 2, REPLICATED, selecting(replicas=2)),
    Row("apps/v1", "DaemonSet", None, REPLICATED, selecting()),
    Row(
        "batch/v1",
        "Job",
        2,
        REPLICATED,
        lambda one, _: {"spec": {"parallelism": 2, "completions": 2, "template": one}},
    ),
    Row(
        "batch/v1",
        "CronJob",
        2,
        ("spec.jobTemplate.spec.template",),
        lambda one, _: {
            "spec": {
                "schedule": "0 0 1 1 *",
                "jobTemplate": {"spec": {"parallelism": 2, "template": one}},
            }
        },
    ),
    Row(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        4,
        tuple(f"spec.replicatedJobs[{index}].template.spec.template" for index in (0, 1)),
        of_job_set,
    ),
    kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    kubeflow("TFJob", "tfReplicaSpecs", lead="Chief"),
    kubeflow("MPIJob", "mpiReplicaSpecs", lead="Launcher"),
    kubeflow("MPIJob", "mpiReplicaSpecs", "v2beta1", lead="Launcher"),
    kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    kubeflow("PaddleJob", "paddleReplicaSpecs"),
    kubeflow("JAXJob", "jaxReplicaSpecs", lead="Coordinator"),
    Row(
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        4,
        ("spec.podTemplateOverrides[0]", "spec.podTemplateOverrides[1]"),
        of_train_job,
    ),
    spark("SparkApplication"),
    spark("ScheduledSparkApplication", "template"),
    ray("RayCluster"),
    ray("RayJob", "rayClusterSpec"),
    ray("RayService", "rayClusterConfig"),
    Row(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        4,
        ("spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"),
        of_leader_worker_set,
    ),
    Row(
        "batch.volcano.sh/v1alpha1",
        "Job",
        3,
        ("spec.tasks[0].template", "spec.tasks[1].template"),
        of_volcano,
    ),
]


def each(wanted: Callable[[Row], bool] = lambda row: True) -> list[Any]:
    return [pytest.param(row, id=row.id) for row in ROWS if wanted(row)]


def size_at(row: Row, path: str) -> str:
    """Where the size of a gang stands; Spark's blocks have labels without metadata."""
    metadata = "" if row.kind.endswith("SparkApplication") else "metadata"
    return ".".join(part for part in (path, metadata, f"labels['{MIN}']") if part)


def serves(plane: ControlPlane, group_version: str, plural: str) -> bool:
    try:
        found = plane.api().call("GET", f"/apis/{group_version}")
    except CallFailed:
        return False
    return plural in {resource["name"] for resource in found["resources"]}


@pytest.fixture(scope="module")
def home(stack: Stack, control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of a cluster that knows every kind of the table."""
    api = control_plane.api()
    definitions = [yaml.safe_load(path.read_text()) for path in CRDS]
    for item in definitions:
        api.apply(item)
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    for item in definitions:
        spec = item["spec"]
        for version in spec["versions"]:
            served = f"{spec['group']}/{version['name']}"
            eventually(partial(serves, control_plane, served, spec["names"]["plural"]), served)
    eventually(partial(control_plane.has_default_account, HOME), "a service account")
    yield HOME
    api.call("DELETE", f"/api/v1/namespaces/{HOME}")
    for item in definitions:
        api.call("DELETE", path_of(item))


def applied(kubectl: Kubectl, obj: Json) -> tuple[bool, str]:
    """Whether the object was let in, and what kubectl printed besides."""
    got = kubectl("apply", "-f", "-", input=json.dumps(obj))
    return got.returncode == 0, got.stderr


def another(obj: Json) -> Json:
    """The same under a name that no object has: what exists may be immutable."""
    metadata = obj["metadata"]
    return obj | {"metadata": metadata | {"name": f"other-{metadata['name']}"}}


def test_every_kind_of_the_table_has_a_row() -> None:
    shown = {(row.api_version.rpartition("/")[0], row.kind) for row in ROWS}
    assert shown == set(workloads.KINDS)


@pytest.mark.parametrize("row", each())
def test_a_good_gang_is_let_in(home: str, kubectl: Kubectl, row: Row) -> None:
    size = row.makes or 1
    assert applied(kubectl, row.in_gang(size, size)) == (True, "")


@pytest.mark.parametrize("row", each(lambda row: row.makes is not None))
def test_a_gang_that_its_owner_never_makes_is_refused(
    home: str, kubectl: Kubectl, row: Row
) -> None:
    makes = row.makes or 0
    admitted, said = applied(kubectl, another(row.in_gang(makes + 1, makes + 1)))
    line = (
        f"kubenexus/gang-size: {MIN} is {makes + 1} but the workload makes {makes} pods of group "
        f"'{row.name}' at a time ({size_at(row, row.paths[0])}): "
        f"lower min-available to {makes} or less, or run {makes + 1} pods at a time"
    )
    assert (admitted, line in said) == (False, True), said


@pytest.mark.parametrize("row", each(lambda row: row.makes is None))
def test_an_unknown_size_is_denied_where_pods_cannot_be_counted(
    home: str, kubectl: Kubectl, row: Row
) -> None:
    admitted, said = applied(kubectl, another(row.in_gang("four")))
    line = (
        f"kubenexus/gang-size: {MIN}: found 'four', want a whole number of at least 1 "
        f"({size_at(row, row.paths[0])}): correct the value or remove the key"
    )
    assert (admitted, line in said) == (False, True), said


@pytest.mark.parametrize("row", each(lambda row: len(row.paths) > 1))
def test_members_that_disagree_are_refused(home: str, kubectl: Kubectl, row: Row) -> None:
    admitted, said = applied(kubectl, another(row.in_gang(2, 3)))
    first, second = row.paths
    line = (
        f"kubenexus/gang-members-disagree: min-available is 2 at {first} and 3 at {second} "
        f"({size_at(row, second)}): give every member of the group the same min-available"
    )
    assert (admitted, line in said) == (False, True), said


@pytest.mark.parametrize("row", each(lambda row: len(row.paths) > 1))
def test_templates_outside_the_gang_are_warned_about(home: str, kubectl: Kubectl, row: Row) -> None:
    obj = another(row.with_labels(in_gang(row.name, 1), {}))
    first, second = row.paths
    line = (
        f"Warning: {second} belongs to no group while {first} does: its pods start on their own\n"
    )
    assert applied(kubectl, obj) == (True, line)
