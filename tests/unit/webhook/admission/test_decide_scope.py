"""Reviews beyond creates and updates: deletes, subresources, finalizers, policies; built-in warnings."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from policies import vocabulary
from policies.engine.policyset import PolicySet
from tests.builders import a_job, a_namespace, a_pod, in_gang
from tests.policy_builders import a_platform_policy, a_rule, a_tenant_policy, loaded
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review.codec import Review
from webhook.review.patch import apply

Json = dict[str, Any]
GOLD = a_namespace(tenant="ada", tier="gold")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NONE = PolicySet()


def a_review(obj: Json, operation: str = "CREATE", old: Json | None = None) -> Review:
    return Review(
        uid="u",
        operation=operation,
        kind=obj["kind"],
        resource=f"{obj['kind'].lower()}s",
        namespace="team-a",
        object=obj,
        old_object=old,
    )


OWNED = a_rule("has(object.metadata.labels) && 'owner' in object.metadata.labels", "owned")
KEPT = a_rule("'free' in oldObject.metadata.labels", "kept")


def of_kinds(*kinds: str, operations: tuple[str, ...] = ("CREATE", "UPDATE"), **spec: Any) -> Json:
    constraints = {"kinds": list(kinds), "operations": list(operations)}
    return a_platform_policy(matchConstraints=constraints, **spec)


def ending(*finalizers: str) -> Json:
    pod = a_pod(labels={"any": "thing"})
    about = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": list(finalizers)}
    return {**pod, "metadata": {**pod["metadata"], **about}}


@pytest.mark.parametrize(
    ("reviewed", "policy", "want"),
    [
        pytest.param(
            replace(a_review(a_pod(labels={"free": "1"}), "DELETE"), object=None),
            of_kinds("Pod", validations=[OWNED]),
            [],
            id="a delete that no policy selects",
        ),
        pytest.param(
            replace(a_review(a_pod(), "DELETE", old=a_pod(labels={"a": "b"})), object=None),
            of_kinds("Pod", operations=("DELETE",), validations=[KEPT]),
            ["base/kept"],
            id="a delete that a policy selects",
        ),
        pytest.param(
            replace(a_review(a_pod(), "UPDATE", old=a_pod()), subresource="status"),
            of_kinds("Pod", validations=[OWNED]),
            [],
            id="the status of a pod is not what policies for pods judge",
        ),
        pytest.param(
            replace(
                a_review({"kind": "Scale", "metadata": {}, "spec": {}}, "UPDATE"),
                group="autoscaling",
                subresource="scale",
            ),
            of_kinds("Scale", validations=[OWNED]),
            ["base/owned"],
            id="a part that a policy names",
        ),
        pytest.param(
            replace(
                a_review({"kind": "Scale", "metadata": {}, "spec": {}}, "UPDATE"),
                group="autoscaling",
                subresource="scale",
            ),
            of_kinds("*", validations=[OWNED]),
            [],
            id="a part that no policy names",
        ),
        pytest.param(
            a_review(ending("a"), "UPDATE", old=ending("a", "b")),
            of_kinds("Pod", validations=[OWNED]),
            [],
            id="a finalizer is removed",
        ),
        pytest.param(
            a_review(ending("a"), "UPDATE", old=ending("a")),
            of_kinds("Pod", validations=[OWNED]),
            ["base/owned"],
            id="another update of an object that is being deleted",
        ),
        pytest.param(
            replace(
                a_review(a_tenant_policy("bob", tenant="bob", tier="iron")),
                group=vocabulary.POLICY_GROUP,
                namespace="",
            ),
            of_kinds("Pod"),
            ["kubenexus/policy"],
            id="a policy that cannot be served",
        ),
    ],
)
def test_which_requests_policies_evaluate(reviewed: Review, policy: Json, want: list[str]) -> None:
    got = decide.validate(reviewed, Facts(GOLD), loaded(policy), now=NOW)
    assert [f"{row.policy}/{row.rule}" for row in got.failures] == want


def test_a_group_that_gets_its_size_here_is_warned_about_here() -> None:
    pod = a_pod(annotations={vocabulary.GANG_GROUP_ANNOTATION: "g"})
    got = decide.mutate(a_review(pod), Facts(GOLD), NONE, now=NOW)
    assert [note.rule for note in got.notes] == ["gang-locality"]
    assert got.warnings == tuple(note.message for note in got.notes)
    after = decide.mutate(a_review(apply(pod, got.patch)), Facts(GOLD), NONE, now=NOW)
    assert (after.warnings, after.patch) == ((), ())


def test_built_in_warnings_are_reported_as_rules() -> None:
    job = a_job(
        pod=a_pod(labels={**in_gang(), vocabulary.GANG_ROLE_LABEL: "worker"}), parallelism=2
    )
    got = decide.validate(a_review(job), Facts(GOLD), NONE, now=NOW)
    assert [(note.policy, note.rule, note.warns) for note in got.notes] == [
        ("kubenexus", "gang-elsewhere", True)
    ]
    assert got.warnings == tuple(note.message for note in got.notes)
