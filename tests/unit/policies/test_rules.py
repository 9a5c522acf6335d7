from typing import Any

import pytest

from policies import rules, vocabulary
from tests.builders import a_job, a_pod, a_template, in_gang

Json = dict[str, Any]
MIN = vocabulary.GANG_MIN_AVAILABLE_LABEL


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


GANG = a_pod(labels=in_gang())
UNSIZED = a_pod(labels=in_gang(size=None))
LOCAL = a_pod(annotations={vocabulary.GANG_GROUP_ANNOTATION: "g"})
WARNED = (
    "group 'g' has no size: its pods are kept close but not held back; "
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
                "lower min-available to 2 or less, or run 4 pods at a time"
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
            id="nobody says the size",
        ),
        pytest.param(LOCAL, None, [], [WARNED], id="a locality group without a size is a warning"),
        pytest.param(
            a_pod(labels=in_gang(size="four")),
            None,
            [
                f"gang-size: {MIN}: found 'four', want a whole number from 1 to 999999 "
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
            id="a size is not held against a count that nobody knows",
        ),
        pytest.param(
            a_pod(labels={vocabulary.X_K8S_POD_GROUP: "g"}),
            None,
            [],
            [],
            id="a PodGroup object says the size",
        ),
    ],
)
def test_findings(obj: Json, owner: Json | None, problems: list[str], warnings: list[str]) -> None:
    got = rules.check(rules.members(obj), owner=owner)
    lines = [f"{p.rule}: {p.message} ({p.path}): {p.fix}" for p in got.problems]
    assert (lines, list(got.warnings)) == (problems, warnings)
