"""A request that takes too much CPU: its remaining rules are errors, by their failurePolicy."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from policies.cel import cost
from policies.cel.protocol import EvaluationError
from policies.engine.deadline import UNLIMITED, CpuDeadline
from policies.engine.evaluate import evaluate
from policies.engine.request import AdmissionRequest
from policies.engine.result import Evaluation
from tests.builders import a_pod
from tests.policy_builders import NOW, a_namespace, a_rule, a_tenant_policy, evaluated, loaded

Json = dict[str, Any]

SPENT = "the request exceeded its CPU budget of 1 s"


def a_clock(times: Iterable[float]) -> Callable[[], float]:
    """The times given, one at each call, and the last one from then on."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def under_deadline(clock: Callable[[], float], obj: Json, *documents: Json) -> Evaluation:
    admission = AdmissionRequest.of(obj, namespace=a_namespace(tenant="a"))
    deadline = CpuDeadline(clock, 1.0)
    return evaluate(admission, loaded(*documents), now=NOW, inject=False, deadline=deadline)


def test_the_deadline_counts_from_its_start() -> None:
    deadline = CpuDeadline(a_clock([10.0, 10.5, 11.0, 11.1, 11.2]), 1.0)
    assert [deadline.exceeded, deadline.exceeded, deadline.exceeded] == [False, False, True]
    with pytest.raises(EvaluationError, match=SPENT):
        deadline.check()
    UNLIMITED.check()


@pytest.mark.parametrize(
    ("policy", "allowed", "failures", "skipped"),
    [
        pytest.param(
            "Fail",
            False,
            [f"team-a/{rule}: cannot be evaluated: {SPENT}" for rule in ("two", "three")],
            [],
            id="fails closed",
        ),
        pytest.param("Ignore", True, [], [("two", SPENT), ("three", SPENT)], id="ignored"),
    ],
)
def test_rules_past_the_deadline_follow_their_failure_policy(
    policy: str, allowed: bool, failures: list[str], skipped: list[tuple[str, str]]
) -> None:
    rules = [a_rule(f"object.metadata.name != {name!r}", name) for name in ("one", "two", "three")]
    # The start, the three rules as one expression, the first rule; then the time is over.
    clock = a_clock([0.0, 2.0, 0.5, 2.0])
    found = under_deadline(clock, a_pod(), a_tenant_policy(validations=rules, failurePolicy=policy))
    assert (
        found.allowed,
        [failure.line() for failure in found.failures],
        [(row.rule, row.error) for row in found.skipped],
    ) == (allowed, failures, skipped)


def test_a_pod_template_without_a_verdict_denies_the_workload() -> None:
    template = {"metadata": {}, "spec": a_pod()["spec"]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team-a"},
        "spec": {"template": template},
    }
    found = under_deadline(a_clock([0.0, 2.0]), job, a_tenant_policy())
    assert [failure.line() for failure in found.failures] == [
        f"kubenexus/cpu-budget: {SPENT} before this pod template (spec.template): "
        "split the workload, or ask the cluster admin which rule takes so long"
    ]
    assert not found.allowed


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [pytest.param("Fail", False, id="denied"), pytest.param("Ignore", True, id="ignored")],
)
def test_a_rule_over_its_cost_budget_is_an_error_of_that_rule_alone(
    policy: str, allowed: bool
) -> None:
    pod = a_pod(annotations={"team.io/denied-images": "r" * 240_000})
    [container] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [
        {**container, "name": f"c{number}", "image": f"registry.example.com/{number}"}
        for number in range(4_000)
    ]
    rules = [
        a_rule(
            "object.spec.containers.all(c,"
            " !object.metadata.annotations['team.io/denied-images'].contains(c.image))",
            "denied-images",
        ),
        a_rule("object.spec.containers.size() < 100", "few-containers", message="too many"),
    ]
    found = evaluated(a_tenant_policy(validations=rules, failurePolicy=policy), obj=pod)
    over = f"team-a/denied-images: cannot be evaluated: {cost.MESSAGE}"
    assert [failure.line() for failure in found.failures] == [
        *([] if allowed else [over]),
        "team-a/few-containers: too many",
    ]
    assert [row.rule for row in found.skipped] == (["denied-images"] if allowed else [])
