"""
Checks the tenant and tier labels of pods: the tenant of their namespace, its tier or a lower one.

Tenant and tier come from the namespace; a tier that it does not set may come from a queue. A pod
may repeat them and may lower its own tier; any other value is denied, at the workload that creates
the pod, so that its author sees the message, and at the pod, because not every pod has a workload
that was reviewed. Only changed labels count on an update: the namespace may have moved since.
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


def problems(review: Review, identity: TenantIdentity, tables: PolicyTables) -> list[Problem]:
    """Tenant and tier labels that the pod, or the pods of the workload, may not have."""
    is_pod = review.kind == "Pod" and not review.group
    if review.object is None or (is_pod and review.operation != "CREATE"):
        return []  # `guards` keeps the stamps of existing pods
    before = {template.path: _labels(template) for template in pods_of(review.old_object or {})}
    denied: list[Problem] = []
    for template in pods_of(review.object):
        was = before.get(template.path, {})
        claimed = {key: value for key, value in _labels(template).items() if was.get(key) != value}
        denied += _claims(template, claimed, review.namespace, identity, tables)
    return denied


def _claims(
    template: PodTemplate,
    claimed: Json,
    namespace: str,
    identity: TenantIdentity,
    tables: PolicyTables,
) -> Iterator[Problem]:
    tenant = claimed.get(vocabulary.TENANT_LABEL, identity.tenant)
    if tenant != identity.tenant:
        yield Problem(
            "tenant",
            template.place(f"metadata.labels['{vocabulary.TENANT_LABEL}']"),
            f"found {tenant!r}, but namespace {namespace!r} belongs to {identity.tenant!r}",
            "remove the label; it is set from the namespace",
        )
    tier = claimed.get(vocabulary.TIER_LABEL, identity.tier)
    if tier != identity.tier and not _is_lower(tier, identity.tier, tables):
        yield Problem(
            "tier",
            template.place(f"metadata.labels['{vocabulary.TIER_LABEL}']"),
            f"found {tier!r}, but {_whose(identity, namespace)} has tier {identity.tier!r}",
            "remove the label, or ask the cluster admin to raise the namespace's tier",
        )


def _whose(identity: TenantIdentity, namespace: str) -> str:
    return "its queue" if identity.source == classify.QUEUE else f"namespace {namespace!r}"


def _is_lower(tier: object, than: str, tables: PolicyTables) -> bool:
    """Whether both are tiers, and the first ranks below the second."""
    lower = tables.tiers.get(tier) if isinstance(tier, str) else None
    other = tables.tiers.get(than)
    return lower is not None and other is not None and lower.rank < other.rank


def _labels(template: PodTemplate) -> Json:
    return mapping(mapping(template.pod.get("metadata")).get("labels"))
