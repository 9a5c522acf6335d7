from typing import Any

import pytest

from policies.checks import pod_group

NATIVE, X_K8S = "scheduling.k8s.io", "scheduling.x-k8s.io"
TOO_LARGE = "found 2147483647, want at most 10000 pods in a gang"


def native(count: object) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


@pytest.mark.parametrize(
    ("group", "spec", "want"),
    [
        pytest.param(NATIVE, native(4), [], id="native"),
        pytest.param(NATIVE, native(10_000), [], id="the largest"),
        pytest.param(
            NATIVE,
            native(2**31 - 1),
            [f"spec.schedulingPolicy.gang.minCount: {TOO_LARGE}"],
            id="native, too large",
        ),
        pytest.param(
            X_K8S, {"minMember": 2**31 - 1}, [f"spec.minMember: {TOO_LARGE}"], id="x-k8s, too large"
        ),
        pytest.param(
            X_K8S,
            {"minMember": 4, "scheduleTimeoutSeconds": 2**31 - 1},
            [
                "spec.scheduleTimeoutSeconds: found 2147483647, want at most 315360000 seconds (87600h)"
            ],
            id="a timeout beyond ten years",
        ),
        pytest.param(NATIVE, {"schedulingPolicy": {"basic": {}}}, [], id="no gang"),
        pytest.param(NATIVE, native("many"), [], id="no number"),
        pytest.param(X_K8S, None, [], id="no spec"),
    ],
)
def test_problems(group: str, spec: object, want: list[str]) -> None:
    got = pod_group.check({"kind": "PodGroup", "spec": spec}, group, largest=10_000)
    assert [f"{row.path}: {row.message}" for row in got] == want
    assert {row.rule for row in got} <= {"bounds"}


@pytest.mark.parametrize(
    ("group", "kind", "want"),
    [
        (NATIVE, "PodGroup", True),
        (X_K8S, "PodGroup", True),
        (NATIVE, "Workload", False),
        ("scheduling.volcano.sh", "PodGroup", False),
    ],
)
def test_the_kinds_whose_size_the_scheduler_reads(group: str, kind: str, want: bool) -> None:
    assert pod_group.is_pod_group(group, kind) is want
