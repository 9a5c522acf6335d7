"""
Admission decisions: one pure function per path.

    review + facts + policies --mutate----> patch: canonical keys, defaults of policies, stamps
                              --validate--> allowed or denied with every failed rule, and warnings

Same review, facts, policies and time give the same decision: no clock, no network, no globals.
`Facts` is what the caller looked up before. A decision on a patched object gives an empty patch.
`validate` decides on the final object and never trusts that the mutating call took place; on an
update the built-in checks report what the update breaks, not what was broken before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from policies import bounds, quantity, vocabulary
from policies.checks import gang as gang_checks
from policies.checks import numa, pod_group, policy_object, quota, reservation
from policies.engine import classify, kueue
from policies.engine.deadline import UNLIMITED, CpuDeadline
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet, PolicyTables
from policies.engine.request import AdmissionRequest
from policies.engine.result import BUILTIN, Evaluation, ExemptedFailure, Failure, Injection
from policies.json_fields import mapping
from policies.pods import intent, workloads
from policies.pods.intent import Intent, Problem
from policies.pods.members import Member, members_of, size_from
from policies.vocabulary import Key
from webhook.admission import guards, tenant_claims
from webhook.admission import profile as profiles
from webhook.admission.guards import TrustedUsers
from webhook.review.codec import Review
from webhook.review.patch import Patch

Json = Mapping[str, Any]

_PRIORITY_CLASS: Final = ("spec", "priorityClassName")
# Subresources that change what policies evaluate: containers and their resources.
_EVALUATED: Final = ("", "ephemeralcontainers", "resize")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the cluster that the decision depends on."""

    namespace: Json | None = None
    owner: Json | None = None
    """The controller of a pod, or the scaled workload, where the decision depends on it."""
    bound_pod: Json | None = None
    """The pod of a Binding."""
    queue: kueue.Queue | None = None
    """The Kueue queue of the object; None: it has none, or the decision needs none."""
    numa_sizes: tuple[numa.Size, ...] = ()
    """The largest NUMA nodes of the cluster, as far as its nodes report them."""
    trust: TrustedUsers = field(default_factory=TrustedUsers)
    """Rights of the user."""
    reservation_facts: reservation.ReservationFacts | None = None
    """Nodes and reservations that a new reservation is compared with; None: not available."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The response to one review."""

    allowed: bool = True
    failures: tuple[Failure, ...] = ()
    """Rules that deny the request."""
    warnings: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Failure, ...] = ()
    """Failed rules that warn or are audited, and deny nothing."""
    excepted: tuple[ExemptedFailure, ...] = ()
    """Failed rules that an exception lets pass."""
    injections: tuple[Injection, ...] = ()
    """Fields that policies write on the object."""

    @property
    def message(self) -> str:
        """Every failed rule, one line each."""
        return "\n".join(failure.line() for failure in self.failures)


def denied(rule: str, message: str) -> Decision:
    """A denial that comes from the state of the webhook, not from the object."""
    failure = Failure(BUILTIN, rule, message, "Forbidden")
    return Decision(allowed=False, failures=(failure,))


def needs_owner(review: Review) -> bool:
    """Whether the decision depends on the pod's controller: only it states the gang's size."""
    if review.kind != "Pod" or review.operation != "CREATE" or review.object is None:
        return False
    if not mapping(review.object.get("metadata")).get("ownerReferences"):
        return False  # without a controller; reading the intent of a pod costs
    gang = intent.read(review.object).gang
    return gang is not None and gang.min_available is None and not gang.size_in_pod_group


def needs_queue(review: Review) -> bool:
    """Whether a queue may decide the tier: of new pods, and of workloads that create pods.

    A pod that exists keeps its stamps.
    """
    if review.object is None or review.subresource:
        return False
    if review.kind == "Pod" and not review.group:
        return review.operation == "CREATE"
    return (review.group, review.kind) in workloads.KINDS


def needs_reservation_facts(review: Review) -> bool:
    """Whether it is a reservation, which is compared with nodes and reservations."""
    return policy_object.is_reservation(review.group, review.kind) and not review.subresource


def mutate(
    review: Review,
    facts: Facts,
    policies: PolicySet,
    *,
    now: datetime,
    deadline: CpuDeadline = UNLIMITED,
) -> Decision:
    """Stamp and inject; an invalid request is left for `validate` to deny with its reasons."""
    pod = review.object
    if pod is None or review.kind != "Pod" or review.operation != "CREATE" or review.subresource:
        return Decision()
    pod_intent = intent.read(pod)
    if pod_intent.problems:
        return Decision()
    patch = Patch(pod)
    gang = _gang(pod_intent, facts)
    _canonical(patch, pod_intent, gang)
    queue = _queue_tier(review, facts, policies.tables)
    admission = _admission(
        review, facts, patch.result, None if patch.operations else pod_intent, queue.tier
    )
    evaluation = evaluate(admission, policies, now=now, validate=False, deadline=deadline)
    unknown = tuple(row for row in evaluation.failures if row.denies and _is_default(row))
    if unknown:  # `validate` does not evaluate defaults: it would allow the pod without them
        return Decision(allowed=False, failures=unknown, audit=evaluation.audit)
    for injection in evaluation.injections:
        if injection.path[-1] == "-":
            patch.append(injection.path[:-1], injection.value)
        else:
            patch.set(injection.path, injection.value)
        if injection.path == _PRIORITY_CLASS:
            # The API server filled these in for the class before; it fills in the new ones again.
            patch.drop(("spec", "priority"))
            patch.drop(("spec", "preemptionPolicy"))
    _stamp(patch, vocabulary.label(vocabulary.TENANT_LABEL), evaluation.identity.tenant)
    _stamp(patch, vocabulary.label(vocabulary.TIER_LABEL), evaluation.identity.tier)
    _stamp(patch, vocabulary.label(vocabulary.WORKLOAD_TYPE_LABEL), evaluation.workload_type)
    _stamp(patch, vocabulary.label(vocabulary.HARDWARE_TIER_LABEL), evaluation.hardware_tier)
    patched_intent = intent.read(patch.result)
    if _needs_scheduler(patch.result, patched_intent):
        patch.set(("spec", "schedulerName"), vocabulary.SCHEDULER_NAME)
    from_queue = queue.tier is not None and evaluation.identity.source in (
        classify.QUEUE,
        classify.OWN,
    )
    profile = profiles.text(
        evaluation,
        gang,
        patched_intent,
        numa_by=profiles.numa_by(pod, evaluation),
        queue=facts.queue.name if from_queue and facts.queue is not None else "",
    )
    patch.set(("metadata", "annotations", vocabulary.PROFILE_ANNOTATION), profile)
    notes = tuple(_unsized(pod_intent, facts, pod))
    return Decision(
        warnings=tuple(note.message for note in notes),
        patch=patch.operations,
        audit=evaluation.audit,
        notes=notes,
        injections=evaluation.injections,
    )


def _is_default(failure: Failure) -> bool:
    return failure.rule.startswith("defaults[")


def validate(
    review: Review,
    facts: Facts,
    policies: PolicySet,
    *,
    now: datetime,
    guarded: bool = True,
    deadline: CpuDeadline = UNLIMITED,
) -> Decision:
    """
    Decide on the object as it would be stored, and on the operation.

    With `guarded` off only the object counts: the audit validates objects that exist, without an
    operation.
    """
    guard_problems = _guard_problems(review, facts, policies.tables) if guarded else []
    if guards.removes_finalizers(review) or not _is_evaluated(review, policies):
        failures = tuple(_failures(guard_problems))
        return Decision(allowed=not failures, failures=failures)
    members = members_of(review.object or {})
    if len(members) > bounds.MOST_TEMPLATES:  # before policies evaluate each of them
        failures = tuple(_failures((*guard_problems, _too_many_templates(members))))
        return Decision(allowed=False, failures=failures)
    pod_intent = members[0].intent if review.kind == "Pod" and members else None
    queue = _queue_tier(review, facts, policies.tables)
    admission = _admission(review, facts, review.object, pod_intent, queue.tier)
    evaluation = evaluate(admission, policies, now=now, inject=False, deadline=deadline)
    checked = _checked(review, facts, members, evaluation, policies)
    if queue.problem and classify.uses_queue(evaluation.identity):
        checked = replace(checked, notes=(*checked.notes, gang_checks.Note("queue", queue.problem)))
    problems = [
        *checked.problems,
        *tenant_claims.problems(review, evaluation.identity, policies.tables),
        *guard_problems,
    ]
    if policy_object.is_policy(review.group):
        problems += _policy_problems(review, policies)
    if policy_object.is_reservation(review.group, review.kind) and not facts.trust.is_scheduler:
        problems += _reservation_problems(review, now)
        warnings = _reservation_warnings(review, facts, policies, now)
        checked = replace(checked, notes=(*checked.notes, *warnings))
    failures = (
        *_failures(problems),
        *(failure for failure in evaluation.failures if failure.denies),
    )
    notes = tuple(_notes(checked.notes))
    return Decision(
        allowed=not failures,
        failures=failures,
        warnings=(*checked.warnings, *evaluation.warnings),
        audit=evaluation.audit,
        notes=(*notes, *(failure for failure in evaluation.failures if not failure.denies)),
        excepted=evaluation.excepted,
    )


def _too_many_templates(members: Sequence[Member]) -> Problem:
    return Problem(
        "bounds",
        members[-1].template.path,
        f"found more than {bounds.MOST_TEMPLATES} pod templates",
        "use fewer templates with more replicas, or several workloads",
    )


def _guard_problems(review: Review, facts: Facts, tables: PolicyTables) -> list[Problem]:
    return guards.problems(
        review,
        trust=facts.trust,
        bound_pod=facts.bound_pod,
        scaled=facts.owner,
        largest_gang=tables.largest_gang,
    )


def _is_evaluated(review: Review, policies: PolicySet) -> bool:
    """Objects are, and subresources whose own kind, such as `Scale`, a policy names."""
    if review.subresource in _EVALUATED:
        return True
    return review.kind != "Pod" and policies.names(review.group, review.kind)


def _checked(
    review: Review,
    facts: Facts,
    members: Sequence[Member],
    evaluation: Evaluation,
    policies: PolicySet,
) -> gang_checks.Findings:
    """Findings of the built-in checks; an update is compared with the old object."""
    if review.object is None or review.subresource not in _EVALUATED:
        return gang_checks.Findings()
    # For defaults of policies a host without NUMA facts counts as one NUMA node: no warning.
    sizes = facts.numa_sizes if profiles.numa_by(review.object, evaluation) == "user" else ()
    tenant, tables = evaluation.identity.tenant, policies.tables
    largest = tables.largest_gang
    checked = gang_checks.check(members, owner=facts.owner, numa_sizes=sizes, largest=largest)
    problems = (
        *checked.problems,
        *quota.check(members, tenant, tables),
        *_pod_group_problems(review, review.object, largest),
    )
    if problems and review.operation == "UPDATE" and review.old_object is not None:
        old = members_of(review.old_object)
        before = (
            *gang_checks.check(old, owner=facts.owner, largest=largest).problems,
            *quota.check(old, tenant, tables),
            *_pod_group_problems(review, review.old_object, largest),
        )
        known = frozenset(before)
        problems = tuple(row for row in problems if row not in known)
    return replace(checked, problems=problems)


def _pod_group_problems(review: Review, obj: Json, largest: int) -> tuple[Problem, ...]:
    if not pod_group.is_pod_group(review.group, review.kind):
        return ()
    return pod_group.check(obj, review.group, largest=largest)


def _policy_problems(review: Review, policies: PolicySet) -> Iterable[Problem]:
    for fault in policy_object.faults(review.object or {}, policies):
        yield Problem("policy", fault.path, fault.message, "correct it and apply it again")


def _reservation_problems(review: Review, now: datetime) -> Iterable[Problem]:
    for fault in policy_object.reservation_faults(review.object or {}, now=now):
        yield Problem("reservation", fault.path, fault.message, "correct it and apply it again")


def _reservation_warnings(
    review: Review, facts: Facts, policies: PolicySet, now: datetime
) -> Iterable[gang_checks.Note]:
    if facts.reservation_facts is None:
        return
    tables = policies.tables
    named = {*tables.tenants, *(tenant.name for tenant in tables.sharing.tenants)}
    reservation_facts = replace(
        facts.reservation_facts, tenants=facts.reservation_facts.tenants | named
    )
    for text in reservation.warnings(review.object or {}, reservation_facts, now=now):
        yield gang_checks.Note("reservation", text)


def _notes(notes: Iterable[gang_checks.Note]) -> Iterable[Failure]:
    for note in notes:
        yield Failure(BUILTIN, note.rule, note.message, actions=("Warn",))


def _failures(problems: Iterable[Problem]) -> Iterable[Failure]:
    for problem in problems:
        yield Failure(BUILTIN, problem.rule, problem.message, path=problem.path, fix=problem.fix)


def _queue_tier(review: Review, facts: Facts, tables: PolicyTables) -> kueue.QueueResult:
    if facts.queue is not None:
        labels = mapping(mapping((facts.namespace or {}).get("metadata")).get("labels"))
        return kueue.tier_of(
            facts.queue, namespace=review.namespace, labels=labels, tiers=tables.tiers
        )
    if review.kind == "Pod" and review.operation == "UPDATE":
        before = profiles.read(review.old_object or {})
        return kueue.QueueResult(str(before.get("tier"))) if "queue" in before else kueue.NO_TIER
    return kueue.NO_TIER


def _admission(
    review: Review,
    facts: Facts,
    obj: Json | None,
    pod_intent: Intent | None,
    queue_tier: str | None,
) -> AdmissionRequest:
    return AdmissionRequest(
        operation=review.operation,
        kind=review.kind,
        object=obj,
        group=review.group,
        version=review.version,
        subresource=review.subresource,
        resource=review.resource,
        namespace=review.namespace,
        name=review.name,
        uid=review.uid,
        namespace_object=facts.namespace,
        old_object=review.old_object,
        user=review.user,
        dry_run=review.dry_run,
        templates=() if obj is None or review.kind == "Pod" else tuple(workloads.pods_of(obj)),
        intent=pod_intent,
        queue_tier=queue_tier,
    )


# --- stamps on a pod ---


def _gang(pod_intent: Intent, facts: Facts) -> tuple[str, int] | None:
    gang = pod_intent.gang
    if gang is None or gang.size_in_pod_group:
        return None
    size = gang.min_available or size_from(facts.owner, gang.name)
    if size is None:
        return (gang.name, 1) if gang.is_locality_group else None
    return gang.name, size


def _unsized(pod_intent: Intent, facts: Facts, pod: Json) -> Iterable[Failure]:
    """Warnings about a group without a size: the patch gives it one, so `validate` sees none."""
    if pod_intent.gang is None or not pod_intent.gang.is_locality_group:
        return ()
    return _notes(gang_checks.check(members_of(pod), owner=facts.owner).notes)


def _canonical(patch: Patch, pod_intent: Intent, gang: tuple[str, int] | None) -> None:
    """Copy requests from any family of keys to the canonical one."""
    if gang is not None:
        _stamp(patch, vocabulary.label(vocabulary.GANG_NAME_LABEL), gang[0])
        _stamp(patch, vocabulary.label(vocabulary.GANG_MIN_AVAILABLE_LABEL), str(gang[1]))
    if pod_intent.numa.policy is not None:
        key = vocabulary.annotation(vocabulary.NUMA_POLICY_ANNOTATION)
        patch.set(("metadata", *key), pod_intent.numa.policy)
    if pod_intent.vram is not None:
        key = vocabulary.annotation(vocabulary.VRAM_ANNOTATION)
        _stamp(patch, key, quantity.binary(pod_intent.vram))


def _stamp(patch: Patch, key: Key, value: str) -> None:
    """Set a stamped key where it is missing; `validate` denies a different value."""
    if value and key.name not in mapping(mapping(patch.result.get("metadata")).get(key.place)):
        patch.set(("metadata", *key), value)


def _needs_scheduler(pod: Json, pod_intent: Intent) -> bool:
    """A pod that requests what only this scheduler implements, and names no other scheduler.

    The API server writes `default-scheduler` before webhooks run, so that name means "unset".
    """
    named = mapping(pod.get("spec")).get("schedulerName")
    needs_it = (
        pod_intent.gang is not None
        or pod_intent.numa.policy not in (None, "none")
        or bool(pod_intent.vram)
    )
    return needs_it and named in (None, "", "default-scheduler")
