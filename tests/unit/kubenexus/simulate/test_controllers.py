from typing import Any

import pytest

from kubenexus.simulate import controllers

TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [{"name": "main"}]},
}


def a_workload(kind: str, spec: dict[str, Any], api: str = "apps/v1") -> dict[str, Any]:
    metadata = {"name": "w", "namespace": "ns", "uid": "owner-uid"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def a_lws(*, leader: bool, replicas: int = 2) -> dict[str, Any]:
    shape: dict[str, Any] = {"size": 2, "workerTemplate": TEMPLATE}
    if leader:
        shape["leaderTemplate"] = TEMPLATE
    return a_workload(
        "LeaderWorkerSet",
        {"replicas": replicas, "leaderWorkerTemplate": shape},
        "leaderworkerset.x-k8s.io/v1",
    )


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(
            a_workload("Job", {"parallelism": 3, "template": TEMPLATE}, "batch/v1"),
            ["w-0", "w-1", "w-2"],
            id="a Job makes its parallelism",
        ),
        pytest.param(
            a_workload(
                "Job", {"parallelism": 3, "completions": 2, "template": TEMPLATE}, "batch/v1"
            ),
            ["w-0", "w-1"],
            id="a Job makes no more than it has completions",
        ),
        pytest.param(
            a_workload(
                "Job", {"parallelism": 3, "suspend": True, "template": TEMPLATE}, "batch/v1"
            ),
            [],
            id="a suspended Job makes none",
        ),
        pytest.param(
            a_workload("Deployment", {"template": TEMPLATE}),
            ["w-0"],
            id="a Deployment without replicas makes one",
        ),
        pytest.param(
            a_workload("Deployment", {"replicas": 0, "template": TEMPLATE}),
            [],
            id="a Deployment scaled to zero makes none",
        ),
        pytest.param(
            a_workload("DaemonSet", {"template": TEMPLATE}),
            [],
            id="a DaemonSet's pods are not counted",
        ),
        pytest.param(
            a_workload(
                "PyTorchJob",
                {
                    "pytorchReplicaSpecs": {
                        "Worker": {"replicas": 2, "template": TEMPLATE},
                        "Master": {"template": TEMPLATE},
                    }
                },
                "kubeflow.org/v1",
            ),
            ["w-master-0", "w-worker-0", "w-worker-1"],
            id="several templates are distinguished by role",
        ),
        pytest.param(
            a_workload(
                "JobSet",
                {
                    "replicatedJobs": [
                        {
                            "name": "r",
                            "replicas": 2,
                            "template": {"spec": {"parallelism": 2, "template": TEMPLATE}},
                        }
                    ]
                },
                "jobset.x-k8s.io/v1alpha2",
            ),
            ["w-0", "w-1", "w-2", "w-3"],
            id="a JobSet multiplies jobs and their pods",
        ),
        pytest.param(
            a_lws(leader=True),
            ["w-0-leader-0", "w-1-leader-0", "w-0-worker-0", "w-1-worker-0"],
            id="a LeaderWorkerSet repeats its group",
        ),
        pytest.param(
            a_lws(leader=False),
            ["w-0-0", "w-0-1", "w-1-0", "w-1-1"],
            id="a LeaderWorkerSet without a leader repeats its workers",
        ),
    ],
)
def test_the_pods_of_a_workload(workload: dict[str, Any], want: list[str]) -> None:
    assert [pod["metadata"]["name"] for pod in controllers.pods(workload)] == want


def test_a_pod_of_an_indexed_job_looks_as_the_controller_makes_it() -> None:
    spec = {"parallelism": 2, "completionMode": "Indexed", "template": TEMPLATE}
    pod = controllers.pods(a_workload("Job", spec, "batch/v1"))[1]
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "w-1",
            "namespace": "ns",
            "uid": controllers.uid("Pod", "ns", "w-1"),
            "labels": {
                "app": "x",
                "batch.kubernetes.io/job-name": "w",
                "job-name": "w",
                "batch.kubernetes.io/controller-uid": "owner-uid",
                "controller-uid": "owner-uid",
                "batch.kubernetes.io/job-completion-index": "1",
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "w",
                    "uid": "owner-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "main"}]},
    }


def test_a_pod_of_a_stateful_set_knows_its_place() -> None:
    pod = controllers.pods(a_workload("StatefulSet", {"replicas": 2, "template": TEMPLATE}))[1]
    assert pod["metadata"]["labels"] == {
        "app": "x",
        "statefulset.kubernetes.io/pod-name": "w-1",
        "apps.kubernetes.io/pod-index": "1",
    }


def test_the_template_is_copied_not_shared() -> None:
    workload = a_workload("Deployment", {"replicas": 2, "template": TEMPLATE})
    first, second = controllers.pods(workload)
    first["spec"]["containers"].clear()
    assert second["spec"] == TEMPLATE["spec"] == {"containers": [{"name": "main"}]}


def test_a_workload_of_too_many_pods_is_not_simulated() -> None:
    workload = a_workload("Deployment", {"replicas": 10_001, "template": TEMPLATE})
    with pytest.raises(controllers.TooManyError, match="makes 10001 pods, at most 10000"):
        controllers.pods(workload)
