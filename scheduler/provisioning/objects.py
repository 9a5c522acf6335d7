"""
ProvisioningRequests and the PodTemplates they refer to, as values.

    equal members ──one of their pods, from the API──▶ MemberTemplate ──┐
    equal members ───────────────────────────────────▶ MemberTemplate ──┴▶ RequestDraft ──attempt──▶
                                                                PodTemplates, ProvisioningRequest

The name of a request contains a digest of its content and the attempt, so that neither a restarted
scheduler nor another replica creates a second one. A template has the fields that decide where a
pod may run, and no others: no command, no environment, no mounts.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from cluster import errors
from policies import vocabulary
from policies.json_fields import Json, mapping
from scheduler.errors import ModelError
from scheduler.model.fields import instant, rows, words
from scheduler.model.gang import GangKey
from scheduler.model.placeholder import is_placeholder
from scheduler.model.pod import Pod
from scheduler.tenancy.reservation import objects

Name = tuple[str, str]  # namespace, name
Object = dict[str, Any]

MAX_POD_SETS: Final = 32  # pod sets that a request may have
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_MAX_OWNERS: Final = 16
_MAX_PREFIX: Final = 40
_CLASS: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_CHECKS_ONLY: Final = "check-capacity.autoscaling.x-k8s.io"

_SPEC: Final = (
    "affinity",
    "hostNetwork",
    "nodeSelector",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
_CONTAINER: Final = ("name", "image", "ports", "resources", "restartPolicy")
_VOLUME: Final = ("csi", "ephemeral", "persistentVolumeClaim")


class Phase(StrEnum):
    """Phase of a request, from its conditions."""

    PENDING = "pending"
    PROVISIONED = "provisioned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """A request of this scheduler as the API holds it."""

    name: Name
    uid: str
    gang: GangKey
    digest: str
    """Equal for requests with the same content."""
    attempt: int
    phase: Phase = Phase.PENDING
    message: str = ""
    """From the autoscaler."""
    since: float = 0.0
    """When the phase began, in seconds of the epoch."""
    templates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EqualMembers:
    """Members with equal scheduling specs, and the pod that their template is read from."""

    pods: tuple[Pod, ...]
    source: Pod
    stated: bool = False
    """The members do not exist yet and request what their leader, the source, states."""


@dataclass(frozen=True, slots=True)
class MemberTemplate:
    """The pod template of equal members."""

    body: bytes
    """JSON with sorted keys."""
    owners: tuple[tuple[str, str, str, str], ...]
    """apiVersion, kind, name and uid of the owners of the objects."""


@dataclass(frozen=True, slots=True)
class RequestDraft:
    """What a gang requests: templates, and how many pods of each."""

    gang: GangKey
    sets: tuple[tuple[MemberTemplate, int], ...]
    digest: str

    @property
    def count(self) -> int:
        return sum(count for _, count in self.sets)


def check_class(name: str) -> str:
    """The name of a provisioning class, or `ConfigError`."""
    if len(name) > 253 or not _CLASS.fullmatch(name):
        raise errors.ConfigError(
            f"invalid provisioning class {name!r}; want lower-case letters, digits, '-' and '.',"
            " such as best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        )
    if name.endswith(_CHECKS_ONLY):
        raise errors.ConfigError(
            f"provisioning class {name!r} only checks for capacity and provides no nodes; want one"
            " that does, such as best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        )
    return name


# --- read ---


def read(obj: Object, *, scheduler: str) -> ProvisioningRequest | None:
    """None: the object belongs to another owner."""
    metadata = mapping(obj.get("metadata"))
    labels = words(metadata.get("labels"))
    gang = labels.get(vocabulary.GANG_NAME_LABEL, "")
    if labels.get(MANAGED_BY) != scheduler or not gang:
        return None
    name = (str(metadata.get("namespace")), str(metadata.get("name")))
    parts = name[1].rsplit("-", 2)
    if len(parts) != 3 or not parts[2].isdigit():
        raise ModelError(f"ProvisioningRequest {'/'.join(name)}: want a name that ends in -N")
    phase, message, since = _phase(obj)
    sets = rows(mapping(obj.get("spec")).get("podSets"))
    return ProvisioningRequest(
        name,
        str(metadata.get("uid")),
        GangKey(name[0], gang),
        parts[1],
        int(parts[2]),
        phase,
        message,
        since or instant(metadata.get("creationTimestamp")),
        tuple(str(mapping(row.get("podTemplateRef")).get("name")) for row in sets),
    )


# In order of precedence: a request that failed may have been provisioned before.
_CONDITIONS: Final = (
    ("Failed", Phase.FAILED),
    ("CapacityRevoked", Phase.FAILED),
    ("BookingExpired", Phase.FAILED),
    ("Provisioned", Phase.PROVISIONED),
)


def _phase(obj: Json) -> tuple[Phase, str, float]:
    conditions = {
        str(row.get("type")): row for row in rows(mapping(obj.get("status")).get("conditions"))
    }
    for kind, phase in _CONDITIONS:
        row = conditions.get(kind)
        if row is not None and row.get("status") == "True":
            return phase, _message(kind, row), instant(row.get("lastTransitionTime"))
    refused = conditions.get("Provisioned") or conditions.get("Accepted")
    return Phase.PENDING, "" if refused is None else _message(None, refused), 0.0


def _message(kind: str | None, row: Json) -> str:
    text = str(row.get("message") or row.get("reason") or "no message")
    return f"{kind}: {text}" if kind else text


# --- render ---


def template(pod: Object, members: EqualMembers) -> MemberTemplate:
    """From the members' source, as the API has it."""
    spec = mapping(pod.get("spec"))
    made: Object = {key: spec[key] for key in _SPEC if key in spec}
    if members.stated:
        # Pod-level resources are those of the leader itself.
        for key in ("overhead", "resources", "resourceClaims"):
            made.pop(key, None)
        made["containers"] = [_stated(rows(spec.get("containers")), members.pods[0])]
    else:
        for key in ("containers", "initContainers"):
            if spec.get(key):
                made[key] = [_part(row, _CONTAINER) for row in rows(spec[key])]
    volumes = [_part(row, ("name", *_VOLUME)) for row in rows(spec.get("volumes"))]
    if placing := [row for row in volumes if len(row) > 1]:
        made["volumes"] = placing
    labels = frozenset.intersection(*(frozenset(member.labels) for member in members.pods))
    body = {"metadata": {"labels": dict(sorted(labels))}, "spec": made}
    return MemberTemplate(orjson.dumps(body, option=orjson.OPT_SORT_KEYS), _owners(pod, members))


def _stated(containers: Sequence[Json], member: Pod) -> Object:
    """One container with the requests of a member."""
    requests = objects.amounts(member.spec.requests)
    limits = {name: text for name, text in requests.items() if "/" in name}
    resources = {"requests": requests, **({"limits": limits} if limits else {})}
    return {**_part(containers[0], ("name", "image")), "resources": resources}


def _part(row: Json, keys: Iterable[str]) -> Object:
    return {key: row[key] for key in keys if key in row}


def _owners(pod: Object, members: EqualMembers) -> tuple[tuple[str, str, str, str], ...]:
    """The controller of the pods, or the pods themselves if they have none."""
    for row in rows(mapping(pod.get("metadata")).get("ownerReferences")):
        if row.get("controller") is True:
            return ((str(row["apiVersion"]), str(row["kind"]), str(row["name"]), str(row["uid"])),)
    owners = [member for member in members.pods if not is_placeholder(member)] or [members.source]
    return tuple(("v1", "Pod", member.key.name, member.uid) for member in owners[:_MAX_OWNERS])


def draft(
    gang: GangKey, class_name: str, templates: Sequence[tuple[MemberTemplate, int]]
) -> RequestDraft:
    """Equal templates count together; sorted by their text."""
    first: dict[bytes, MemberTemplate] = {}
    counts: dict[bytes, int] = {}
    for member_template, count in templates:
        first.setdefault(member_template.body, member_template)
        counts[member_template.body] = counts.get(member_template.body, 0) + count
    sets = tuple((first[body], counts[body]) for body in sorted(counts))
    text = b"\0".join(
        [
            class_name.encode(),
            *(b"%d %s" % (n, member_template.body) for member_template, n in sets),
        ]
    )
    return RequestDraft(gang, sets, hashlib.sha256(text).hexdigest()[:10])


def name_of(request: RequestDraft, attempt: int) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", request.gang.name.lower())[:_MAX_PREFIX].strip("-")
    return f"{plain or 'gang'}-{request.digest}-{attempt}"


def pod_templates(request: RequestDraft, attempt: int, *, scheduler: str) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": _metadata(request, f"{name_of(request, attempt)}-{number}", scheduler),
            "template": orjson.loads(member_template.body),
        }
        for number, (member_template, _) in enumerate(request.sets)
    ]


def document(
    request: RequestDraft, attempt: int, *, scheduler: str, class_name: str, api_version: str
) -> Object:
    name = name_of(request, attempt)
    return {
        "apiVersion": api_version,
        "kind": "ProvisioningRequest",
        "metadata": _metadata(request, name, scheduler),
        "spec": {
            "provisioningClassName": class_name,
            "podSets": [
                {"podTemplateRef": {"name": f"{name}-{number}"}, "count": count}
                for number, (_, count) in enumerate(request.sets)
            ],
        },
    }


def _metadata(request: RequestDraft, name: str, scheduler: str) -> Object:
    owners = dict.fromkeys(
        owner for member_template, _ in request.sets for owner in member_template.owners
    )
    keys = ("apiVersion", "kind", "name", "uid")
    return {
        "name": name,
        "namespace": request.gang.namespace,
        "labels": {MANAGED_BY: scheduler, vocabulary.GANG_NAME_LABEL: request.gang.name},
        "ownerReferences": [
            dict(zip(keys, owner, strict=True)) for owner in list(owners)[:_MAX_OWNERS]
        ],
    }
