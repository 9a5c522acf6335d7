"""
What pods may say of whose they are: the tenant of their namespace, and its tier or a lower one.

Tenant and tier come from the namespace; a tier that it does not say may be that of a queue. A pod
that repeats them is right, one that lowers its own tier is welcome, and anything else is refused:
at the workload that would make the pod, so that its author hears it, and at the pod itself,
because not every pod has a workload that was asked about. An update is judged by what it changes,
as a namespace may have moved since.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from policies import vocabulary
from policies.engine import classify
from policies.engine.policyset import PolicyTables
from policies.engine.result import TenantIdentity
from policies.json_fields import mapping
from policies.pods.intent import Problem
from policies.pods.workloads import PodTemplate, pods_of
from webhook.review.codec import Review

Json = Mapping[str, Any]


def problems(review: Review, who: TenantIdentity, tables: PolicyTables) -> list[Problem]:
    """What the pod, or the pods of the workload, claim in vain."""
    is_pod = review.kind == "Pod" and not review.group
    if review.object is None or (is_pod and review.operation != "CREATE"):
        return []  # what a pod's stamps say is guarded by itself
    before = {template.path: _labels(template) for template in pods_of(review.old_object or {})}
    found: list[Problem] = []
    for template in pods_of(review.object):
        was = before.get(template.path, {})
        claimed = {key: value for key, value in _labels(template).items() if was.get(key) != value}
        found += _claims(template, claimed, review.namespace, who, tables)
    return found


def _claims(
    template: PodTemplate, claimed: Json, namespace: str, who: TenantIdentity, tables: PolicyTables
) -> Iterator[Problem]:
    tenant = claimed.get(vocabulary.TENANT_LABEL, who.tenant)
    if tenant != who.tenant:
        yield Problem(
            "tenant",
            template.place(f"metadata.labels['{vocabulary.TENANT_LABEL}']"),
            f"found {tenant!r}, but namespace {namespace!r} belongs to {who.tenant!r}",
            "remove the label; it is set from the namespace",
        )
    tier = claimed.get(vocabulary.TIER_LABEL, who.tier)
    if tier != who.tier and not _is_lower(tier, who.tier, tables):
        yield Problem(
            "tier",
            template.place(f"metadata.labels['{vocabulary.TIER_LABEL}']"),
            f"found {tier!r}, but {_whose(who, namespace)} has tier {who.tier!r}",
            "remove the label, or ask the cluster admin to raise the namespace's tier",
        )


def _whose(who: TenantIdentity, namespace: str) -> str:
    return "its queue" if who.source == classify.QUEUE else f"namespace {namespace!r}"


def _is_lower(tier: object, than: str, tables: PolicyTables) -> bool:
    """Whether both are tiers, and the first ranks below the second."""
    one = tables.tiers.get(tier) if isinstance(tier, str) else None
    other = tables.tiers.get(than)
    return one is not None and other is not None and one.rank < other.rank


def _labels(template: PodTemplate) -> Json:
    return mapping(mapping(template.pod.get("metadata")).get("labels"))
