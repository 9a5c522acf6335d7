"""
Validate one existing object as if it were created today, with the webhook's own code. Pure.

There is no request: guards of updates and deletions do not apply, and expressions see this command
as the user. Mirror pods of kubelets never pass admission and are not validated.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cluster.resources import Resource
from policies import vocabulary
from policies.engine.kueue import Queue
from policies.engine.policyset import PolicySet
from policies.engine.result import BUILTIN, Failure
from policies.json_fields import Json, mapping
from webhook.admission import decide
from webhook.admission.decide import Facts
from webhook.review.codec import Review

USER: Final = {
    "username": "kubenexus-audit",
    "uid": "",
    "groups": ["system:authenticated"],
    "extra": {},
}
_NO_PROFILE: Final = Failure(
    BUILTIN,
    "not-admitted",
    "this pod bypassed admission: it has no profile annotation",
    path=f"metadata.annotations['{vocabulary.PROFILE_ANNOTATION}']",
    fix="delete the pod; its controller recreates it through admission",
    actions=("Audit",),
)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One rule that one object fails; `action` is what admission would do."""

    namespace: str
    kind: str
    group: str
    name: str
    policy: str
    rule: str
    action: str
    path: str = ""
    message: str = ""
    fix: str = ""
    uid: str = ""
    version: str = "v1"

    @property
    def object(self) -> str:
        """As kubectl takes it: `pod/p`, `job.batch/j`."""
        kind = self.kind.lower()
        return f"{kind}.{self.group}/{self.name}" if self.group else f"{kind}/{self.name}"

    @property
    def rule_name(self) -> str:
        return f"{self.policy}/{self.rule}"


@dataclass(frozen=True, slots=True)
class ValidatedObject:
    """The violations of one object."""

    violations: tuple[Violation, ...] = ()
    excepted: int = 0
    not_admitted: bool = False
    """A pod that bypassed admission."""


def is_mirror(obj: Json) -> bool:
    return vocabulary.MIRROR_ANNOTATION in _annotations(obj)


def review(obj: Json, resource: Resource) -> Review:
    """The request that would create the object."""
    metadata = mapping(obj.get("metadata"))
    return Review(
        uid=str(metadata.get("uid") or ""),
        operation="CREATE",
        kind=resource.kind,
        resource=resource.plural,
        group=resource.group,
        version=resource.version,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        user=USER,
        object=dict(obj),
        dry_run=True,
    )


def validate(
    request: Review,
    *,
    namespace: Json,
    policies: PolicySet,
    now: datetime,
    owner: Json | None = None,
    queue: Queue | None = None,
    list_not_admitted: bool = False,
) -> ValidatedObject:
    """Every rule that the object fails; with `list_not_admitted` also a bypass of admission."""
    facts = Facts(namespace=namespace, owner=owner, queue=queue)
    decision = decide.validate(request, facts, policies, now=now, guarded=False)
    bypassed = request.kind == "Pod" and vocabulary.PROFILE_ANNOTATION not in _annotations(
        request.object or {}
    )
    failed = [(failure, "Deny") for failure in decision.failures]
    failed += [(note, "Warn" if note.warns else "Audit") for note in decision.notes]
    if bypassed and list_not_admitted:
        failed.append((_NO_PROFILE, "Audit"))
    return ValidatedObject(
        tuple(_violation(request, failure, action) for failure, action in failed),
        len(decision.excepted),
        bypassed,
    )


def _violation(request: Review, failure: Failure, action: str) -> Violation:
    return Violation(
        namespace=request.namespace,
        kind=request.kind,
        group=request.group,
        name=request.name,
        policy=failure.policy,
        rule=failure.rule,
        action=action,
        path=failure.path,
        message=failure.message,
        fix=failure.fix,
        uid=request.uid,
        version=request.version,
    )


def _annotations(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("annotations"))
