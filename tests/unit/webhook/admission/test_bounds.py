"""No value beyond its bound is admitted, on any object that carries one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies import bounds, vocabulary
from policies.engine.policyset import PolicySet
from policies.pods import intent
from policies.vocabulary import Key
from tests.builders import a_job, a_namespace, a_pod, in_gang
from tests.policy_builders import a_platform_policy, loaded
from webhook.admission import decide, profile
from webhook.admission.decide import Facts
from webhook.review.codec import Review

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOME = a_namespace("team-a", tenant="research", tier="gold")
PLAIN = loaded()
RAISED = loaded(a_platform_policy("large", gang={"maxSize": 50_000}))
FIX = "lower it, or have a PlatformPolicy allow larger gangs (spec.gang.maxSize, at most 100000)"


def a_review(obj: Json, old: Json | None = None, **more: Any) -> Review:
    group, _, version = obj["apiVersion"].rpartition("/")
    known = {
        "uid": "u",
        "operation": "CREATE" if old is None else "UPDATE",
        "kind": obj["kind"],
        "resource": f"{obj['kind'].lower()}s",
        "group": group,
        "version": version,
        "namespace": "team-a",
        "object": obj,
        "old_object": old,
    }
    return Review(**{**known, **more})


def verdict(review: Review, policies: PolicySet = PLAIN, **facts: Any) -> list[str]:
    got = decide.validate(review, Facts(HOME, **facts), policies, now=NOW)
    assert got.allowed is not bool(got.failures)
    return [failure.line() for failure in got.failures if failure.rule == "bounds"]


def a_gang(size: int | None, *, parallelism: int) -> Json:
    pod = a_pod("p", labels=in_gang("train", size))
    return a_job("train", pod=pod, parallelism=parallelism, completions=parallelism)


def a_pod_group(size: int) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "team-a"},
        "spec": {"minMember": size},
    }


def a_pod_with(key: Key, text: str) -> Json:
    pod = a_pod("p", labels=in_gang("train"))
    pod["metadata"].setdefault(key.place, {})[key.name] = text
    return pod


@pytest.mark.parametrize("key", intent.KEYS, ids=str)
@pytest.mark.parametrize("length", [2_000, 10**4, 10**5, 10**6])
def test_a_text_of_any_length_is_denied_in_few_words(key: Key, length: int) -> None:
    # Digits without a unit: the longest way of a parser of durations.
    (line,) = verdict(a_review(a_pod_with(key, "1" * length)))
    assert line.startswith(f"kubenexus/bounds: {key.name}: found '1111")
    assert f"of {length} characters, want at most {bounds.of(key).longest} characters" in line
    assert len(line) < 500


TIMEOUT = vocabulary.annotation(vocabulary.GANG_TIMEOUT_ANNOTATION)
DURATION = vocabulary.annotation(vocabulary.EXPECTED_DURATION_ANNOTATION)
MEMBERS = vocabulary.annotation(vocabulary.GANG_MEMBERS_ANNOTATION)
VRAM = vocabulary.annotation(vocabulary.VRAM_ANNOTATION)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (TIMEOUT, "99999999999h"),
        (DURATION, "99999999999h"),
        (DURATION, "87601h"),
        (MEMBERS, "cpu=9E"),
        (MEMBERS, "memory=1Gi,cpu=1e30"),
        (VRAM, "9E"),
    ],
)
def test_a_value_of_any_size_is_denied(key: Key, text: str) -> None:
    (line,) = verdict(a_review(a_pod_with(key, text)))
    assert line.startswith(f"kubenexus/bounds: {key.name}: found '{text}', want at most ")


@pytest.mark.parametrize(
    ("key", "text"),
    [(TIMEOUT, "87600h"), (DURATION, "87600h"), (MEMBERS, "cpu=9007199254740992m"), (VRAM, "8Pi")],
)
def test_the_largest_value_is_admitted(key: Key, text: str) -> None:
    assert verdict(a_review(a_pod_with(key, text))) == []


@pytest.mark.parametrize(
    ("obj", "policies", "want"),
    [
        pytest.param(a_gang(10_000, parallelism=10_000), PLAIN, [], id="the largest"),
        pytest.param(a_gang(10_001, parallelism=10_001), PLAIN, [10_001], id="above the default"),
        pytest.param(a_gang(50_000, parallelism=50_000), RAISED, [], id="as a policy allows"),
        pytest.param(a_gang(50_001, parallelism=50_001), RAISED, [50_001], id="above the policy"),
        pytest.param(a_gang(None, parallelism=10_000), PLAIN, [], id="by its owner"),
        pytest.param(
            a_gang(None, parallelism=10_001), PLAIN, [10_001], id="by its owner, above the default"
        ),
        pytest.param(a_pod_group(10_000), PLAIN, [], id="by a PodGroup"),
        pytest.param(a_pod_group(10_001), PLAIN, [10_001], id="by a PodGroup, above the default"),
        pytest.param(a_pod_group(50_000), RAISED, [], id="by a PodGroup, as a policy allows"),
        pytest.param(
            a_pod("p", labels=in_gang("train", 999_999)), RAISED, [999_999], id="above any policy"
        ),
    ],
)
def test_the_largest_gang(obj: Json, policies: PolicySet, want: list[int]) -> None:
    got = verdict(a_review(obj), policies)
    assert len(got) == len(want)
    assert all(str(number) in line for number, line in zip(want, got, strict=True)), got


def a_volcano_job(templates: int) -> Json:
    task = {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"tasks": [{**task, "name": f"t{n}"} for n in range(templates)]},
    }


def test_a_workload_of_too_many_templates_is_denied_before_policies_run() -> None:
    assert verdict(a_review(a_volcano_job(256))) == []
    got = decide.validate(a_review(a_volcano_job(257)), Facts(HOME), PLAIN, now=NOW)
    assert [failure.line() for failure in got.failures] == [
        "kubenexus/bounds: found more than 256 pod templates (spec.tasks[256].template): use fewer"
        " templates with more replicas, or several workloads"
    ]
    assert got.audit == {}


def test_a_pod_whose_owner_makes_too_many_is_denied() -> None:
    pod = a_pod("p", labels=in_gang("train", None))
    owner = a_gang(None, parallelism=20_000)
    assert verdict(a_review(pod), owner=owner) == [
        "kubenexus/bounds: the workload makes 20000 pods of group 'train', which has no size, want"
        f" at most 10000 pods in a gang (metadata.labels['{vocabulary.GANG_NAME_LABEL}']): {FIX}"
    ]


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(a_gang(20_000, parallelism=20_000), 20_000, 0, id="as it was"),
        pytest.param(a_gang(20_000, parallelism=20_000), 30_000, 1, id="larger"),
        pytest.param(a_gang(20_000, parallelism=20_000), 4, 0, id="within the bound"),
    ],
)
def test_an_update_is_denied_for_what_it_breaks(old: Json, new: int, want: int) -> None:
    assert len(verdict(a_review(a_gang(new, parallelism=max(new, 20_000)), old))) == want


@pytest.mark.parametrize(
    ("before", "after", "policies", "want"),
    [
        (4, 10_000, PLAIN, []),
        (4, 10_001, PLAIN, ["spec.replicas"]),
        (4, 10_001, RAISED, []),
        (20_000, 20_001, PLAIN, []),
    ],
)
def test_a_workload_is_not_scaled_to_a_gang_above_the_bound(
    before: int, after: int, policies: PolicySet, want: list[str]
) -> None:
    pod = a_pod("p", labels=in_gang("train", None))
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": before, "template": pod},
    }
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
    review = a_review(
        {**scale, "spec": {"replicas": after}},
        {**scale, "spec": {"replicas": before}},
        resource="deployments",
        subresource="scale",
    )
    got = decide.validate(review, Facts(HOME, owner=workload), policies, now=NOW)
    assert [failure.path for failure in got.failures] == want


def test_a_profile_that_is_too_long_is_not_read() -> None:
    text = '{"tier": "gold", "more": "' + "x" * bounds.JSON.longest + '"}'
    pods = [
        a_pod("p", annotations={vocabulary.PROFILE_ANNOTATION: row})
        for row in (text, text[:15] + "}")
    ]
    assert [profile.read(pod) for pod in pods] == [{}, {"tier": "gold"}]
