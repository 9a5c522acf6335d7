"""A tier that comes from a queue of Kueue: stamped, kept, judged by, and warned about."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from policies import vocabulary
from policies.documents.rules import Selector
from policies.engine.kueue import ClusterQueue, Queue
from tests.builders import a_job, a_pod
from tests.policy_builders import a_namespace, a_platform_policy, a_tenant_policy, loaded
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review.codec import Review
from webhook.review.patch import apply

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIER, PROFILE = vocabulary.TIER_LABEL, vocabulary.PROFILE_ANNOTATION
PREMIUM = {vocabulary.HARDWARE_TIER_LABEL: "premium"}
GOLD = Queue("gpu", "research", ClusterQueue("gold", Selector()))
LOST = Queue("gpu")
WARNING = (
    "queue 'gpu' gives no tier: namespace 'team-a' has no LocalQueue of that name; "
    "create it, or correct the label kueue.x-k8s.io/queue-name"
)
POLICIES = loaded(
    a_platform_policy(
        "tiers",
        tiers=[
            {"name": "gold", "rank": 2},
            {"name": "silver", "rank": 1},
            {"name": "bronze", "rank": 0, "hardwareTiers": {"allowed": ["economy"]}},
        ],
        priorityClasses=[{"name": "urgent", "tier": "silver"}],
    ),
    a_tenant_policy("policy", tenant="b", tier="silver"),
)


def a_review(obj: Json, operation: str = "CREATE", old: Json | None = None) -> Review:
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = obj["kind"]
    return Review(
        uid="u",
        operation=operation,
        kind=kind,
        resource=f"{kind.lower()}s",
        group=group,
        version=version,
        namespace="team-a",
        object=obj,
        old_object=old,
    )


def facts(queue: Queue | None, **labels: str) -> Facts:
    return Facts(a_namespace(**{"tenant": "a", **labels}), queue=queue)


def created(pod: Json, known: Facts) -> Json:
    return apply(pod, decide.mutate(a_review(pod), known, POLICIES, now=NOW).patch)


@pytest.mark.parametrize(
    ("pod", "known", "want"),
    [
        pytest.param(a_pod(), facts(GOLD), ("gold", "gpu"), id="the queue's"),
        pytest.param(
            a_pod(priorityClassName="urgent"), facts(GOLD), ("gold", "gpu"), id="before a priority"
        ),
        pytest.param(a_pod(), facts(GOLD, tier="bronze"), ("bronze", None), id="after a label"),
        pytest.param(a_pod(), facts(GOLD, tenant="b"), ("silver", None), id="after a policy"),
        pytest.param(
            a_pod(labels={TIER: "silver"}), facts(GOLD), ("silver", "gpu"), id="lowered by the pod"
        ),
        pytest.param(
            a_pod(priorityClassName="urgent"), facts(LOST), ("silver", None), id="of no use"
        ),
        pytest.param(a_pod(), facts(LOST), ("bronze", None), id="of no use, and no other source"),
    ],
)
def test_what_is_written_on_a_pod(pod: Json, known: Facts, want: tuple[str, str | None]) -> None:
    once = created(pod, known)
    profile = orjson.loads(once["metadata"]["annotations"][PROFILE])
    again = decide.mutate(a_review(once), known, POLICIES, now=NOW).patch
    verdict = decide.validate(a_review(once), known, POLICIES, now=NOW)
    assert (
        (once["metadata"]["labels"][TIER], profile.get("queue")),
        profile["tier"],
        again,
        verdict.allowed,
    ) == (want, want[0], (), True)


@pytest.mark.parametrize(
    ("obj", "known", "want"),
    [
        pytest.param(a_pod(), facts(LOST), (WARNING,), id="a pod"),
        pytest.param(a_job(), facts(LOST), (WARNING,), id="a workload"),
        pytest.param(a_pod(), facts(GOLD), (), id="a queue that says the tier"),
        pytest.param(a_pod(), facts(LOST, tier="gold"), (), id="the namespace says it"),
        pytest.param(a_pod(), facts(LOST, tenant="b"), (), id="a policy says it"),
        pytest.param(
            a_pod(priorityClassName="urgent"),
            facts(LOST),
            (WARNING,),
            id="a priority says it, and the queue would have gone before",
        ),
    ],
)
def test_a_queue_that_leads_nowhere_is_warned_about_where_it_would_count(
    obj: Json, known: Facts, want: tuple[str, ...]
) -> None:
    got = decide.validate(a_review(obj), known, POLICIES, now=NOW)
    rules = [(note.rule, note.actions) for note in got.notes]
    assert (got.allowed, got.warnings, rules) == (True, want, [("queue", ("Warn",))] * len(want))


def refusals(obj: Json, known: Facts, operation: str = "CREATE", old: Json | None = None) -> Any:
    found = decide.validate(a_review(obj, operation, old), known, POLICIES, now=NOW)
    return [(row.rule, row.message) for row in found.failures]


def test_policies_evaluate_a_workload_with_the_tier_of_its_queue() -> None:
    job = a_job(pod=a_pod(labels=PREMIUM))
    raised = a_job(pod=a_pod(labels={TIER: "platinum"}))
    assert (refusals(job, facts(GOLD)), refusals(raised, facts(GOLD))) == (
        [],
        [("tier", "found 'platinum', but its queue has tier 'gold'")],
    )


@pytest.mark.parametrize(
    ("pod", "known", "want"),
    [
        pytest.param(created(a_pod(), facts(GOLD)), facts(None), "gold", id="as it was stamped"),
        pytest.param(
            created(a_pod(labels={TIER: "silver"}), facts(GOLD)),
            facts(None),
            "silver",
            id="as it was lowered",
        ),
        pytest.param(
            created(a_pod(), facts(GOLD)),
            facts(None, tier="bronze"),
            "bronze",
            id="the namespace says its tier now",
        ),
        pytest.param(
            created(a_pod(), facts(None, tier="gold")),
            facts(None),
            "bronze",
            id="the namespace says it no more, and no queue ever did",
        ),
        pytest.param(
            a_pod(labels={TIER: "gold"}, annotations={PROFILE: "{"}),
            facts(None),
            "bronze",
            id="admission never saw it",
        ),
    ],
)
def test_a_pod_keeps_its_tier_when_the_queue_changes_or_is_deleted(
    pod: Json, known: Facts, want: str
) -> None:
    touched = pod | {"metadata": pod["metadata"] | {"finalizers": ["a/b"]}}
    got = decide.validate(a_review(touched, "UPDATE", pod), known, POLICIES, now=NOW)
    assert (got.allowed, got.audit["tier"], got.warnings) == (True, want, ())


def test_a_pod_made_of_a_former_one_gets_the_tier_that_its_queue_has_now() -> None:
    """A profile copied from another pod has no effect on this one."""
    former = created(a_pod(), facts(GOLD))
    annotations = former["metadata"]["annotations"]
    silver = replace(GOLD, cluster_queue=ClusterQueue("silver", Selector()))
    copied = created(a_pod(annotations=annotations), facts(silver))
    assert copied["metadata"]["labels"][TIER] == "silver"
