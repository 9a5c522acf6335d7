from typing import Any

import pytest

from policies import bounds
from policies.pods import workloads

Json = dict[str, Any]
T: Json = {"metadata": {}, "spec": {"containers": []}}


def an_object(api_version: str, kind: str, spec: Json) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def kubeflow(kind: str, field: str) -> Json:
    roles = {"Worker": {"replicas": 3, "template": T}, "Master": {"template": T}}
    return an_object("kubeflow.org/v1", kind, {field: roles})


RAY: Json = {
    "headGroupSpec": {"template": T},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 3, "numOfHosts": 2, "template": T}],
}
SPARK: Json = {"driver": {"labels": {"a": "b"}}, "executor": {"instances": 5}}
CLUSTER = "spec.rayClusterSpec"
PATCHED = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs"
TEMPLATE = "template.spec.template"


def a_train_job(**spec: Any) -> Json:
    return an_object("trainer.kubeflow.org/v1alpha1", "TrainJob", spec)


def an_override(*jobs: str, **template: Any) -> Json:
    return {"targetJobs": [{"name": job} for job in jobs], **template}


def a_patch(*jobs: str, template: Json = T) -> Json:
    patches = [{"name": job, "template": {"spec": {"template": template}}} for job in jobs]
    spec = {"template": {"spec": {"replicatedJobs": patches}}}
    return {"manager": "me", "trainingRuntimeSpec": spec}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(an_object("v1", "Pod", {}), [("", 1, "")], id="Pod"),
        pytest.param(
            an_object("apps/v1", "Deployment", {"template": T}),
            [("spec.template", 1, "")],
            id="a Deployment without replicas makes one",
        ),
        pytest.param(
            an_object("apps/v1", "StatefulSet", {"replicas": 3, "template": T}),
            [("spec.template", 3, "")],
            id="StatefulSet",
        ),
        pytest.param(
            an_object("apps/v1", "ReplicaSet", {"replicas": 0, "template": T}),
            [("spec.template", 0, "")],
            id="ReplicaSet scaled to zero",
        ),
        pytest.param(
            an_object("apps/v1", "DaemonSet", {"template": T}),
            [("spec.template", None, "")],
            id="the number of pods of a DaemonSet is unknown",
        ),
        pytest.param(
            an_object("batch/v1", "Job", {"parallelism": 4, "completions": 2, "template": T}),
            [("spec.template", 2, "")],
            id="a Job never runs more pods than it has completions",
        ),
        pytest.param(
            an_object(
                "batch/v1", "CronJob", {"jobTemplate": {"spec": {"parallelism": 4, "template": T}}}
            ),
            [("spec.jobTemplate.spec.template", 4, "")],
            id="CronJob",
        ),
        pytest.param(
            an_object(
                "jobset.x-k8s.io/v1alpha2",
                "JobSet",
                {
                    "replicatedJobs": [
                        {
                            "name": "w",
                            "replicas": 2,
                            "template": {"spec": {"parallelism": 3, "template": T}},
                        },
                        {"name": "d", "template": {"spec": {"template": T}}},
                    ]
                },
            ),
            [
                ("spec.replicatedJobs[0].template.spec.template", 6, "w"),
                ("spec.replicatedJobs[1].template.spec.template", 1, "d"),
            ],
            id="JobSet",
        ),
        *(
            pytest.param(
                kubeflow(kind, field),
                [
                    (f"spec.{field}.Master.template", 1, "Master"),
                    (f"spec.{field}.Worker.template", 3, "Worker"),
                ],
                id=kind,
            )
            for kind, field in [
                ("PyTorchJob", "pytorchReplicaSpecs"),
                ("TFJob", "tfReplicaSpecs"),
                ("MPIJob", "mpiReplicaSpecs"),
                ("XGBoostJob", "xgbReplicaSpecs"),
                ("PaddleJob", "paddleReplicaSpecs"),
                ("JAXJob", "jaxReplicaSpecs"),
            ]
        ),
        pytest.param(
            an_object("ray.io/v1", "RayCluster", RAY),
            [
                ("spec.headGroupSpec.template", 1, "head"),
                ("spec.workerGroupSpecs[0].template", 6, "w"),
            ],
            id="RayCluster",
        ),
        pytest.param(
            an_object("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}),
            [
                (f"{CLUSTER}.headGroupSpec.template", 1, "head"),
                (f"{CLUSTER}.workerGroupSpecs[0].template", 6, "w"),
            ],
            id="RayJob",
        ),
        pytest.param(
            an_object("ray.io/v1", "RayJob", {"rayClusterSpec": RAY, "submitterPodTemplate": T}),
            [
                (f"{CLUSTER}.headGroupSpec.template", 1, "head"),
                (f"{CLUSTER}.workerGroupSpecs[0].template", 6, "w"),
                ("spec.submitterPodTemplate", 1, "submitter"),
            ],
            id="RayJob with a pod that submits it",
        ),
        pytest.param(
            an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK),
            [("spec.driver", 1, "driver"), ("spec.executor", 5, "executor")],
            id="SparkApplication",
        ),
        pytest.param(
            an_object(
                "sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", {"template": SPARK}
            ),
            [("spec.template.driver", 1, "driver"), ("spec.template.executor", 5, "executor")],
            id="ScheduledSparkApplication",
        ),
        pytest.param(
            an_object(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                {
                    "replicas": 2,
                    "leaderWorkerTemplate": {"size": 4, "leaderTemplate": T, "workerTemplate": T},
                },
            ),
            [
                ("spec.leaderWorkerTemplate.leaderTemplate", 1, "leader"),
                ("spec.leaderWorkerTemplate.workerTemplate", 3, "worker"),
            ],
            id="a LeaderWorkerSet counts one group",
        ),
        pytest.param(
            an_object(
                "batch.volcano.sh/v1alpha1",
                "Job",
                {"tasks": [{"name": "t", "replicas": 2, "template": T}]},
            ),
            [("spec.tasks[0].template", 2, "t")],
            id="a Volcano Job is not a batch Job",
        ),
        pytest.param(
            a_train_job(
                trainer={"numNodes": 4},
                podTemplateOverrides=[
                    an_override("node", "launcher", metadata={"labels": {"a": "b"}}),
                    an_override("node", spec={"nodeSelector": {}}),
                ],
            ),
            [
                ("spec.podTemplateOverrides[0]", 4, "node"),
                ("spec.podTemplateOverrides[0]", 1, "launcher"),
            ],
            id="a TrainJob is read where it says a pod's labels",
        ),
        pytest.param(
            a_train_job(trainer={"numNodes": 4}, runtimePatches=[a_patch("node", "custom")]),
            [(f"{PATCHED}[0].{TEMPLATE}", 4, "node"), (f"{PATCHED}[1].{TEMPLATE}", None, "custom")],
            id="a TrainJob that patches its runtime; a job of the runtime's own is not counted",
        ),
        pytest.param(
            a_train_job(trainer={}),
            [("spec.trainer", None, "node")],
            id="a TrainJob whose runtime says how many nodes",
        ),
        pytest.param(a_train_job(), [], id="a TrainJob that leaves all to its runtime"),
        pytest.param(
            a_train_job(podTemplateOverrides=[3, {"targetJobs": "x"}], runtimePatches={"a": 1}),
            [],
            id="a TrainJob of the wrong shape",
        ),
        pytest.param(an_object("v1", "ConfigMap", {}), [], id="a kind that makes no pods"),
        pytest.param(
            an_object("batch/v1", "Job", {"template": 3}), [], id="a template of the wrong shape"
        ),
        pytest.param(
            an_object("apps/v1", "Deployment", {"replicas": "3", "template": T}),
            [("spec.template", None, "")],
            id="a count that is no number is unknown",
        ),
        pytest.param({"kind": "Job", "apiVersion": "batch/v1", "spec": None}, [], id="no spec"),
    ],
)
def test_where_pods_are(obj: Json, want: list[tuple[str, int | None, str]]) -> None:
    assert [(t.path, t.count, t.role) for t in workloads.pods_of(obj)] == want


def test_spark_blocks_look_like_pods() -> None:
    template = {"metadata": {"labels": {"a": "x", "c": "d"}}, "spec": {"nodeName": "n"}}
    driver = {"labels": {"a": "b"}, "annotations": {"e": "f"}, "template": template}
    [got] = workloads.pods_of(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", {"driver": driver})
    )
    assert (got.pod, got.place("metadata.labels['a']")) == (
        {
            "metadata": {"labels": {"a": "b", "c": "d"}, "annotations": {"e": "f"}},
            "spec": {"nodeName": "n"},
        },
        "spec.driver.labels['a']",
    )


def test_a_train_job_is_one_pod_of_all_its_layers() -> None:
    resources = {"requests": {"cpu": "8"}}
    patched = {"metadata": {"labels": {"a": "later"}}, "spec": {"serviceAccountName": "s"}}
    obj = a_train_job(
        trainer={"image": "i", "resourcesPerNode": resources},
        podTemplateOverrides=[an_override("node", metadata={"labels": {"a": "b", "c": "d"}})],
        runtimePatches=[a_patch("node", template=patched)],
    )
    [got] = workloads.pods_of(obj)
    assert (got.path, got.pod) == (
        f"{PATCHED}[0].{TEMPLATE}",
        {
            "metadata": {"labels": {"a": "later", "c": "d"}},
            "spec": {
                "serviceAccountName": "s",
                "containers": [{"name": "node", "image": "i", "resources": resources}],
            },
        },
    )


ELASTIC = {"minReplicas": 1, "maxReplicas": 9}


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(
            an_object("ray.io/v1", "RayCluster", RAY | {"enableInTreeAutoscaling": True}),
            {"head": False, "w": True},
            id="an autoscaled RayCluster",
        ),
        pytest.param(
            an_object(
                "sparkoperator.k8s.io/v1beta2",
                "SparkApplication",
                SPARK | {"dynamicAllocation": {"enabled": True}},
            ),
            {"driver": False, "executor": True},
            id="Spark with dynamic allocation",
        ),
        pytest.param(
            an_object(
                "kubeflow.org/v1",
                "PyTorchJob",
                kubeflow("PyTorchJob", "pytorchReplicaSpecs")["spec"] | {"elasticPolicy": ELASTIC},
            ),
            {"Master": False, "Worker": True},
            id="an elastic PyTorchJob",
        ),
        pytest.param(
            an_object("ray.io/v1", "RayCluster", RAY),
            {"head": False, "w": False},
            id="a RayCluster of fixed size",
        ),
    ],
)
def test_which_workloads_may_add_pods(obj: Json, want: dict[str, bool]) -> None:
    assert {t.role: t.elastic for t in workloads.pods_of(obj)} == want


@pytest.mark.parametrize(("group", "kind"), sorted(workloads.SCALED))
def test_a_scale_sets_the_count_of_the_pods(group: str, kind: str) -> None:
    version = f"{group}/v1" if group else "v1"
    field = next((step for step in workloads.SCALED[group, kind] if "ReplicaSpecs" in step), None)
    obj = kubeflow(kind, field) if field else an_object(version, kind, {"template": T})
    after = [part.count for part in workloads.pods_of(workloads.scaled(obj, 7))]
    assert (after[-1], workloads.scaled_kind(group, workloads.plural(kind))) == (7, kind)


def test_what_has_no_scale_stays_as_it_is() -> None:
    job = an_object("batch/v1", "Job", {"template": T})
    assert (workloads.scaled(job, 7), workloads.scaled_kind("batch", "jobs")) == (job, None)


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(
            an_object("batch.volcano.sh/v1", "Job", {"tasks": [{"template": T}] * 10_000}),
            id="a list of tasks",
        ),
        pytest.param(
            a_train_job(podTemplateOverrides=[an_override(*map(str, range(10_000)))]),
            id="one patch of many jobs",
        ),
    ],
)
def test_of_too_many_templates_only_the_first_ones_are_made(obj: Json) -> None:
    assert len(workloads.pods_of(obj)) == bounds.MOST_TEMPLATES + 1
