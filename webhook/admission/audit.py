"""
Events and audit annotations of a decision. Pure.

    failures   PolicyDenied      Warning
    notes      PolicyWarned      Warning    rules that warn
               PolicyAudited     Normal     rules that are only audited
    excepted   PolicyException   Normal     rules that an exception lets pass
    injections DefaultsInjected  Normal     on request: there is one for almost every pod

An Event regards an object that exists afterwards: the changed object, the created one, or the
controller that created it. A denied create leaves no object, so its Event regards the controller
that will try again, or else the namespace. A dry run makes no Event. The recorder decides whether
an Event is written, counted as a repeat or dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.events.correlator import NOTE_LIMIT, EventReport, Ref, cut, report
from policies import vocabulary
from policies.engine import result
from policies.engine.policyset import PolicySet
from policies.engine.result import ExemptedFailure, Failure, Injection
from policies.json_fields import mapping
from policies.pods import workloads
from webhook.admission.decide import Decision
from webhook.review.codec import Review

Json = Mapping[str, Any]

DENIED: Final = "PolicyDenied"
WARNED: Final = "PolicyWarned"
AUDITED: Final = "PolicyAudited"
EXCEPTED: Final = "PolicyException"
INJECTED: Final = "DefaultsInjected"

ANNOTATION_LIMIT: Final = 8 * 1024  # bytes; audit backends cut or drop events that grow too large

_ACTION: Final = "Admit"
_NAME_LIMIT: Final = 253
_HEAD_LIMIT: Final = 320  # bytes of a note that name the object
_LINE_LIMIT: Final = 300  # bytes of one rule, so that the first never hides the second
_MORE: Final = "; and {} more"


def annotations(decision: Decision) -> dict[str, str]:
    """Audit annotations, each bounded; the API server puts the webhook's name before each key."""
    failed = (*decision.failures, *decision.notes)
    values = {
        **decision.audit,
        "decision": "allowed" if decision.allowed else "denied",
        "failures": "; ".join(failure.line() for failure in failed),
    }
    return {key: cut(value, ANNOTATION_LIMIT) for key, value in values.items() if value}


def reports(
    review: Review, decision: Decision, policies: PolicySet, *, defaults: bool = False
) -> tuple[EventReport, ...]:
    """The Events of one decision, one per reason; with `defaults` also about injected defaults."""
    if review.dry_run:
        return ()
    warned = [note for note in decision.notes if note.warns]
    audited = [note for note in decision.notes if not note.warns]
    groups: list[tuple[str, Sequence[Failure | ExemptedFailure | Injection], Iterable[str]]] = [
        (DENIED, decision.failures, (row.line() for row in decision.failures)),
        (WARNED, warned, (row.line() for row in warned)),
        (AUDITED, audited, (row.line() for row in audited)),
        (EXCEPTED, decision.excepted, _exceptions(decision.excepted, policies)),
    ]
    if defaults:
        groups.append((INJECTED, decision.injections, _written(decision.injections)))
    return tuple(
        report(
            _regarding(review, allowed=decision.allowed),
            reason,
            _note(review, list(lines)),
            action=_ACTION,
            warning=reason in (DENIED, WARNED),
            related=_policy(rows, policies),
        )
        for reason, rows, lines in groups
        if rows
    )


def controller(obj: Json | None, namespace: str) -> Ref | None:
    """The controller that an object names as its owner; it may not exist."""
    references = mapping((obj or {}).get("metadata")).get("ownerReferences")
    for row in references if isinstance(references, list) else ():
        owner = mapping(row)
        if owner.get("controller") is True and _text(owner, "kind") and _text(owner, "name"):
            return Ref(
                _text(owner, "kind"),
                _text(owner, "name"),
                namespace,
                _text(owner, "uid"),
                _text(owner, "apiVersion"),
            )
    return None


# --- the object that an Event regards ---


def _regarding(review: Review, *, allowed: bool) -> Ref:
    if review.resource == "bindings" or review.subresource == "binding":
        return Ref("Pod", review.name[:_NAME_LIMIT], review.namespace)
    if review.operation != "CREATE" or review.subresource:
        return _itself(review, review.old_object or review.object)
    owner = controller(review.object, review.namespace)
    if owner is not None:
        return owner
    itself = _itself(review, review.object)
    if review.namespace and not (allowed and itself.name):
        return Ref("Namespace", review.namespace, review.namespace)
    return itself


def _itself(review: Review, obj: Json | None) -> Ref:
    metadata = mapping((obj or {}).get("metadata"))
    kind, api_version = _whole(review)
    return Ref(
        kind[:_NAME_LIMIT],
        (review.name or _text(metadata, "name"))[:_NAME_LIMIT],
        review.namespace,
        _text(metadata, "uid"),
        api_version,
    )


def _whole(review: Review) -> tuple[str, str]:
    """Kind and API version of the object, also where the review is about a subresource."""
    group, _, _ = review.resource_api.rpartition("/")
    if review.subresource and (group, review.resource) == ("", "pods"):
        return "Pod", "v1"
    if review.subresource == "scale":
        return workloads.scaled_kind(group, review.resource) or review.kind, review.resource_api
    return review.kind, f"{review.group}/{review.version}" if review.group else review.version


def _policy(
    rows: Sequence[Failure | ExemptedFailure | Injection], policies: PolicySet
) -> Ref | None:
    """The first policy among the rows that is an object of the API server, not a file."""
    known = {policy.name: policy for policy in policies.policies}
    for row in rows:
        policy = known.get(row.policy)
        if policy is not None and policy.source == f"{policy.model.kind}/{policy.name}":
            return Ref(policy.model.kind, policy.name, api_version=vocabulary.POLICY_API_VERSION)
    return None


# --- the note ---


def _note(review: Review, lines: Sequence[str]) -> str:
    """Every rule, up to the limit, and the number of rules left out."""
    head = f"{cut(f'{review.operation} {_subject(review)}', _HEAD_LIMIT)}: "
    left = NOTE_LIMIT - len(head.encode()) - len(_MORE) - len(str(len(lines)))
    shown: list[str] = []
    for line in lines:
        text = cut(" ".join(line.split()), _LINE_LIMIT)
        left -= len(text.encode()) + len("; ")
        if left < 0:
            break
        shown.append(text)
    hidden = len(lines) - len(shown)
    return head + "; ".join(shown) + (_MORE.format(hidden) if hidden else "")


def _subject(review: Review) -> str:
    """Kind and name. A generated name differs at every attempt, and would make a new Event."""
    metadata = mapping((review.object or {}).get("metadata"))
    generated = _text(metadata, "generateName")
    is_new = review.operation == "CREATE" and not review.subresource
    name = f"{generated}*" if generated and is_new else review.name or _text(metadata, "name")
    kind = f"{review.kind}/{review.subresource}" if review.subresource else review.kind
    return f"{kind} {name}".rstrip()


def _exceptions(rows: Iterable[ExemptedFailure], policies: PolicySet) -> Iterator[str]:
    ends = {
        (policy.name, exception.model.name): exception.model.until
        for policy in policies.policies
        for exception in policy.exceptions
    }
    for row in rows:
        until = ends.get((row.policy, row.exception))
        end = f"until {until.isoformat()}" if until is not None else "without end"
        yield f"{row.policy}/{row.rule} excepted by {row.exception} {end}: {row.reason}"


def _written(rows: Iterable[Injection]) -> Iterator[str]:
    """Paths and policies; values may be secret."""
    for row in rows:
        yield f"{result.where(row.path)} by {row.policy}/{row.rule}"


def _text(parent: Json, key: str) -> str:
    value = parent.get(key)
    return value[:_NAME_LIMIT] if isinstance(value, str) else ""
