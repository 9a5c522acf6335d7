"""
What may not be done to an object that admission has judged, whoever asks and by whatever path.

    pods                     CREATE   no node and no assignment of one's own for what this
                                      scheduler places
    pods, status, resize,    UPDATE   what admission and scheduler wrote stays; gates are lifted
    ephemeralcontainers               by the scheduler alone
    pods/binding, bindings   CREATE   only the scheduler that the pod names binds it
    namespaces               UPDATE   the tenant changes by the hand of those who manage tenants
    resourcereservations     both     for a tenant by the same; for a pod group by the scheduler
                                      alone, and so is every status
    scale of a workload      UPDATE   no fewer pods than its gang needs, or none at all

Pure. Policies judge what an object says; guards judge what is done to it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from policies import vocabulary
from policies.checks import gang
from policies.json_fields import mapping
from policies.pods import workloads
from policies.pods.intent import Problem
from policies.pods.members import members_of
from policies.vocabulary import Key
from webhook.review.codec import Review

Json = Mapping[str, Any]

_ANEW: Final = "delete the pod and create it anew; what admission wrote stays as it is"
_ASSIGNED: Final = vocabulary.annotation(vocabulary.NUMA_ASSIGNED_ANNOTATION)
_WRITTEN: Final = frozenset({"finalizers", "managedFields", "resourceVersion", "generation"})
_TENANT_KEYS: Final = (
    vocabulary.label(vocabulary.TENANT_LABEL),
    vocabulary.label(vocabulary.TIER_LABEL),
)


@dataclass(frozen=True, slots=True)
class TrustedUsers:
    """Who asks, and what that one may do besides."""

    is_scheduler: bool = False
    manages_tenants: bool = False


def problems(
    review: Review,
    *,
    trust: TrustedUsers,
    bound_pod: Json | None = None,
    scaled: Json | None = None,
) -> list[Problem]:
    """
    What the request does that it may not.

    `bound_pod` is the pod that a Binding is for, `scaled` the workload whose `scale` is written.
    """
    what = (review.resource, review.subresource, review.operation)
    match what:
        case ("pods", "", "CREATE"):
            return list(_created(review))
        case ("pods", "" | "status" | "resize" | "ephemeralcontainers", "UPDATE"):
            return list(_updated(review, trust))
        case ("pods", "binding", "CREATE") | ("bindings", "", "CREATE"):
            return list(_bound(review, trust, bound_pod))
        case ("namespaces", "", "UPDATE"):
            return list(_moved(review, trust))
        case ("resourcereservations", "" | "status", _):
            return list(_reserved(review, trust))
        case (_, "scale", "UPDATE"):
            return list(_scaled(review, scaled))
    return []


def lets_go(review: Review) -> bool:
    """Whether all that is done is to remove finalizers from an object that is being deleted.

    Whoever judged that would keep objects for ever that no longer satisfy a policy.
    """
    old, new = review.old_object, review.object
    if review.operation != "UPDATE" or review.subresource or old is None or new is None:
        return False
    before, after = _finalizers(old), _finalizers(new)
    is_ending = mapping(old.get("metadata")).get("deletionTimestamp") is not None
    return is_ending and after < before and _lasting(old) == _lasting(new)


def needs_pod(review: Review) -> bool:
    """Whether the verdict depends on the pod that a Binding is for."""
    return review.operation == "CREATE" and (review.resource, review.subresource) in (
        ("pods", "binding"),
        ("bindings", ""),
    )


def needs_scaled(review: Review) -> bool:
    """Whether the verdict depends on the workload whose `scale` is written."""
    if (review.operation, review.subresource) != ("UPDATE", "scale"):
        return False
    count = _replicas(review.object)
    # Nothing at all is always allowed, and what does not change breaks nothing.
    return count > 0 and count != _replicas(review.old_object)


def needs_tenant_manager(review: Review) -> bool:
    """Whether it matters if the user manages tenants."""
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
            f"found {spec['nodeName']!r}, but {vocabulary.SCHEDULER_NAME} chooses the node",
            "remove spec.nodeName; use a nodeSelector to ask for a node",
        )
    found = _value(review.object, _ASSIGNED)
    if found is not None:
        yield Problem(
            "assignment-preset",
            f"metadata.annotations['{_ASSIGNED.name}']",
            f"found {found!r}, but NUMA nodes and GPUs are assigned by the scheduler",
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
            "leave it; the scheduler counts what is taken by it",
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


def _moved(review: Review, trust: TrustedUsers) -> Iterator[Problem]:
    if trust.manages_tenants:
        return
    for key, old, new in _changes(review, _TENANT_KEYS):
        yield Problem(
            "namespace-tenant",
            f"metadata.{key.place}['{key.name}']",
            f"changed from {_shown(old)} to {_shown(new)} by {_user(review)}, "
            "who does not manage tenants",
            f"ask somebody who may update tenantpolicies.{vocabulary.POLICY_GROUP}",
        )


def _reserved(review: Review, trust: TrustedUsers) -> Iterator[Problem]:
    if trust.is_scheduler:
        return
    if review.subresource:
        yield Problem(
            "reservation-kept",
            "status",
            f"written by {_user(review)}, but the scheduler says what is kept",
            "leave it",
        )
    elif mapping((review.old_object or {}).get("spec")).get("podGroup"):
        yield Problem(
            "reservation-kept",
            "spec",
            f"changed by {_user(review)}, but the scheduler keeps the room for a pod group",
            "leave it, or delete it to open the room",
        )
    elif not trust.manages_tenants:
        yield Problem(
            "reservation-right",
            "spec.tenant",
            f"{_user(review)} keeps room for a tenant, and does not manage tenants",
            f"ask somebody who may update tenantpolicies.{vocabulary.POLICY_GROUP}",
        )


def _scaled(review: Review, workload: Json | None) -> Iterator[Problem]:
    """What the workload would say with so many pods, and does not say now."""
    if workload is None:
        return
    after = workloads.scaled(workload, _replicas(review.object))
    before = workloads.scaled(workload, _replicas(review.old_object))
    # Each message has its own numbers, so that rules are compared: what was short before may grow.
    known = {problem.rule for problem in gang.check(members_of(before)).problems}
    for problem in gang.check(members_of(after)).problems:
        if problem.rule == "gang-size" and problem.rule not in known:
            yield replace(problem, path="spec.replicas")


def _replicas(scale: Json | None) -> int:
    """How many a Scale asks for; the API server leaves a zero out."""
    found = mapping((scale or {}).get("spec")).get("replicas")
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _finalizers(obj: Json) -> set[str]:
    found = mapping(obj.get("metadata")).get("finalizers")
    return {str(name) for name in found} if isinstance(found, list) else set()


def _lasting(obj: Json) -> Json:
    """The object without what every write changes, and without its finalizers."""
    metadata = mapping(obj.get("metadata"))
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k not in _WRITTEN}}


def _changes(review: Review, keys: Iterable[Key]) -> Iterator[tuple[Key, object, object]]:
    for key in keys:
        old, new = _value(review.old_object, key), _value(review.object, key)
        if old != new:
            yield key, old, new


def _value(obj: Json | None, key: Key) -> object:
    return mapping(mapping((obj or {}).get("metadata")).get(key.place)).get(key.name)


def _gates(obj: Json | None) -> set[object]:
    found = mapping((obj or {}).get("spec")).get("schedulingGates")
    return {mapping(gate).get("name") for gate in found} if isinstance(found, list) else set()


def _user(review: Review) -> str:
    return repr(review.user.get("username") or "somebody")


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)
