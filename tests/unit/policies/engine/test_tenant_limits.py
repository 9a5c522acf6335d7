"""Limits of a tenant, which bind the workload and not only its pods."""

from typing import Any

import pytest

from policies import vocabulary
from policies.pods import intent
from tests.builders import a_job, a_pod, in_gang
from tests.policy_builders import a_tenant_policy, evaluated

Json = dict[str, Any]
GANG = in_gang()
NAMED = in_gang(size=None)


def beyond(size: int, path: str = "spec.template.metadata.labels") -> str:
    return (
        f"t/gang-max-size: the gang needs {size} members, above the limit of tenant a (max 2)"
        f" ({path}['pod-group.scheduling.kubenexus.io/min-available']):"
        " lower min-available, or ask the cluster admin for a larger gang"
    )


SPARK = {
    "apiVersion": "sparkoperator.k8s.io/v1beta2",
    "kind": "SparkApplication",
    "metadata": {"name": "s", "namespace": "team-a"},
    "spec": {"driver": {}, "executor": {"labels": GANG, "instances": 4}},
}


def parallel(count: int, labels: Json) -> Json:
    return a_job(pod=a_pod(labels=labels), parallelism=count)


@pytest.mark.parametrize(
    ("obj", "old", "kinds", "refusals", "warnings"),
    [
        pytest.param(parallel(4, GANG), None, ["Pod"], (beyond(4),), (), id="a size too large"),
        pytest.param(
            parallel(3, NAMED), None, ["Pod"], (beyond(3),), (), id="the owner gives the size"
        ),
        pytest.param(parallel(2, NAMED), None, ["Pod"], (), (), id="as many as the tenant may"),
        pytest.param(
            parallel(4, GANG),
            None,
            ["Pod", "batch/Job"],
            (beyond(4),),
            (),
            id="a policy that judges the workload too",
        ),
        pytest.param(
            parallel(4, GANG),
            parallel(4, GANG),
            ["Pod"],
            (),
            (beyond(4),),
            id="an update of what was too large before is warned about",
        ),
        pytest.param(
            parallel(4, NAMED),
            parallel(3, NAMED),
            ["Pod"],
            (beyond(4),),
            (),
            id="an update that adds to what is too large",
        ),
        pytest.param(
            SPARK,
            None,
            ["Pod"],
            (beyond(4, "spec.executor.labels"),),
            (),
            id="labels that stand without metadata",
        ),
    ],
)
def test_limits_of_a_tenant_bind_at_the_workload(
    obj: Json,
    old: Json | None,
    kinds: list[str],
    refusals: tuple[str, ...],
    warnings: tuple[str, ...],
) -> None:
    found = evaluated(
        a_tenant_policy("t", gang={"maxSize": 2}, matchConstraints={"kinds": kinds}),
        obj=obj,
        operation="CREATE" if old is None else "UPDATE",
        old_object=old,
    )
    assert (found.denials, found.warnings) == (refusals, warnings)


def test_what_defaults_would_add_beyond_a_limit_is_advice() -> None:
    isolated_numa = {vocabulary.NUMA_POLICY_ANNOTATION: "isolated"}
    found = evaluated(
        a_tenant_policy(
            "t", numa={"allowed": ["none"]}, defaults=[{"set": {"annotations": isolated_numa}}]
        ),
        obj=parallel(1, {}),
    )
    assert (found.denials, [line.partition(":")[0] for line in found.warnings]) == (
        (),
        ["t/numa-allowed"],
    )


def test_a_workload_of_many_templates_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [
        {"name": f"t{n}", "replicas": 1, "template": a_pod(labels=in_gang("g", None))}
        for n in range(100)
    ]
    job = {"apiVersion": "batch.volcano.sh/v1", "kind": "Job", "spec": {"tasks": tasks}}
    reads: list[object] = []

    def counted(pod: Json, **more: Any) -> intent.Intent:
        reads.append(pod)
        return read(pod, **more)

    read = intent.read
    monkeypatch.setattr(intent, "read", counted)
    evaluated(a_tenant_policy(gang={"maxSize": 64}), obj=job)
    assert 100 <= len(reads) <= 500
