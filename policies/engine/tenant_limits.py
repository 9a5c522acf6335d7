"""
The gang and NUMA limits, defaults and params of a TenantPolicy, which need no expressions.

Limits are rules with names, so that exceptions can name them. These defaults come after the
policy's own `defaults`, which are more specific.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from policies import quantity, vocabulary
from policies.cel.protocol import EvaluationError
from policies.documents.policy import TenantPolicy, TenantSpec
from policies.engine.compiled import GANG_MAX, GANG_MIN, NUMA_ALLOWED, CompiledPolicy, Setting
from policies.engine.defaults import Draft, Path, at
from policies.engine.result import Failure, Injection
from policies.pods import intent
from policies.pods.intent import Intent

_NUMA: Final = ("metadata", "annotations", vocabulary.NUMA_POLICY_ANNOTATION)
_TIMEOUT: Final = ("metadata", "annotations", vocabulary.GANG_TIMEOUT_ANNOTATION)


def params(policies: Sequence[CompiledPolicy]) -> Mapping[str, Any] | None:
    """The `params` of the tenant's policy, which every expression may read."""
    for policy in policies:
        if isinstance(policy.model, TenantPolicy) and policy.model.spec.params is not None:
            return policy.model.spec.params
    return None


def defaults(policy: CompiledPolicy, draft: Draft, bases: Sequence[Path]) -> None:
    if not isinstance(policy.model, TenantPolicy):
        return
    spec = policy.model.spec
    for base in bases:
        if spec.numa.default is not None:
            write = Injection((), spec.numa.default, policy.name, "numa.default")
            draft.value(base, _NUMA, write)
        if spec.gang.timeout is None and not spec.gang.gate:
            continue
        if intent.read(at(draft.object, base) or {}).gang is None:
            continue
        if spec.gang.timeout is not None:
            write = Injection((), spec.gang.timeout, policy.name, "gang.timeout")
            draft.value(base, _TIMEOUT, write)
        if spec.gang.gate:
            gate = {"name": vocabulary.GANG_GATE}
            write = Injection((), gate, policy.name, "gang.gate")
            draft.item(base, ("spec", "schedulingGates"), write)


def has_limits(policy: CompiledPolicy) -> bool:
    """Whether the policy limits a pod's intent at all; reading the intent costs."""
    spec = policy.model.spec
    return isinstance(spec, TenantSpec) and (
        spec.gang.max_size is not None
        or spec.gang.min_size is not None
        or len(spec.numa.allowed) < len(vocabulary.NUMA_POLICIES)
    )


def limits(policy: CompiledPolicy, pod_intent: Intent) -> Iterator[Failure]:
    """The limits of the tenant that the pod exceeds."""
    if not isinstance(policy.model, TenantPolicy):
        return
    spec, name = policy.model.spec, policy.name
    size = pod_intent.gang.min_available if pod_intent.gang is not None else None
    key = f"metadata.labels['{vocabulary.GANG_MIN_AVAILABLE_LABEL}']"
    if size is not None and spec.gang.max_size is not None and size > spec.gang.max_size:
        yield Failure(
            name,
            GANG_MAX,
            f"the gang needs {size} members, above the limit of tenant {policy.tenant}"
            f" (max {spec.gang.max_size})",
            path=key,
            fix="lower min-available, or ask the cluster admin for a larger gang",
        )
    if size is not None and spec.gang.min_size is not None and size < spec.gang.min_size:
        yield Failure(
            name,
            GANG_MIN,
            f"the gang needs {size} members, below the limit of tenant {policy.tenant}"
            f" (min {spec.gang.min_size})",
            path=key,
            fix="raise min-available, or run the pods without a gang",
        )
    numa = pod_intent.numa.policy
    if numa is not None and numa not in spec.numa.allowed:
        yield Failure(
            name,
            NUMA_ALLOWED,
            f"found NUMA policy {numa!r}, tenant {policy.tenant} may request"
            f" {', '.join(spec.numa.allowed)}",
            path=f"metadata.annotations['{vocabulary.NUMA_POLICY_ANNOTATION}']",
            fix="choose one of these, or remove the annotation",
        )


def checked_value(setting: Setting, value: object) -> Any:
    """
    A computed value that suits its field; null suits every field, and sets nothing.

    The engine gives the keys of a map in any order; sorted, two replicas write the same bytes.
    """
    if value is None:
        return None
    if setting.shape == "resource":
        try:
            quantity.parse(value)
        except quantity.QuantityError as exc:
            raise EvaluationError("type", str(exc)) from exc
    elif setting.path == ("spec", "affinity"):
        if not isinstance(value, dict):
            raise EvaluationError("type", f"affinity must be a map, the expression gave {value!r}")
    elif not isinstance(value, str):
        raise EvaluationError("type", f"want a string, the expression gave {value!r:.60}")
    return _sorted(value)


def _sorted(value: object) -> Any:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
