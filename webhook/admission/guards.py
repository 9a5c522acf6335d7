"""
Operations that are denied on admitted objects, for every user and on every path.

    pods                     CREATE   no node and no NUMA assignment preset, for pods of this
                                      scheduler
    pods, status, resize,    UPDATE   stamps of admission and scheduler stay; only the scheduler
    ephemeralcontainers               removes its gates
    pods/binding, bindings   CREATE   only the scheduler that the pod names binds it
    namespaces               UPDATE   only users who manage tenants change the tenant
    resourcereservations     both     of a tenant: only those users; of a pod group, and every
                                      status: only the scheduler
    scale of a workload      UPDATE   no fewer pods than its gang needs, except zero, and no gang
                                      larger than the policies allow

Pure. Policies decide on the content of an object; guards decide on the operation.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from policies import bounds, vocabulary
from policies.checks import gang
from policies.json_fields import mapping
from policies.pods import workloads
from policies.pods.intent import Problem
from policies.pods.members import members_of
from policies.text import shown
from policies.vocabulary import Key
from webhook.review.codec import Review

Json = Mapping[str, Any]

_ANEW: Final = "delete the pod and create it anew; what admission wrote stays as it is"
_ASSIGNED: Final = vocabulary.annotation(vocabulary.NUMA_ASSIGNED_ANNOTATION)
_VOLATILE: Final = frozenset({"finalizers", "managedFields", "resourceVersion", "generation"})
_TENANT_KEYS: Final = (
    vocabulary.label(vocabulary.TENANT_LABEL),
    vocabulary.label(vocabulary.TIER_LABEL),
)


@dataclass(frozen=True, slots=True)
class TrustedUsers:
    """Rights of the user."""

    is_scheduler: bool = False
    manages_tenants: bool = False


def problems(
    review: Review,
    *,
    trust: TrustedUsers,
    bound_pod: Json | None = None,
    scaled: Json | None = None,
    largest_gang: int = bounds.DEFAULT_GANG_SIZE,
) -> list[Problem]:
    """
    The reasons to deny the operation.

    `bound_pod` is the pod of a Binding, `scaled` the workload whose `scale` is written,
    `largest_gang` the largest gang that the policies allow.
    """
    match (review.resource, review.subresource, review.operation):
        case ("pods", "", "CREATE"):
            return list(_created(review))
        case ("pods", "" | "status" | "resize" | "ephemeralcontainers", "UPDATE"):
            return list(_updated(review, trust))
        case ("pods", "binding", "CREATE") | ("bindings", "", "CREATE"):
            return list(_bound(review, trust, bound_pod))
        case ("namespaces", "", "UPDATE"):
            return list(_tenant_changes(review, trust))
        case ("resourcereservations", "" | "status", _):
            return list(_reserved(review, trust))
        case (_, "scale", "UPDATE"):
            return list(_scaled(review, scaled, largest_gang))
    return []


def removes_finalizers(review: Review) -> bool:
    """Whether the update only removes finalizers from an object that is being deleted.

    A denial would keep an object that no longer satisfies a policy for ever.
    """
    old, new = review.old_object, review.object
    if review.operation != "UPDATE" or review.subresource or old is None or new is None:
        return False
    before, after = _finalizers(old), _finalizers(new)
    is_ending = mapping(old.get("metadata")).get("deletionTimestamp") is not None
    return is_ending and after < before and _stable(old) == _stable(new)


def needs_pod(review: Review) -> bool:
    """Whether the decision depends on the pod of a Binding."""
    return review.operation == "CREATE" and (review.resource, review.subresource) in (
        ("pods", "binding"),
        ("bindings", ""),
    )


def needs_scaled(review: Review) -> bool:
    """Whether the decision depends on the workload whose `scale` is written."""
    if (review.operation, review.subresource) != ("UPDATE", "scale"):
        return False
    count = _replicas(review.object)
    # Zero replicas are always allowed, and an unchanged count breaks nothing.
    return count > 0 and count != _replicas(review.old_object)


def needs_tenant_manager(review: Review) -> bool:
    """Whether the decision depends on the right to manage tenants."""
    if review.resource == "resourcereservations":
        return not review.subresource
    return (
        review.resource == "namespaces"
        and review.operation == "UPDATE"
        and any(_changes(review, _TENANT_KEYS))
    )


def _created(review: Review) -> Iterator[Problem]:
    spec = mapping((review.object or {}).get("spec"))
    if spec.get("schedulerName") != vocabulary.SCHEDULER_NAME:
        return
    if spec.get("nodeName"):
        yield Problem(
            "node-preset",
            "spec.nodeName",
            f"found {shown(spec['nodeName'])}, but {vocabulary.SCHEDULER_NAME} chooses the node",
            "remove spec.nodeName; use a nodeSelector to ask for a node",
        )
    assignment = _value(review.object, _ASSIGNED)
    if assignment is not None:
        yield Problem(
            "assignment-preset",
            f"metadata.annotations['{_ASSIGNED.name}']",
            f"found {shown(assignment)}, but NUMA nodes and GPUs are assigned by the scheduler",
            "remove the annotation",
        )


def _updated(review: Review, trust: TrustedUsers) -> Iterator[Problem]:
    for key, old, new in _changes(review, vocabulary.UNCHANGING):
        yield Problem(
            "stamped",
            f"metadata.{key.place}['{key.name}']",
            f"changed from {_shown(old)} to {_shown(new)}",
            _ANEW,
        )
    if trust.is_scheduler:
        return
    for key, old, new in _changes(review, (_ASSIGNED,)):
        yield Problem(
            "stamped",
            f"metadata.{key.place}['{key.name}']",
            f"changed from {_shown(old)} to {_shown(new)}",
            "leave it; the scheduler counts used devices by it",
        )
    if vocabulary.GANG_GATE in _gates(review.old_object) - _gates(review.object):
        yield Problem(
            "gate",
            "spec.schedulingGates",
            f"the gate {vocabulary.GANG_GATE} was removed by {_user(review)}",
            "wait: the scheduler lifts it when the whole gang exists",
        )


def _bound(review: Review, trust: TrustedUsers, pod: Json | None) -> Iterator[Problem]:
    named = mapping((pod or {}).get("spec")).get("schedulerName")
    if named == vocabulary.SCHEDULER_NAME and not trust.is_scheduler:
        yield Problem(
            "binding",
            "target",
            f"{_user(review)} binds a pod that names {vocabulary.SCHEDULER_NAME}",
            "leave the pod to its scheduler, or create it with another spec.schedulerName",
        )


def _tenant_changes(review: Review, trust: TrustedUsers) -> Iterator[Problem]:
    if trust.manages_tenants:
        return
    for key, old, new in _changes(review, _TENANT_KEYS):
        yield Problem(
            "namespace-tenant",
            f"metadata.{key.place}['{key.name}']",
            f"changed from {_shown(old)} to {_shown(new)} by {_user(review)}, "
            "who does not manage tenants",
            f"ask a user who may update tenantpolicies.{vocabulary.POLICY_GROUP}",
        )


def _reserved(review: Review, trust: TrustedUsers) -> Iterator[Problem]:
    if trust.is_scheduler:
        return
    if review.subresource:
        yield Problem(
            "reservation-kept",
            "status",
            f"written by {_user(review)}, but only the scheduler writes it",
            "leave it",
        )
    elif mapping((review.old_object or {}).get("spec")).get("podGroup"):
        yield Problem(
            "reservation-kept",
            "spec",
            f"changed by {_user(review)}, but the scheduler owns reservations of pod groups",
            "leave it, or delete it to release the capacity",
        )
    elif not trust.manages_tenants:
        yield Problem(
            "reservation-right",
            "spec.tenant",
            f"{_user(review)} reserves capacity for a tenant, and does not manage tenants",
            f"ask a user who may update tenantpolicies.{vocabulary.POLICY_GROUP}",
        )


def _scaled(review: Review, workload: Json | None, largest: int) -> Iterator[Problem]:
    """Problems of the workload with the new number of pods that it does not have now."""
    if workload is None:
        return
    after = workloads.scaled(workload, _replicas(review.object))
    before = workloads.scaled(workload, _replicas(review.old_object))
    # Messages contain numbers, so rules are compared: a gang that was too small may grow.
    known = {row.rule for row in gang.check(members_of(before), largest=largest).problems}
    for problem in gang.check(members_of(after), largest=largest).problems:
        if problem.rule in ("gang-size", "bounds") and problem.rule not in known:
            yield replace(problem, path="spec.replicas")


def _replicas(scale: Json | None) -> int:
    """The replicas of a Scale; the API server omits a zero."""
    replicas = mapping((scale or {}).get("spec")).get("replicas")
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0


def _finalizers(obj: Json) -> set[str]:
    names = mapping(obj.get("metadata")).get("finalizers")
    return {str(name) for name in names} if isinstance(names, list) else set()


def _stable(obj: Json) -> Json:
    """The object without its finalizers and without fields that every write changes."""
    metadata = mapping(obj.get("metadata"))
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k not in _VOLATILE}}


def _changes(review: Review, keys: Iterable[Key]) -> Iterator[tuple[Key, object, object]]:
    for key in keys:
        old, new = _value(review.old_object, key), _value(review.object, key)
        if old != new:
            yield key, old, new


def _value(obj: Json | None, key: Key) -> object:
    return mapping(mapping((obj or {}).get("metadata")).get(key.place)).get(key.name)


def _gates(obj: Json | None) -> set[object]:
    gates = mapping((obj or {}).get("spec")).get("schedulingGates")
    return {mapping(gate).get("name") for gate in gates} if isinstance(gates, list) else set()


def _user(review: Review) -> str:
    return repr(review.user.get("username") or "a user without a name")


def _shown(value: object) -> str:
    return "nothing" if value is None else shown(value, most=256)
