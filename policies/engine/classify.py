"""
The tenant and tier of a request, the workload type and hardware tier of its pods.

    tier        TenantPolicy, namespace label, Kueue queue, PriorityClass table, bronze;
                a pod's own label may lower it, never raise it
    type        the pod's own label, rules of tenant policies, rules of platform policies, service
    hardware    the pod's own label, the same rules, then for GPU pods the tier's preferred one

The first rule that is true wins. A tenant's rules come before the platform's, which are the general
case. Hardware that a tier may not use is denied to users and ignored in rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from policies import vocabulary
from policies.documents.policy import TenantPolicy
from policies.engine.compiled import ClassifyRule, CompiledPolicy, Joined
from policies.engine.policyset import PolicyTables
from policies.engine.request import AdmissionRequest
from policies.engine.result import BUILTIN, Conflict, Failure, PolicyResult, TenantIdentity
from policies.json_fields import Json, mapping
from policies.pods import requests

TrueRules = Callable[[CompiledPolicy, Sequence[ClassifyRule], Joined], Iterator[ClassifyRule]]
"""The rules of a policy that are true, in their order, evaluated one by one."""

_FALLBACK: Final = PolicyResult("service", BUILTIN, "fallback")

QUEUE: Final = "queue"
"""The source of a tier that comes from a Kueue queue."""
OWN: Final = "pod label"
"""The source of a tier that a pod chose for itself, lower than its own."""
_NAMESPACE: Final = "namespace label"
_POLICY: Final = "TenantPolicy"
_DEFAULT: Final = "default"


def identify(
    admission: AdmissionRequest, tables: PolicyTables, matched: Sequence[CompiledPolicy]
) -> tuple[TenantIdentity, list[Conflict]]:
    """The tenant and tier of a request; policies of two tenants for one namespace conflict."""
    labels = namespace_labels(admission)
    tenants = [policy for policy in matched if isinstance(policy.model, TenantPolicy)]
    conflicts = [
        Conflict("tenant", tenants[0].tenant, tenants[0].name, other.tenant, other.name)
        for other in tenants[1:]
        if other.tenant != tenants[0].tenant
    ]
    name = labels.get(vocabulary.TENANT_LABEL) or admission.namespace
    policy = ""
    if tenants:
        name, policy = str(tenants[0].tenant), tenants[0].name
    tier, source = _tier(admission, tables, labels, tenants)
    label = _pod_labels(admission.target if admission.is_pod else {}).get(vocabulary.TIER_LABEL)
    if (
        isinstance(label, str)
        and label in tables.tiers
        and tables.tiers[label].rank < _rank(tables, tier)
    ):
        tier, source = label, OWN
    return TenantIdentity(name, tier, source, policy), conflicts


def _tier(
    admission: AdmissionRequest,
    tables: PolicyTables,
    labels: Mapping[str, str],
    tenants: Sequence[CompiledPolicy],
) -> tuple[str, str]:
    for policy in tenants[:1]:
        tier = policy.model.spec.tenant.tier if isinstance(policy.model, TenantPolicy) else None
        if tier is not None:
            return tier, f"{_POLICY} {policy.name}"
    label = labels.get(vocabulary.TIER_LABEL, "").lower()
    if label in tables.tiers:
        return label, _NAMESPACE
    if admission.queue_tier in tables.tiers:
        return str(admission.queue_tier), QUEUE
    for pod in _specs(admission):
        named = str(pod.get("priorityClassName") or "")
        if named in tables.priority_classes:
            return tables.priority_classes[named], f"PriorityClass {named}"
    return vocabulary.LOWEST_TIER, _DEFAULT


def uses_queue(identity: TenantIdentity) -> bool:
    """Whether the tier of a queue counts: no source that comes before it gave the tier."""
    source = identity.source
    return source not in (OWN, _NAMESPACE) and not source.startswith(f"{_POLICY} ")


def _specs(admission: AdmissionRequest) -> Iterable[Json]:
    if admission.is_pod:
        yield mapping(admission.target.get("spec"))
    for template in admission.templates:
        yield mapping(template.pod.get("spec"))


def _rank(tables: PolicyTables, tier: str) -> int:
    return tables.tiers[tier].rank if tier in tables.tiers else -1


def namespace_labels(admission: AdmissionRequest) -> Mapping[str, str]:
    namespace = admission.home or {}
    return {
        str(key): value
        for key, value in mapping(mapping(namespace.get("metadata")).get("labels")).items()
        if isinstance(value, str)
    }


def workload_type(
    pod: Json, matched: Sequence[CompiledPolicy], true_rules: TrueRules
) -> tuple[PolicyResult, list[Failure]]:
    label = _pod_labels(pod).get(vocabulary.WORKLOAD_TYPE_LABEL)
    if isinstance(label, str) and label in vocabulary.WORKLOAD_TYPES:
        return PolicyResult(label, BUILTIN, "pod label"), []
    failures = []
    if label is not None:
        failures = [_unusable("workload-type", vocabulary.WORKLOAD_TYPE_LABEL, label, _TYPES)]
    for policy in _tenants_first(policy for policy in matched if policy.workload_types):
        for rule in true_rules(policy, policy.workload_types, policy.first_type):
            return PolicyResult(rule.value, policy.name, rule.rule), failures
    return _FALLBACK, failures


_TYPES: Final = f"one of {', '.join(vocabulary.WORKLOAD_TYPES)}"


def hardware_tier(
    pod: Json,
    tier: str,
    tables: PolicyTables,
    matched: Sequence[CompiledPolicy],
    true_rules: TrueRules,
) -> tuple[PolicyResult | None, list[Failure], list[Conflict]]:
    spec = tables.tiers.get(tier)
    allowed = spec.hardware_tiers.allowed if spec is not None else vocabulary.HARDWARE_TIERS
    label = _pod_labels(pod).get(vocabulary.HARDWARE_TIER_LABEL)
    if label is not None:
        label = str(label)
        expected = f"what tier {tier} may use: {', '.join(allowed)}"
        refused = _unusable("hardware-tier", vocabulary.HARDWARE_TIER_LABEL, label, expected)
        return PolicyResult(label, BUILTIN, "pod label"), [] if label in allowed else [refused], []
    conflicts: list[Conflict] = []
    for policy in _tenants_first(policy for policy in matched if policy.hardware_tiers):
        for rule in true_rules(policy, policy.hardware_tiers, policy.first_tier):
            if rule.value in allowed:
                return PolicyResult(rule.value, policy.name, rule.rule), [], conflicts
            by = f"{policy.name}/{rule.rule}"
            allowed_text = f"tier {tier} may use {', '.join(allowed)}"
            conflicts.append(Conflict("hardware tier", allowed_text, "tiers", rule.value, by))
    preferred = spec.hardware_tiers.preferred if spec is not None else ()
    if preferred and requests_gpus(pod):
        return PolicyResult(preferred[0], BUILTIN, f"tier {tier} prefers it"), [], conflicts
    return None, [], conflicts


def requests_gpus(pod: Json) -> bool:
    spec = mapping(pod.get("spec"))
    try:
        if not requests.names_gpus(spec):
            return False
        return requests.gpus(requests.effective({"spec": spec})) > 0
    except requests.RequestError:
        return False  # the API server itself rejects unreadable amounts


def _tenants_first(matched: Iterable[CompiledPolicy]) -> list[CompiledPolicy]:
    return sorted(matched, key=lambda policy: policy.tenant is None)  # stable


def _pod_labels(pod: Json) -> Json:
    return mapping(mapping(pod.get("metadata")).get("labels"))


def _unusable(rule: str, key: str, value: object, expected: str) -> Failure:
    return Failure(
        BUILTIN,
        rule,
        f"found {value!r}, want {expected}",
        path=f"metadata.labels['{key}']",
        fix="correct the label, or remove it and let policy decide",
    )
