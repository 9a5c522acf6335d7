from typing import Any

import pytest

from policies import workloads

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
            id="nobody knows how many pods a DaemonSet makes",
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
    [driver, _] = workloads.pods_of(
        an_object("sparkoperator.k8s.io/v1beta2", "SparkApplication", SPARK)
    )
    assert driver.pod["metadata"]["labels"] == {"a": "b"}
