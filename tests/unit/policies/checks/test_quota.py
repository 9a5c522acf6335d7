"""What could never run within its tenant's quota is refused where it is applied."""

from typing import Any

import pytest

from policies.checks import quota
from policies.documents.tenancy import Quota, Sharing
from policies.engine.policyset import PolicyTables
from policies.pods.members import members_of

GPU = "nvidia.com/gpu"
TABLES = PolicyTables(
    {},
    {},
    {},
    (),
    sharing=Sharing.model_validate(
        {
            "tenants": [
                {"name": "research", "quota": {"max": {"cpu": "6"}}},
                {"name": "vision", "parent": "research"},
            ]
        }
    ),
    quotas={"vision": Quota.model_validate({"max": {GPU: "8"}})},
)


def pod(gpus: int = 1, cpu: str = "1", **labels: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, GPU: str(gpus)}
    return {
        "metadata": {
            "name": "p",
            "labels": {
                f"pod-group.scheduling.kubenexus.io/{key.replace('_', '-')}": value
                for key, value in labels.items()
            },
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        },
    }


def job(parallelism: int, template: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"parallelism": parallelism, "template": template},
    }


def jobset(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {"replicatedJobs": [{"name": "r", "template": part} for part in jobs]},
    }


def single(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", **pod(**more)}


FIX = (
    "request less, or have the quota of {} raised (policy.kubenexus.io/v1alpha1 TenantPolicy"
    " spec.quota.max)"
)


@pytest.mark.parametrize(
    ("obj", "tenant", "lines"),
    [
        pytest.param(single(gpus=8), "vision", [], id="a pod as large as the limit"),
        pytest.param(
            single(gpus=9),
            "vision",
            [
                "kubenexus/quota: one pod requests 9 of nvidia.com/gpu, above the quota of vision (max 8)"
                f" (spec): {FIX.format('vision')}"
            ],
            id="a pod beyond the limit",
        ),
        pytest.param(single(gpus=9), "else", [], id="a tenant without limits"),
        pytest.param(
            job(4, pod(2, name="g", min_available="4")), "vision", [], id="a gang within it"
        ),
        pytest.param(
            job(5, pod(2, name="g", min_available="5")),
            "vision",
            [
                "kubenexus/quota: group 'g', 5 pods, requests 10 of nvidia.com/gpu, above the quota of vision (max 8)"
                f" (spec.template.spec): {FIX.format('vision')}"
            ],
            id="a gang counts as a whole",
        ),
        pytest.param(
            job(100, pod(2, name="g", min_available="4")),
            "vision",
            [],
            id="members above the minimum may wait",
        ),
        pytest.param(job(100, pod(2)), "vision", [], id="pods on their own run in turn"),
        pytest.param(
            job(8, pod(0, cpu="1", name="g", min_available="8")),
            "vision",
            [
                "kubenexus/quota: group 'g', 8 pods, requests 8 of cpu, above the quota of research (max 6)"
                f" (spec.template.spec): {FIX.format('research')}"
            ],
            id="the limit of a group above",
        ),
        pytest.param(
            single(gpus=2, name="g", min_available="5"),
            "vision",
            [],
            id="one pod of a gang is known alone",
        ),
        pytest.param(
            jobset(
                job(2, pod(2, cpu="0", name="g", min_available="2")),
                job(6, pod(2, cpu="0", name="g", min_available="8")),
            ),
            "vision",
            [
                "kubenexus/quota: group 'g', 8 pods, requests 16 of nvidia.com/gpu, above the quota of vision (max 8)"
                f" (spec.replicatedJobs[0].template.spec.template.spec): {FIX.format('vision')}"
            ],
            id="templates of different sizes count by the larger",
        ),
    ],
)
def test_what_never_fits(obj: dict[str, Any], tenant: str, lines: list[str]) -> None:
    found = quota.check(members_of(obj), tenant, TABLES)
    assert [problem.line("kubenexus") for problem in found] == lines
