"""
What the webhook answers: one pure function a path.

    review + facts --mutate----> patch that stamps and injects
                   --validate--> verdict with every failed rule, and warnings

Same review, same facts, same decision: no clock, no network, no globals. `Facts` is what the
shell looked up beforehand. Deciding on a patched object gives an empty patch. Validation judges
the final object and never trusts that the mutating call took place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from policies import intent, rules, vocabulary
from policies.intent import Intent, Problem
from policies.vocabulary import Key
from webhook.patch import Patch
from webhook.review import Review

Json = Mapping[str, Any]

BUILTIN: Final = "kubenexus"  # the policy that the rules of the vocabulary belong to


@dataclass(frozen=True, slots=True)
class Facts:
    """What the shell knows about the world of the reviewed object."""

    namespace: Json | None = None
    owner: Json | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed rule of one policy."""

    policy: str
    problem: Problem

    def line(self) -> str:
        return self.problem.line(self.policy)


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole answer to one review."""

    allowed: bool = True
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[dict[str, Any], ...] = ()

    @property
    def message(self) -> str:
        """Every failed rule, one line each."""
        return "\n".join(failure.line() for failure in self.failures)


@dataclass(frozen=True, slots=True)
class Who:
    """Whose pod it is, as the namespace says; pods cannot say it themselves."""

    tenant: str
    tier: str

    @classmethod
    def of(cls, namespace: Json | None, name: str) -> "Who":
        labels = _map(_map(namespace or {}, "metadata"), "labels")
        tier = str(labels.get(vocabulary.TIER_LABEL) or "").lower()
        return cls(
            tenant=str(labels.get(vocabulary.TENANT_LABEL) or name),
            tier=tier if tier in vocabulary.TIERS else vocabulary.LOWEST_TIER,
        )


def refused(rule: str, message: str, fix: str) -> Decision:
    """A refusal that does not come from the object but from the webhook's own state."""
    return Decision(
        allowed=False, failures=(Failure(BUILTIN, Problem(rule, "request", message, fix)),)
    )


def needs_owner(review: Review) -> bool:
    """Whether the verdict depends on the pod's controller: a gang whose size only that one says."""
    if review.kind != "Pod" or review.operation != "CREATE" or review.object is None:
        return False
    gang = intent.read(review.object).gang
    return gang is not None and gang.min_available is None and not gang.size_stands_elsewhere


def mutate(review: Review, facts: Facts) -> Decision:
    """Stamp and inject; what cannot be obeyed is left for `validate` to refuse with its reasons."""
    pod = review.object
    if pod is None or review.kind != "Pod" or review.operation != "CREATE" or review.subresource:
        return Decision()
    asked = intent.read(pod)
    if asked.problems:
        return Decision()
    patch = Patch(pod)
    who = Who.of(facts.namespace, review.namespace)
    _stamp(patch, vocabulary.label(vocabulary.TENANT_LABEL), who.tenant)
    _stamp(patch, vocabulary.label(vocabulary.TIER_LABEL), who.tier)
    gang = _gang(asked, facts)
    if gang is not None:
        _stamp(patch, vocabulary.label(vocabulary.GANG_NAME_LABEL), gang[0])
        _stamp(patch, vocabulary.label(vocabulary.GANG_MIN_AVAILABLE_LABEL), str(gang[1]))
    if asked.numa.policy is not None:
        key = vocabulary.annotation(vocabulary.NUMA_POLICY_ANNOTATION)
        patch.set(("metadata", *key), asked.numa.policy)
    if _wants_scheduler(pod, asked):
        patch.set(("spec", "schedulerName"), vocabulary.SCHEDULER_NAME)
    profile = orjson.dumps(_profile(who, gang, asked), option=orjson.OPT_SORT_KEYS).decode()
    patch.set(("metadata", "annotations", vocabulary.PROFILE_ANNOTATION), profile)
    return Decision(patch=patch.operations)


def validate(review: Review, facts: Facts) -> Decision:
    """Judge the object as it would be stored."""
    if review.object is None or review.subresource:
        return Decision()
    found = rules.members(review.object)
    if not found:
        return Decision()
    findings = rules.check(found, owner=facts.owner)
    problems = list(findings.problems)
    if review.kind == "Pod":
        problems += _own_identity(review, facts)
        problems += _changed_stamps(review)
    failures = tuple(Failure(BUILTIN, problem) for problem in problems)
    return Decision(allowed=not failures, failures=failures, warnings=findings.warnings)


def _stamp(patch: Patch, key: Key, value: str) -> None:
    """Set a stamped key unless the pod says something else: that is refused, not overwritten."""
    if key.name not in _map(_map(patch.result, "metadata"), key.place):
        patch.set(("metadata", *key), value)


def _gang(asked: Intent, facts: Facts) -> tuple[str, int] | None:
    gang = asked.gang
    if gang is None or gang.size_stands_elsewhere:
        return None
    size = gang.min_available or rules.size_from(facts.owner, gang.name)
    if size is None:
        return (gang.name, 1) if gang.is_locality_group else None
    return gang.name, size


def _wants_scheduler(pod: Json, asked: Intent) -> bool:
    """A pod that asks for what only this scheduler obeys, and names no scheduler of its own.

    The API server writes `default-scheduler` before webhooks run, so that name means "unset".
    """
    named = _map(pod, "spec").get("schedulerName")
    asks = asked.gang is not None or asked.numa.policy not in (None, "none") or bool(asked.vram)
    return asks and named in (None, "", "default-scheduler")


def _profile(who: Who, gang: tuple[str, int] | None, asked: Intent) -> Json:
    profile: dict[str, Any] = {"tenant": who.tenant, "tier": who.tier, "policies": [BUILTIN]}
    if gang is not None:
        profile["gang"] = {"name": gang[0], "minAvailable": gang[1]}
    if asked.numa.policy is not None:
        profile["numa"] = asked.numa.policy
    return profile


def _own_identity(review: Review, facts: Facts) -> list[Problem]:
    """A pod's tenant and tier labels may repeat what its namespace says, or a lower tier."""
    labels = _map(_map(review.object or {}, "metadata"), "labels")
    who = Who.of(facts.namespace, review.namespace)
    problems = []
    tenant = labels.get(vocabulary.TENANT_LABEL, who.tenant)
    if tenant != who.tenant:
        problems.append(
            Problem(
                "tenant",
                f"metadata.labels['{vocabulary.TENANT_LABEL}']",
                f"found {tenant!r}, but namespace {review.namespace!r} belongs to {who.tenant!r}",
                "remove the label; it is set from the namespace",
            )
        )
    tier = labels.get(vocabulary.TIER_LABEL, who.tier)
    ranks = vocabulary.TIERS
    if tier not in ranks or ranks.index(tier) < ranks.index(who.tier):
        problems.append(
            Problem(
                "tier",
                f"metadata.labels['{vocabulary.TIER_LABEL}']",
                f"found {tier!r}, but namespace {review.namespace!r} has tier {who.tier!r}",
                "remove the label, or ask the cluster admin to raise the namespace's tier",
            )
        )
    return problems


def _changed_stamps(review: Review) -> list[Problem]:
    if review.operation != "UPDATE" or review.old_object is None:
        return []
    problems = []
    for key in vocabulary.STAMPED:
        old = _map(_map(review.old_object, "metadata"), key.place).get(key.name)
        new = _map(_map(review.object or {}, "metadata"), key.place).get(key.name)
        if old != new:
            problems.append(
                Problem(
                    "stamped",
                    f"metadata.{key.place}['{key.name}']",
                    f"changed from {_shown(old)} to {_shown(new)}",
                    "delete the pod and create it anew; what admission wrote stays as it is",
                )
            )
    return problems


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)


def _map(parent: Json, key: str) -> Json:
    found = parent.get(key)
    return found if isinstance(found, Mapping) else {}
