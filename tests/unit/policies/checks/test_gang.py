from collections.abc import Callable
from typing import Any

import pytest

from policies import vocabulary
from policies.checks import gang
from policies.checks.numa import Size
from policies.pods.members import members_of
from tests.builders import a_container, a_job, a_pod, a_template, in_gang

Json = dict[str, Any]
MIN = vocabulary.GANG_MIN_AVAILABLE_LABEL
ELSEWHERE = (
    f"; where others make the rest, label the template with its {vocabulary.GANG_ROLE_LABEL}"
)


def a_pytorch_job(master: Json, worker: Json, replicas: int = 3) -> Json:
    roles = {
        "Master": {"replicas": 1, "template": a_template(master)},
        "Worker": {"replicas": replicas, "template": a_template(worker)},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": roles},
    }


def a_spark_application(driver: Json, executor: Json, *, dynamic: bool = False) -> Json:
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "spec": {
            "driver": {"labels": driver},
            "executor": {"labels": executor, "instances": 2},
            "dynamicAllocation": {"enabled": dynamic},
        },
    }


def a_stateful_set(pod: Json, **spec: Any) -> Json:
    spec = {"replicas": 4, "template": a_template(pod), **spec}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec}


def a_ray_job(member: Json, submitter: Json) -> Json:
    group = {"groupName": "w", "replicas": 3, "template": a_template(member)}
    cluster = {"headGroupSpec": {"template": a_template(member)}, "workerGroupSpecs": [group]}
    spec = {"rayClusterSpec": cluster, "submitterPodTemplate": a_template(submitter)}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": spec}


def with_number(pod: Json) -> Json:
    """With a size that is no text, as a template of a custom kind may have it."""
    return {**pod, "metadata": {**pod["metadata"], "labels": {**in_gang(size=None), MIN: 4}}}


def owned(obj: Json) -> Json:
    reference = {"kind": "JobSet", "name": "s", "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


ROLE = vocabulary.GANG_ROLE_LABEL
ORDERED = (
    "the pods of group 'g' start together or not at all, but their workload starts one after "
    "another: set spec.podManagementPolicy: Parallel"
)
GANG = a_pod(labels=in_gang())
UNSIZED = a_pod(labels=in_gang(size=None))
LOCAL = a_pod(annotations={vocabulary.GANG_GROUP_ANNOTATION: "g"})
WARNED = (
    "group 'g' has no size: its pods are placed close together, each as soon as it fits; "
    f"set {MIN} to place them all or none"
)


@pytest.mark.parametrize(
    ("obj", "owner", "problems", "warnings"),
    [
        pytest.param(a_pod(), None, [], [], id="a pod of its own"),
        pytest.param(GANG, None, [], [], id="a bare pod of a gang that others complete"),
        pytest.param(a_job(pod=GANG, parallelism=4), None, [], [], id="a Job that makes the gang"),
        pytest.param(
            a_job(pod=GANG, parallelism=2),
            None,
            [
                f"gang-size: {MIN} is 4 but the workload makes 2 pods of group 'g' at a time "
                f"(spec.template.metadata.labels['{MIN}']): "
                "lower min-available to 2 or less, or run 4 pods at a time" + ELSEWHERE
            ],
            [],
            id="a Job that never makes the whole gang",
        ),
        pytest.param(a_job(pod=UNSIZED, parallelism=4), None, [], [], id="the Job says the size"),
        pytest.param(
            UNSIZED, a_job(pod=UNSIZED, parallelism=4), [], [], id="the pod's Job says the size"
        ),
        pytest.param(
            UNSIZED,
            None,
            [
                "gang-size: group 'g' is named without a size "
                "(metadata.labels['pod-group.scheduling.kubenexus.io/name']): "
                f"add the label {MIN} with the number of pods that must start together"
            ],
            [],
            id="no template has a size",
        ),
        pytest.param(LOCAL, None, [], [WARNED], id="a locality group without a size is a warning"),
        pytest.param(
            a_pod(labels=in_gang(size="four")),
            None,
            [
                f"gang-size: {MIN}: found 'four', want a whole number of at least 1 "
                f"(metadata.labels['{MIN}']): correct the value or remove the key"
            ],
            [],
            id="a size that cannot be read is reported once",
        ),
        pytest.param(
            a_pytorch_job(GANG, GANG),
            None,
            [],
            [],
            id="members of two templates count together",
        ),
        pytest.param(
            a_pytorch_job(GANG, a_pod(labels=in_gang(size=3))),
            None,
            [
                "gang-members-disagree: min-available is 4 at spec.pytorchReplicaSpecs.Master.template "
                "and 3 at spec.pytorchReplicaSpecs.Worker.template "
                f"(spec.pytorchReplicaSpecs.Worker.template.metadata.labels['{MIN}']): "
                "give every member of the group the same min-available"
            ],
            [],
            id="members that disagree",
        ),
        pytest.param(
            a_pytorch_job(a_pod(), a_pod(labels=in_gang(size=3))),
            None,
            [],
            [
                "spec.pytorchReplicaSpecs.Master.template belongs to no group while "
                "spec.pytorchReplicaSpecs.Worker.template does: its pods start on their own"
            ],
            id="gang and other templates in one workload",
        ),
        pytest.param(
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"template": a_template(GANG)}},
            None,
            [],
            [],
            id="a size is not compared with an unknown count",
        ),
        pytest.param(
            a_pod(labels={vocabulary.X_K8S_POD_GROUP: "g"}),
            None,
            [],
            [],
            id="a PodGroup object says the size",
        ),
        pytest.param(
            a_spark_application(in_gang(size=4), in_gang(size=9)),
            None,
            [
                "gang-members-disagree: min-available is 4 at spec.driver and 9 at spec.executor "
                f"(spec.executor.labels['{MIN}']): "
                "give every member of the group the same min-available",
                f"gang-size: {MIN} is 4 but the workload makes 3 pods of group 'g' at a time "
                f"(spec.driver.labels['{MIN}']): "
                "lower min-available to 3 or less, or run 4 pods at a time" + ELSEWHERE,
            ],
            [],
            id="labels that stand without metadata",
        ),
        pytest.param(
            a_spark_application(in_gang(size="x"), {}),
            None,
            [
                f"gang-size: {MIN}: found 'x', want a whole number of at least 1 "
                f"(spec.driver.labels['{MIN}']): correct the value or remove the key"
            ],
            [
                "spec.executor belongs to no group while spec.driver does: its pods start on their own"
            ],
            id="a size that cannot be read, in labels that stand without metadata",
        ),
        pytest.param(
            a_job(pod=GANG, parallelism=0),
            None,
            [],
            [],
            id="a workload that is stopped",
        ),
        pytest.param(
            owned(a_job(pod=GANG, parallelism=2)),
            None,
            [],
            [],
            id="a part of what a controller makes",
        ),
        pytest.param(
            a_job(pod=a_pod(labels=in_gang() | {ROLE: "worker"}), parallelism=2),
            None,
            [],
            [
                "spec.template makes 2 of the 4 pods of group 'g': "
                "the other 2 members must come from elsewhere"
            ],
            id="one side of a gang whose other side is made elsewhere",
        ),
        pytest.param(
            a_job(pod=a_pod(labels=in_gang() | {"spark-role": "driver"}), parallelism=3),
            None,
            [],
            [
                "spec.template makes 3 of the 4 pods of group 'g': "
                "the other member must come from elsewhere"
            ],
            id="a side that Spark says",
        ),
        pytest.param(
            a_job(pod=a_pod(labels=in_gang() | {"spark-role": "ui"}), parallelism=2),
            None,
            [
                f"gang-size: {MIN} is 4 but the workload makes 2 pods of group 'g' at a time "
                f"(spec.template.metadata.labels['{MIN}']): "
                "lower min-available to 2 or less, or run 4 pods at a time" + ELSEWHERE
            ],
            [],
            id="a word of Spark's that is no side",
        ),
        pytest.param(
            a_pytorch_job(
                a_pod(labels=in_gang() | {ROLE: "leader"}), a_pod(labels=in_gang()), replicas=2
            ),
            None,
            [
                f"gang-size: {MIN} is 4 but the workload makes 3 pods of group 'g' at a time "
                f"(spec.pytorchReplicaSpecs.Master.template.metadata.labels['{MIN}']): "
                "lower min-available to 3 or less, or run 4 pods at a time" + ELSEWHERE
            ],
            [],
            id="both sides in one workload: no other member can come",
        ),
        pytest.param(
            a_stateful_set(GANG), None, [], [ORDERED], id="pods that start one after another"
        ),
        pytest.param(
            a_stateful_set(a_pod(labels=in_gang() | {ROLE: "leader"})),
            None,
            [],
            [ORDERED],
            id="a leader is not placed alone, so it waits for the others too",
        ),
        pytest.param(
            a_stateful_set(a_pod(labels=in_gang(size=1))),
            None,
            [],
            [],
            id="a gang of one may start in any order",
        ),
        pytest.param(
            a_stateful_set(GANG, podManagementPolicy="Parallel"),
            None,
            [],
            [],
            id="pods that start together",
        ),
        pytest.param(
            a_stateful_set(UNSIZED), None, [], [ORDERED], id="a size that comes from the owner"
        ),
        pytest.param(
            a_ray_job(GANG, a_pod()), None, [], [], id="a submitter is not missed in a gang"
        ),
        pytest.param(
            a_job(pod=with_number(UNSIZED), parallelism=4),
            None,
            [
                f"text: {MIN}: found 4, which is not a string "
                f"(spec.template.metadata.labels['{MIN}']): put the value in quotes"
            ],
            [],
            id="a size that is a number in JSON",
        ),
        pytest.param(
            a_spark_application(in_gang(size=9), in_gang(size=9), dynamic=True),
            None,
            [],
            [],
            id="an autoscaler may make the whole gang",
        ),
    ],
)
def test_findings(obj: Json, owner: Json | None, problems: list[str], warnings: list[str]) -> None:
    got = gang.check(members_of(obj), owner=owner)
    lines = [f"{p.rule}: {p.message} ({p.path}): {p.fix}" for p in got.problems]
    assert (lines, list(got.warnings)) == (problems, warnings)


TOO_LARGE = (
    "requests 40 CPUs on one NUMA node, the largest known has 32: with "
    f"{vocabulary.NUMA_POLICY_ANNOTATION} single-numa it waits for a larger node; "
    "request less, or use restricted"
)


@pytest.mark.parametrize(
    ("cpu", "wrap", "want"),
    [
        pytest.param("40", lambda pod: pod, [f"the pod {TOO_LARGE}"], id="a pod"),
        pytest.param(
            "40", lambda pod: a_job(pod=pod), [f"spec.template {TOO_LARGE}"], id="a template"
        ),
        pytest.param("32", lambda pod: a_job(pod=pod), [], id="a template that fits"),
    ],
)
def test_pods_larger_than_any_numa_node(
    cpu: str, wrap: Callable[[Json], Json], want: list[str]
) -> None:
    required = {vocabulary.NUMA_POLICY_ANNOTATION: "single-numa"}
    obj = wrap(a_pod(annotations=required, containers=[a_container(cpu=cpu)]))
    got = gang.check(members_of(obj), numa_sizes=[Size(32000, 2**40)])
    assert (got.problems, list(got.warnings)) == ((), want)
