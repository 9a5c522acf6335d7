"""
ProvisioningRequests and the PodTemplates they refer to, read and written out. Values only.

    a class of equal members ──one pod of it, as the API has it──▶ Template ──┐
    a class of equal members ─────────────────────────────────▶ Template ──┴▶ Draft ──attempt──▶
                                                            PodTemplates, ProvisioningRequest

A request is named by what it asks for and by the attempt, so that a second one for the same is
never made: not after a restart, and not by another replica. A template has what decides where a pod
may go and nothing else: no command, no environment, no mounts.
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

MOST_KINDS: Final = 32  # pod sets that a request may have
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_MOST_OWNERS: Final = 16
_LONGEST_PREFIX: Final = 40
_CLASS: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_LOOKS_ONLY: Final = "check-capacity.autoscaling.x-k8s.io"

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
    """What the autoscaler has said."""

    ASKED = "asked"
    PROVISIONED = "provisioned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """A request of this scheduler as the API holds it."""

    name: Name
    uid: str
    gang: GangKey
    digest: str
    """Equal for requests that ask for the same."""
    attempt: int
    phase: Phase = Phase.ASKED
    said: str = ""
    """The autoscaler's own words."""
    since: float = 0.0
    """When it came to this phase, in seconds of the epoch."""
    templates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EqualMembers:
    """Equal ones, and the pod that shows what they are like."""

    pods: tuple[Pod, ...]
    source: Pod
    stated: bool = False
    """They do not exist yet, and ask for what their leader states: the source is the leader."""


@dataclass(frozen=True, slots=True)
class MemberTemplate:
    """What equal members are like: the template of a pod."""

    body: bytes
    """JSON with its keys in order."""
    owners: tuple[tuple[str, str, str, str], ...]
    """apiVersion, kind, name and uid of whoever the objects go with."""


@dataclass(frozen=True, slots=True)
class RequestDraft:
    """What a gang asks for: templates and how many of each."""

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
            f"provisioning class {name!r} is no name; want lower-case letters, digits, '-' and '.',"
            " such as best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        )
    if name.endswith(_LOOKS_ONLY):
        raise errors.ConfigError(
            f"provisioning class {name!r} looks for room and brings no nodes, and gangs would wait"
            " for it in vain; want one that does, such as"
            " best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        )
    return name


# --- read ---


def read(obj: Object, *, scheduler: str) -> ProvisioningRequest | None:
    """None: somebody else's."""
    about = mapping(obj.get("metadata"))
    labels = words(about.get("labels"))
    gang = labels.get(vocabulary.GANG_NAME_LABEL, "")
    if labels.get(MANAGED_BY) != scheduler or not gang:
        return None
    name = (str(about.get("namespace")), str(about.get("name")))
    parts = name[1].rsplit("-", 2)
    if len(parts) != 3 or not parts[2].isdigit():
        raise ModelError(f"ProvisioningRequest {'/'.join(name)}: want a name that ends in -N")
    phase, said, since = _phase(obj)
    sets = rows(mapping(obj.get("spec")).get("podSets"))
    return ProvisioningRequest(
        name,
        str(about.get("uid")),
        GangKey(name[0], gang),
        parts[1],
        int(parts[2]),
        phase,
        said,
        since or instant(about.get("creationTimestamp")),
        tuple(str(mapping(row.get("podTemplateRef")).get("name")) for row in sets),
    )


# What counts, first to last: a request that failed may have been provisioned before.
_SAYS: Final = (
    ("Failed", Phase.FAILED),
    ("CapacityRevoked", Phase.FAILED),
    ("BookingExpired", Phase.FAILED),
    ("Provisioned", Phase.PROVISIONED),
)


def _phase(obj: Json) -> tuple[Phase, str, float]:
    found = {row.get("type"): row for row in rows(mapping(obj.get("status")).get("conditions"))}
    for kind, phase in _SAYS:
        row = found.get(kind)
        if row is not None and row.get("status") == "True":
            return phase, _said(kind, row), instant(row.get("lastTransitionTime"))
    refused = found.get("Provisioned") or found.get("Accepted")
    return Phase.ASKED, "" if refused is None else _said(None, refused), 0.0


def _said(kind: str | None, row: Json) -> str:
    text = str(row.get("message") or row.get("reason") or "nothing more is said")
    return f"{kind}: {text}" if kind else text


# --- written out ---


def template(pod: Object, members: EqualMembers) -> MemberTemplate:
    """Of equal members, from their source as the API has it."""
    spec = mapping(pod.get("spec"))
    made: Object = {key: spec[key] for key in _SPEC if key in spec}
    if members.stated:
        # Resources of the pod as a whole would count, and are the leader's own.
        for key in ("overhead", "resources", "resourceClaims"):
            made.pop(key, None)
        made["containers"] = [_stated(rows(spec.get("containers")), members.pods[0])]
    else:
        for key in ("containers", "initContainers"):
            if spec.get(key):
                made[key] = [_part(row, _CONTAINER) for row in rows(spec[key])]
    volumes = [_part(row, ("name", *_VOLUME)) for row in rows(spec.get("volumes"))]
    if kept := [row for row in volumes if len(row) > 1]:
        made["volumes"] = kept
    labels = frozenset.intersection(*(frozenset(one.labels) for one in members.pods))
    body = {"metadata": {"labels": dict(sorted(labels))}, "spec": made}
    return MemberTemplate(orjson.dumps(body, option=orjson.OPT_SORT_KEYS), _owners(pod, members))


def _stated(containers: Sequence[Json], member: Pod) -> Object:
    """One container that asks for all that a member will ask for."""
    asked = objects.amounts(member.spec.requests)
    limits = {name: text for name, text in asked.items() if "/" in name}
    resources = {"requests": asked, **({"limits": limits} if limits else {})}
    return {**_part(containers[0], ("name", "image")), "resources": resources}


def _part(row: Json, keys: Iterable[str]) -> Object:
    return {key: row[key] for key in keys if key in row}


def _owners(pod: Object, members: EqualMembers) -> tuple[tuple[str, str, str, str], ...]:
    """The controller, which goes with the work; of pods that nobody made the pods themselves."""
    for row in rows(mapping(pod.get("metadata")).get("ownerReferences")):
        if row.get("controller") is True:
            return ((str(row["apiVersion"]), str(row["kind"]), str(row["name"]), str(row["uid"])),)
    made = [one for one in members.pods if not is_placeholder(one)] or [members.source]
    return tuple(("v1", "Pod", one.key.name, one.uid) for one in made[:_MOST_OWNERS])


def draft(
    gang: GangKey, class_name: str, templates: Sequence[tuple[MemberTemplate, int]]
) -> RequestDraft:
    """Templates that are the same count together; in the order of their text."""
    first: dict[bytes, MemberTemplate] = {}
    counts: dict[bytes, int] = {}
    for one, count in templates:
        first.setdefault(one.body, one)
        counts[one.body] = counts.get(one.body, 0) + count
    sets = tuple((first[body], counts[body]) for body in sorted(counts))
    text = b"\0".join([class_name.encode(), *(b"%d %s" % (n, one.body) for one, n in sets)])
    return RequestDraft(gang, sets, hashlib.sha256(text).hexdigest()[:10])


def name_of(one: RequestDraft, attempt: int) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", one.gang.name.lower())[:_LONGEST_PREFIX].strip("-")
    return f"{plain or 'gang'}-{one.digest}-{attempt}"


def pod_templates(one: RequestDraft, attempt: int, *, scheduler: str) -> list[Object]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": _metadata(one, f"{name_of(one, attempt)}-{number}", scheduler),
            "template": orjson.loads(made.body),
        }
        for number, (made, _) in enumerate(one.sets)
    ]


def document(
    one: RequestDraft, attempt: int, *, scheduler: str, class_name: str, api_version: str
) -> Object:
    name = name_of(one, attempt)
    return {
        "apiVersion": api_version,
        "kind": "ProvisioningRequest",
        "metadata": _metadata(one, name, scheduler),
        "spec": {
            "provisioningClassName": class_name,
            "podSets": [
                {"podTemplateRef": {"name": f"{name}-{number}"}, "count": count}
                for number, (_, count) in enumerate(one.sets)
            ],
        },
    }


def _metadata(one: RequestDraft, name: str, scheduler: str) -> Object:
    owners = dict.fromkeys(owner for made, _ in one.sets for owner in made.owners)
    keys = ("apiVersion", "kind", "name", "uid")
    return {
        "name": name,
        "namespace": one.gang.namespace,
        "labels": {MANAGED_BY: scheduler, vocabulary.GANG_NAME_LABEL: one.gang.name},
        "ownerReferences": [
            dict(zip(keys, owner, strict=True)) for owner in list(owners)[:_MOST_OWNERS]
        ],
    }
