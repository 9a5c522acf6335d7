"""
Policies on one request: pure, the same on every replica.

    namespace --index--> candidates --kind, operation--> policies
    round:  matchConditions --> classification --> defaults --writes?--> next round
    then:   validations on the object as it would be stored --fails?--> exceptions --> Failure

Here policies are chosen and objects laid before the `court`, which judges them.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from policies.engine import classify, tenant_limits
from policies.engine.compiled import CompiledPolicy
from policies.engine.object_evaluator import EvaluatedObject, ObjectEvaluator
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest, pod_from
from policies.engine.result import BUILTIN, Evaluation, Failure, TenantIdentity
from policies.json_fields import Json
from policies.pods.intent import Intent
from policies.pods.members import members_of, size_from


def evaluate(
    admission: AdmissionRequest,
    policies: PolicySet,
    *,
    now: datetime,
    inject: bool = True,
    validate: bool = True,
) -> Evaluation:
    """
    What the policies make of the request.

    With `inject` off the object is judged as it stands, as a validating webhook must: nobody
    knows whether the mutating call took place. With `validate` off nothing is judged: a mutating
    webhook needs no verdict, the validating call comes after it. `now` is compared with
    exceptions' ends.
    """
    if admission.namespace and admission.home is None:
        return _unknown_namespace(admission, policies)
    labels = classify.namespace_labels(admission)
    candidates = policies.for_namespace(admission.namespace, labels)
    who, conflicts = classify.who(admission, policies.tables, candidates)
    court = ObjectEvaluator(
        admission,
        policies.tables,
        who,
        now,
        inject,
        validate,
        tenant_limits.params(candidates),
    )
    court.conflicts += conflicts
    own = [
        policy
        for policy in candidates
        if policy.takes(admission.operation) and policy.names_kind(admission.group, admission.kind)
    ]
    obj = admission.object
    if own or admission.is_pod:
        obj = court.judge(EvaluatedObject(obj, tuple(own), is_pod=admission.is_pod))
    if not admission.is_pod and admission.operation in ("CREATE", "UPDATE"):
        _templates(court, candidates, own)
    return Evaluation(
        digest=policies.digest,
        who=who,
        policies=tuple(court.policies),
        pods=tuple(court.pods),
        injections=tuple(court.injections),
        conflicts=tuple(court.conflicts),
        failures=tuple(court.failures),
        excepted=tuple(court.excepted),
        skipped=tuple(court.skipped),
        outcomes=tuple(court.outcomes),
        object=obj,
    )


def _templates(
    court: ObjectEvaluator, candidates: Sequence[CompiledPolicy], own: Sequence[CompiledPolicy]
) -> None:
    """Show each pod template to the policies for Pods; only the limits of a tenant bind there."""
    names = frozenset(policy.name for policy in own)
    pods = tuple(
        policy
        for policy in candidates
        if (policy.name not in names or tenant_limits.has_limits(policy))
        and policy.names_kind("", "Pod")
        and policy.takes("CREATE")
    )
    limited = any(tenant_limits.has_limits(policy) for policy in pods)
    asked = _asked(court.admission.object) if limited else {}
    before = _asked(court.admission.old_object) if limited else {}
    for template in court.admission.templates:
        court.judge(
            EvaluatedObject(
                pod_from(court.admission, template),
                pods,
                is_pod=True,
                path=template.path,
                bare=template.bare,
                advisory=True,
                judged=names,
                asked=asked.get(template.path),
                before=before.get(template.path),
            )
        )


def _asked(workload: Json | None) -> dict[str, Intent]:
    """Path of a template -> what its author asks for; a gang without a size gets the owner's."""
    found: dict[str, Intent] = {}
    for member in members_of(workload) if workload is not None else ():
        gang = member.intent.gang
        if gang is not None and gang.min_available is None and not gang.size_stands_elsewhere:
            gang = replace(gang, min_available=size_from(workload, gang.name))
        found[member.template.path] = replace(member.intent, gang=gang)
    return found


def _unknown_namespace(admission: AdmissionRequest, policies: PolicySet) -> Evaluation:
    """Without the namespace's labels no selector can be answered: that is no "does not match"."""
    failure = Failure(
        BUILTIN,
        "namespace",
        f"namespace {admission.namespace!r} is not known here, so its policies are not either",
        reason="Forbidden",
        fix="try again in a few seconds",
    )
    who = TenantIdentity(admission.namespace, "", "namespace not known")
    return Evaluation(policies.digest, who, failures=(failure,), object=admission.object)
