from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from policies import vocabulary
from policies.cel import engines
from policies.checks.numa import Size
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from tests.builders import a_container, a_job, a_namespace, a_pod, in_gang
from webhook.admission import decide
from webhook.admission.decide import Decision, Facts
from webhook.review.codec import Review
from webhook.review.patch import apply

Json = dict[str, Any]
GOLD = a_namespace(tenant="ada", tier="gold")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NONE = PolicySet()
SIGS = "pod-group.scheduling.sigs.k8s.io"


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


def mutated(
    pod: Json, namespace: Json = GOLD, owner: Json | None = None, policies: PolicySet = NONE
) -> Json:
    decision = decide.mutate(a_review(pod), Facts(namespace, owner), policies, now=NOW)
    assert decision.allowed
    return apply(pod, decision.patch)


def stamped(pod: Json) -> Json:
    """What a webhook of this kind added, in a shape that is easy to compare."""
    labels = pod["metadata"].get("labels") or {}
    annotations = pod["metadata"].get("annotations") or {}
    return {
        "labels": {k.split(".")[0] + "/" + k.split("/")[1]: v for k, v in labels.items()},
        "profile": orjson.loads(annotations[vocabulary.PROFILE_ANNOTATION]),
        "scheduler": pod["spec"].get("schedulerName"),
    }


WHO = {"tenant/name": "ada", "tenant/tier": "gold", "workload/type": "service"}
PROFILE = {"tenant": "ada", "tier": "gold", "type": "service", "policies": [], "digest": ""}
IN_G = {"pod-group/name": "g", "pod-group/min-available": "4"}
G = {"gang": {"name": "g", "minAvailable": 4}}


@pytest.mark.parametrize(
    ("pod", "owner", "want"),
    [
        pytest.param(
            a_pod(),
            None,
            {"labels": WHO, "profile": PROFILE, "scheduler": None},
            id="a plain pod is stamped and stays with its scheduler",
        ),
        pytest.param(
            a_pod(labels=in_gang(), schedulerName="default-scheduler"),
            None,
            {"labels": WHO | IN_G, "profile": PROFILE | G, "scheduler": "kubenexus-scheduler"},
            id="a gang is assigned to the scheduler that can place gangs",
        ),
        pytest.param(
            a_pod(labels=in_gang(), schedulerName="volcano"),
            None,
            {"labels": WHO | IN_G, "profile": PROFILE | G, "scheduler": "volcano"},
            id="a scheduler that the user chose stays",
        ),
        pytest.param(
            a_pod(labels=in_gang(size=None)),
            a_job(pod=a_pod(labels=in_gang(size=None)), parallelism=4),
            {"labels": WHO | IN_G, "profile": PROFILE | G, "scheduler": "kubenexus-scheduler"},
            id="the size comes from the owner",
        ),
        pytest.param(
            a_pod(annotations={vocabulary.GANG_GROUP_ANNOTATION: "g"}),
            None,
            {
                "labels": WHO | {"pod-group/name": "g", "pod-group/min-available": "1"},
                "profile": PROFILE | {"gang": {"name": "g", "minAvailable": 1}},
                "scheduler": "kubenexus-scheduler",
            },
            id="a locality group denies nothing",
        ),
        pytest.param(
            a_pod(annotations={f"{vocabulary.GROUP}/numa-policy": "single-numa-node"}),
            None,
            {
                "labels": WHO,
                "profile": PROFILE | {"numa": {"policy": "single-numa", "by": "user"}},
                "scheduler": "kubenexus-scheduler",
            },
            id="a NUMA requirement in the older spelling",
        ),
    ],
)
def test_what_is_stamped(pod: Json, owner: Json | None, want: Json) -> None:
    assert stamped(mutated(pod, owner=owner)) == want


def test_other_families_are_normalised_to_the_canonical_keys() -> None:
    pod = mutated(a_pod(labels={f"{SIGS}/name": "g", f"{SIGS}/min-available": "4"}))
    labels = pod["metadata"]["labels"]
    assert (labels[vocabulary.GANG_NAME_LABEL], labels[vocabulary.GANG_MIN_AVAILABLE_LABEL]) == (
        "g",
        "4",
    )


def test_a_forged_profile_is_overwritten() -> None:
    pod = mutated(a_pod(annotations={vocabulary.PROFILE_ANNOTATION: '{"tier":"platinum"}'}))
    assert stamped(pod)["profile"] == PROFILE


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_pod(labels=in_gang()),
        a_pod(labels={f"{SIGS}/name": "g", f"{SIGS}/min-available": "4"}),
        a_pod(annotations={f"{vocabulary.GROUP}/numa-policy": "single-numa-node", "other": "x"}),
        a_pod(labels={}, annotations={}) | {"unknown": {"kept": True}},
    ],
)
def test_deciding_on_the_patched_pod_changes_nothing_more(pod: Json) -> None:
    once = mutated(pod)
    assert decide.mutate(a_review(once), Facts(GOLD), NONE, now=NOW).patch == ()
    assert {key: once[key] for key in pod if key not in ("metadata", "spec")} == {
        key: pod[key] for key in pod if key not in ("metadata", "spec")
    }


@pytest.mark.parametrize(
    "reviewed",
    [
        a_review(a_job()),
        a_review(a_pod(), "UPDATE", a_pod()),
        a_review(a_pod(labels=in_gang(size="x"))),
    ],
    ids=["a workload", "an update", "a pod that validation will refuse"],
)
def test_what_is_left_alone(reviewed: Review) -> None:
    assert decide.mutate(reviewed, Facts(GOLD), NONE, now=NOW) == Decision()


def tier(value: str) -> Json:
    return a_pod(labels={vocabulary.TIER_LABEL: value})


STAMP = "delete the pod and create it anew; what admission wrote stays as it is"


@pytest.mark.parametrize(
    ("reviewed", "namespace", "want"),
    [
        pytest.param(a_review(a_pod()), GOLD, [], id="a plain pod"),
        pytest.param(a_review(mutated(a_pod(labels=in_gang()))), GOLD, [], id="a stamped pod"),
        pytest.param(
            a_review({"apiVersion": "v1", "kind": "ConfigMap"}),
            GOLD,
            [],
            id="a kind that makes no pods",
        ),
        pytest.param(a_review(tier("bronze")), GOLD, [], id="a lower tier than the namespace's"),
        pytest.param(
            a_review(tier("gold")),
            a_namespace(),
            [
                "kubenexus/tier: found 'gold', but namespace 'team-a' has tier 'bronze' "
                "(metadata.labels['tenant.kubenexus.io/tier']): "
                "remove the label, or ask the cluster admin to raise the namespace's tier"
            ],
            id="a pod that raises its own tier",
        ),
        pytest.param(
            a_review(a_pod(labels={vocabulary.TENANT_LABEL: "eve"})),
            GOLD,
            [
                "kubenexus/tenant: found 'eve', but namespace 'team-a' belongs to 'ada' "
                "(metadata.labels['tenant.kubenexus.io/name']): "
                "remove the label; it is set from the namespace"
            ],
            id="a pod of another scheduler",
        ),
        pytest.param(
            a_review(a_job(pod=tier("gold"))),
            a_namespace(),
            [
                "kubenexus/tier: found 'gold', but namespace 'team-a' has tier 'bronze' "
                "(spec.template.metadata.labels['tenant.kubenexus.io/tier']): "
                "remove the label, or ask the cluster admin to raise the namespace's tier"
            ],
            id="a Job whose pods raise their own tier",
        ),
        pytest.param(
            a_review(a_job(pod=a_pod(labels={vocabulary.TENANT_LABEL: "eve"}))),
            GOLD,
            [
                "kubenexus/tenant: found 'eve', but namespace 'team-a' belongs to 'ada' "
                "(spec.template.metadata.labels['tenant.kubenexus.io/name']): "
                "remove the label; it is set from the namespace"
            ],
            id="a Job of another scheduler",
        ),
        pytest.param(a_review(a_job(pod=tier("silver"))), GOLD, [], id="a Job of a lower tier's"),
        pytest.param(
            a_review(a_job(pod=tier("gold"), parallelism=2), "UPDATE", a_job(pod=tier("gold"))),
            a_namespace(),
            [],
            id="an update is not blamed for a tier that was too high before",
        ),
        pytest.param(
            a_review(a_pod(labels=in_gang("h")), "UPDATE", a_pod(labels=in_gang("g"))),
            GOLD,
            [
                "kubenexus/stamped: changed from 'g' to 'h' "
                f"(metadata.labels['{vocabulary.GANG_NAME_LABEL}']): {STAMP}"
            ],
            id="an update that moves a pod to another gang",
        ),
        pytest.param(
            a_review(a_pod(), "UPDATE", mutated(a_pod())),
            GOLD,
            [
                f"kubenexus/stamped: changed from 'ada' to nothing (metadata.labels['{vocabulary.TENANT_LABEL}']): {STAMP}",
                f"kubenexus/stamped: changed from 'gold' to nothing (metadata.labels['{vocabulary.TIER_LABEL}']): {STAMP}",
                f"kubenexus/stamped: changed from 'service' to nothing (metadata.labels['{vocabulary.WORKLOAD_TYPE_LABEL}']): {STAMP}",
                "kubenexus/stamped: changed from "
                '\'{"digest":"","policies":[],"tenant":"ada","tier":"gold","type":"service"}\' to nothing '
                f"(metadata.annotations['{vocabulary.PROFILE_ANNOTATION}']): {STAMP}",
            ],
            id="an update that wipes the stamps off names each of them",
        ),
        pytest.param(
            a_review(a_job(pod=a_pod(labels=in_gang()), parallelism=2)),
            GOLD,
            [
                "kubenexus/gang-size: pod-group.scheduling.kubenexus.io/min-available is 4 but the "
                "workload makes 2 pods of group 'g' at a time (spec.template.metadata.labels"
                "['pod-group.scheduling.kubenexus.io/min-available']): "
                "lower min-available to 2 or less, or run 4 pods at a time; where others make the "
                "rest, label the template with its pod-group.scheduling.kubenexus.io/role"
            ],
            id="a Job that never makes its gang",
        ),
    ],
)
def test_verdicts(reviewed: Review, namespace: Json, want: list[str]) -> None:
    got = decide.validate(reviewed, Facts(namespace), NONE, now=NOW)
    assert (got.allowed, got.message.splitlines()) == (not want, want)


def owned(pod: Json) -> Json:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (a_pod(), False),
        (a_pod(labels=in_gang()), False),
        (a_pod(labels=in_gang(size=None)), False),
        (owned(a_pod(labels=in_gang(size=None))), True),
        (owned(a_pod(labels=in_gang())), False),
        (a_pod(labels={vocabulary.X_K8S_POD_GROUP: "g"}), False),
        (a_job(), False),
    ],
)
def test_the_owner_is_looked_up_only_where_it_decides(pod: Json, want: bool) -> None:
    assert decide.needs_owner(a_review(pod)) is want


@pytest.fixture(scope="module")
def shipped() -> PolicySet:
    loaded = loader.load_files(loader.LIBRARY, compiler=Compiler(engines.engine()))
    assert loaded.problems == ()
    return loaded.policies


def test_policies_classify_and_default_a_pod(shipped: PolicySet) -> None:
    pod = a_pod(
        labels=in_gang(),
        containers=[a_container(cpu="1") | {"resources": {"limits": {"nvidia.com/gpu": "8"}}}],
    )
    got = mutated(pod, policies=shipped)
    profile = stamped(got)["profile"]
    assert {key: profile[key] for key in ("type", "hardware", "numa", "policies")} == {
        "type": "training",
        "hardware": "premium",
        "numa": {"policy": "restricted", "by": "placement"},
        "policies": ["hardware", "placement", "tiers", "workloads"],
    }
    again = decide.mutate(a_review(got), Facts(GOLD), shipped, now=NOW)
    assert again.patch == (), "the second round must find nothing left to do"
    assert decide.validate(a_review(got), Facts(GOLD), shipped, now=NOW).allowed


def test_an_update_is_not_blamed_for_what_was_wrong_before() -> None:
    broken = a_pod(labels=in_gang(size="x"))
    touched = a_pod(labels=in_gang(size="x")) | {"status": {"phase": "Running"}}
    assert decide.validate(a_review(touched, "UPDATE", broken), Facts(GOLD), NONE, now=NOW).allowed


@pytest.mark.parametrize(
    ("by", "want"),
    [
        pytest.param("user", True, id="the user sets the requirement"),
        pytest.param("tiers", False, id="a policy sets it: a host without NUMA data suffices"),
    ],
)
def test_a_pod_larger_than_any_numa_node_is_warned_about(
    shipped: PolicySet, by: str, want: bool
) -> None:
    annotations = {
        vocabulary.NUMA_POLICY_ANNOTATION: "single-numa",
        vocabulary.PROFILE_ANNOTATION: orjson.dumps({"numa": {"by": by}}).decode(),
    }
    pod = a_pod(annotations=annotations, containers=[a_container(cpu="40", memory="1Gi")])
    facts = Facts(GOLD, numa_sizes=(Size(32000, 2**40),))
    got = decide.validate(a_review(pod), facts, shipped, now=NOW)
    said = [line for line in got.warnings if "the largest known has 32" in line]
    assert (got.allowed, bool(said)) == (True, want)
