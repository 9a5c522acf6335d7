"""
One object that exists, judged as if it were created today: the webhook's own validation. Pure.

What only a request has is left out: nobody asks, so guards that hold back what is done to an
object do not count, and expressions see a user of this command's name. Pods that kubelets mirror
from their own files never pass admission and are not judged.
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
    "admission never saw this pod: it carries no profile",
    path=f"metadata.annotations['{vocabulary.PROFILE_ANNOTATION}']",
    fix="delete the pod; what made it makes it anew, through admission",
    actions=("Audit",),
)


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One rule that one object does not satisfy; `action` is what admission would do about it."""

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
    """What was found about one object."""

    violations: tuple[Violation, ...] = ()
    excepted: int = 0
    not_admitted: bool = False
    """A pod that admission never saw."""


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


def judge(
    asked: Review,
    *,
    namespace: Json,
    policies: PolicySet,
    now: datetime,
    owner: Json | None = None,
    queue: Queue | None = None,
    list_not_admitted: bool = False,
) -> ValidatedObject:
    """Every rule that the object fails; with `list_not_admitted` also that nobody ever looked."""
    facts = Facts(namespace=namespace, owner=owner, queue=queue)
    decision = decide.validate(asked, facts, policies, now=now, guarded=False)
    unseen = asked.kind == "Pod" and vocabulary.PROFILE_ANNOTATION not in _annotations(
        asked.object or {}
    )
    failed = [(failure, "Deny") for failure in decision.failures]
    failed += [(note, "Warn" if note.warns else "Audit") for note in decision.notes]
    if unseen and list_not_admitted:
        failed.append((_NO_PROFILE, "Audit"))
    return ValidatedObject(
        tuple(_violation(asked, failure, action) for failure, action in failed),
        len(decision.excepted),
        unseen,
    )


def _violation(asked: Review, failure: Failure, action: str) -> Violation:
    return Violation(
        namespace=asked.namespace,
        kind=asked.kind,
        group=asked.group,
        name=asked.name,
        policy=failure.policy,
        rule=failure.rule,
        action=action,
        path=failure.path,
        message=failure.message,
        fix=failure.fix,
        uid=asked.uid,
        version=asked.version,
    )


def _annotations(obj: Json) -> Json:
    return mapping(mapping(obj.get("metadata")).get("annotations"))
