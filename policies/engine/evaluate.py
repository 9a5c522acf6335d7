"""
Policies on one request: pure, the same on every replica.

    namespace --index--> candidates --kind, operation--> policies
    pass:   matchConditions --> classification --> defaults --writes?--> next pass
    then:   validations on the object as it would be stored --fails?--> exceptions --> Failure

This module chooses the policies; `object_evaluator` runs them on each object.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from policies.engine import classify, tenant_limits
from policies.engine.compiled import CompiledPolicy
from policies.engine.deadline import UNLIMITED, CpuDeadline
from policies.engine.object_evaluator import EvaluatedObject, ObjectEvaluator
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest, pod_from
from policies.engine.result import BUILTIN, Evaluation, EvaluationBuilder, Failure, TenantIdentity
from policies.json_fields import Json
from policies.pods.intent import Intent
from policies.pods.members import gang_sizes, members_of


def evaluate(
    admission: AdmissionRequest,
    policies: PolicySet,
    *,
    now: datetime,
    inject: bool = True,
    validate: bool = True,
    deadline: CpuDeadline = UNLIMITED,
) -> Evaluation:
    """
    What the policies make of the request.

    With `inject` off the object is validated as it stands, as a validating webhook must: the
    mutating call may not have taken place. With `validate` off no validation runs: a mutating
    webhook needs no verdict, the validating call comes after it. `now` is compared with
    exceptions' ends. Past `deadline` no expression is evaluated: each is an error of its rule.
    """
    if admission.namespace and admission.home is None:
        return _unknown_namespace(admission, policies)
    labels = classify.namespace_labels(admission)
    candidates = policies.for_namespace(admission.namespace, labels)
    identity, conflicts = classify.identify(admission, policies.tables, candidates)
    result = EvaluationBuilder(policies.digest, identity)
    result.add_conflicts(conflicts)
    params = tenant_limits.params(candidates)
    evaluator = ObjectEvaluator(
        admission, policies.tables, now, inject, validate, params, result, deadline
    )
    own = [
        policy
        for policy in candidates
        if policy.takes(admission.operation) and policy.names_kind(admission.group, admission.kind)
    ]
    obj = admission.object
    if own or admission.is_pod:
        obj = evaluator.evaluate(EvaluatedObject(obj, tuple(own), is_pod=admission.is_pod))
    if not admission.is_pod and admission.operation in ("CREATE", "UPDATE"):
        _evaluate_templates(evaluator, candidates, own)
    return result.build(obj)


def _evaluate_templates(
    evaluator: ObjectEvaluator, candidates: Sequence[CompiledPolicy], own: Sequence[CompiledPolicy]
) -> None:
    """Evaluate the policies for Pods on each template; only the limits of a tenant deny there."""
    names = frozenset(policy.name for policy in own)
    pods = tuple(
        policy
        for policy in candidates
        if (policy.name not in names or tenant_limits.has_limits(policy))
        and policy.names_kind("", "Pod")
        and policy.takes("CREATE")
    )
    limited = any(tenant_limits.has_limits(policy) for policy in pods)
    intents = _intents(evaluator.admission.object) if limited else {}
    old_intents = _intents(evaluator.admission.old_object) if limited else {}
    for template in evaluator.admission.templates:
        if evaluator.deadline.exceeded:
            evaluator.result.failures.append(_unevaluated(evaluator.deadline, template.path))
            return
        evaluator.evaluate(
            EvaluatedObject(
                pod_from(evaluator.admission, template),
                pods,
                is_pod=True,
                path=template.path,
                bare=template.bare,
                advisory=True,
                validated_by=names,
                intent=intents.get(template.path),
                old_intent=old_intents.get(template.path),
            )
        )


def _intents(workload: Json | None) -> dict[str, Intent]:
    """Path of a template -> its intent as written; a gang without a size gets the owner's."""
    members = members_of(workload) if workload is not None else []
    sizes = gang_sizes(members)
    intents: dict[str, Intent] = {}
    for member in members:
        gang = member.intent.gang
        if gang is not None and gang.min_available is None and not gang.size_in_pod_group:
            gang = replace(gang, min_available=sizes[gang.name])
        intents[member.template.path] = replace(member.intent, gang=gang)
    return intents


def _unevaluated(deadline: CpuDeadline, path: str) -> Failure:
    """The limits of a tenant deny at the workload, so a template without a verdict denies too."""
    return Failure(
        BUILTIN,
        "cpu-budget",
        f"{deadline.message} before this pod template",
        reason="Forbidden",
        path=path,
        fix="split the workload, or ask the cluster admin which rule takes so long",
    )


def _unknown_namespace(admission: AdmissionRequest, policies: PolicySet) -> Evaluation:
    """Without the namespace's labels no selector can be answered: that is no "does not match"."""
    failure = Failure(
        BUILTIN,
        "namespace",
        f"namespace {admission.namespace!r} is not known here, so its policies are not either",
        reason="Forbidden",
        fix="try again in a few seconds",
    )
    identity = TenantIdentity(admission.namespace, "", "namespace not known")
    return Evaluation(policies.digest, identity, failures=(failure,), object=admission.object)
