"""
`policy explain`: how policies evaluate one object, expression by expression.

    policies --traced---> evaluate --> Evaluation  the decision
                  |                                   |
                traces --------------------------> Explanation  with the expressions

A policy that does not apply is listed too, with the first criterion that failed, in the order of
the engine: namespace, operation, kind, matchConditions. `text` renders it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubenexus.policy.explain.tracing import TracedExpression, Tracer
from policies.documents import label_selectors
from policies.documents.rules import Selector, SelectorTerm
from policies.engine import classify
from policies.engine.compiled import CompiledPolicy
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest
from policies.engine.result import Evaluation, where
from policies.json_fields import Json


@dataclass(frozen=True, slots=True)
class ShownExpression:
    """One expression as it was evaluated; `on` is the object, where the value depends on it."""

    traced: TracedExpression
    on: str = ""


@dataclass(frozen=True, slots=True)
class PolicyExplanation:
    """A policy: whether it applies, why not, and its expressions in the order of their use."""

    name: str
    kind: str
    source: str
    matched: bool
    why: str
    expressions: tuple[ShownExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one object."""

    kind: str
    name: str
    namespace: str
    policies: tuple[PolicyExplanation, ...]
    outcome: Evaluation


def explain(
    obj: Json,
    policies: PolicySet,
    *,
    namespace: Json,
    operation: str = "CREATE",
    queue_tier: str | None = None,
    now: datetime,
) -> Explanation:
    """The explanation; the policies' programs carry their parts where a PartsEngine made them."""
    admission = AdmissionRequest.of(
        obj, operation=operation, namespace=namespace, queue_tier=queue_tier
    )
    tracer = Tracer()
    traced = tracer.over(policies)
    outcome = evaluate(admission, traced, now=now)
    labels = classify.namespace_labels(admission)
    selected = {policy.name for policy in traced.for_namespace(admission.namespace, labels)}
    policies_explained = [
        _policy(policy, selected, admission, outcome, tracer) for policy in traced.policies
    ]
    return Explanation(
        admission.kind, admission.name, admission.namespace, tuple(policies_explained), outcome
    )


def _policy(
    policy: CompiledPolicy,
    selected: Set[str],
    admission: AdmissionRequest,
    outcome: Evaluation,
    tracer: Tracer,
) -> PolicyExplanation:
    rows = [row for row in tracer.expressions if row.policy == policy.name]
    matched = policy.name in outcome.policies
    why = "" if matched else _why_not(policy, selected, admission, rows)
    shown = _shown(rows, [_stage(obj, admission) for obj in tracer.objects])
    return PolicyExplanation(
        policy.name, policy.model.kind, policy.source, matched, why, tuple(shown)
    )


def _why_not(
    policy: CompiledPolicy,
    selected: Set[str],
    admission: AdmissionRequest,
    rows: Sequence[TracedExpression],
) -> str:
    if policy.name not in selected:
        labels = classify.namespace_labels(admission)
        return _unselected(policy.selector, admission.namespace, labels)
    constraints = policy.model.spec.match_constraints
    if not policy.takes(admission.operation):
        return f"operations: {', '.join(constraints.operations)}; this is {admission.operation}"
    last = {row.rule: row for row in rows if row.section == "matchConditions"}
    for row in last.values():
        if row.value is False:
            return f"matchCondition {row.rule} is false"
    for row in last.values():
        if row.error:
            return f"matchCondition {row.rule} has no value: {row.error}"
    group = f"{admission.group}/" if admission.group else ""
    return f"kinds: {', '.join(constraints.kinds)}; this is {group}{admission.kind}"


def _unselected(selector: Selector | None, namespace: str, labels: Mapping[str, str]) -> str:
    """The first condition of the selector that the namespace does not meet."""
    if not namespace:
        return "namespaceSelector: the object has no namespace"
    known = {label_selectors.NAMESPACE_NAME: namespace, **labels}
    for key, value in selector.match_labels.items() if selector else ():
        if known.get(key) != value:
            return f"namespaceSelector: requires {key}={value}, {_has(namespace, key, known)}"
    for term in selector.match_expressions if selector else ():
        single = Selector.model_construct(match_labels={}, match_expressions=(term,))
        if not label_selectors.matches(single, known):
            return f"namespaceSelector: requires {_term(term)}, {_has(namespace, term.key, known)}"
    return f"namespaceSelector: does not select {namespace}"


def _has(namespace: str, key: str, labels: Mapping[str, str]) -> str:
    return (
        f"namespace {namespace} has {labels[key]!r}"
        if key in labels
        else (f"namespace {namespace} has no such label")
    )


def _term(term: SelectorTerm) -> str:
    values = f" ({', '.join(term.values)})" if term.values else ""
    return f"{term.key} {term.operator}{values}"


def _stage(obj: object, admission: AdmissionRequest) -> str:
    if obj is admission.object:
        return "as sent"
    kind = obj.get("kind") if isinstance(obj, Mapping) else None
    return "pod template" if kind == "Pod" and admission.kind != "Pod" else "with defaults"


def _shown(rows: Sequence[TracedExpression], stages: Sequence[str]) -> list[ShownExpression]:
    """Each expression once, or once for each outcome that it had on the way; the latest counts."""
    groups: dict[tuple[str, str, str], list[TracedExpression]] = {}
    for row in rows:
        known = groups.setdefault((row.section, row.rule, row.expression), [])
        known[:] = [other for other in known if not _alike(row, other)]
        known.append(row)
    return [
        ShownExpression(row, stages[row.stage] if len(group) > 1 else "")
        for group in groups.values()
        for row in group
    ]


def _alike(first: TracedExpression, other: TracedExpression) -> bool:
    return (first.value, first.error) == (other.value, other.error)


def as_dict(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON. Keys are stable; new ones may be added."""
    outcome = explanation.outcome
    return {
        "object": {
            "kind": explanation.kind,
            "name": explanation.name,
            "namespace": explanation.namespace,
        },
        "allowed": outcome.allowed,
        "identity": {
            "tenant": outcome.identity.tenant,
            "tier": outcome.identity.tier,
            "source": outcome.identity.source,
            "policy": outcome.identity.policy,
        },
        "pods": [
            {
                "path": pod.path,
                "workloadType": _classified(pod.workload_type),
                "hardwareTier": _classified(pod.hardware_tier),
            }
            for pod in outcome.pods
        ],
        "policies": [_policy_dict(policy) for policy in explanation.policies],
        "injections": [
            {
                "path": where(row.path),
                "value": plain(row.value),
                "policy": row.policy,
                "rule": row.rule,
                "override": row.override,
            }
            for row in outcome.injections
        ],
        "conflicts": [str(row) for row in outcome.conflicts],
        "failures": [
            {
                "policy": row.policy,
                "rule": row.rule,
                "message": row.message,
                "actions": list(row.actions),
                "denies": row.denies,
                "path": row.path,
            }
            for row in outcome.failures
        ],
        "exceptions": [
            {
                "policy": row.policy,
                "rule": row.rule,
                "exception": row.exception,
                "reason": row.reason,
            }
            for row in outcome.excepted
        ],
        "skipped": [
            {"policy": row.policy, "rule": row.rule, "error": row.error} for row in outcome.skipped
        ],
        "warnings": list(outcome.warnings),
    }


def _classified(result: Any) -> dict[str, str] | None:
    if result is None:
        return None
    return {"value": result.value, "policy": result.policy, "rule": result.rule}


def _policy_dict(policy: PolicyExplanation) -> dict[str, Any]:
    return {
        "name": policy.name,
        "kind": policy.kind,
        "source": policy.source,
        "matched": policy.matched,
        "why": policy.why,
        "expressions": [
            {
                "section": row.traced.section,
                "rule": row.traced.rule,
                "expression": row.traced.expression,
                **_outcome(row.traced.value, row.traced.error),
                "on": row.on,
                "parts": [
                    {"text": part.text, "depth": part.depth, **_outcome(part.value, part.error)}
                    for part in row.traced.parts
                ],
            }
            for row in policy.expressions
        ],
    }


def _outcome(value: Any, error: str) -> dict[str, Any]:
    return {"error": error} if error else {"value": plain(value)}


def plain(value: Any) -> Any:
    """The value as JSON, maps sorted by key: engines keep no order."""
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
