"""
What a pod may ask for that this scheduler does not honour yet.

A wish that is not honoured is named here, so that the pod is refused with the wish's name rather
than placed against it. Preferences (preferred affinity, ScheduleAnyway) are no such wishes: missing
one makes a placement worse, not wrong. An entry leaves this module when a filter takes it up.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from policies import requests, vocabulary

Json = Mapping[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_DISKS: Final = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi", "azureDisk", "cinder")


def asked_in_vain(spec: Json, annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The names of what is asked for in vain, each once, in a fixed order."""
    return tuple(dict.fromkeys([*_rules(spec), *_devices(spec), *_annotations(annotations)]))


def sentence(wish: str) -> str:
    return f"asks for {wish}, which this scheduler does not honour yet"


def _rules(spec: Json) -> Iterator[str]:
    affinity = _map(spec.get("affinity"))
    for field, name in (
        ("nodeAffinity", "required node affinity"),
        ("podAffinity", "required pod affinity"),
        ("podAntiAffinity", "required pod anti-affinity"),
    ):
        if _map(affinity.get(field)).get(_REQUIRED):
            yield name
    for row in spec.get("topologySpreadConstraints") or ():
        if row.get("whenUnsatisfiable") == "DoNotSchedule":
            yield "topology spread with DoNotSchedule"
    for row in spec.get("tolerations") or ():
        if row.get("operator") in ("Gt", "Lt"):
            yield "tolerations that compare numbers"


def _devices(spec: Json) -> Iterator[str]:
    for _, container in requests.all_containers(spec):
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield "host ports"
    for volume in spec.get("volumes") or ():
        if volume.get("persistentVolumeClaim") or volume.get("ephemeral"):
            yield "persistent volume claims"
        if any(volume.get(kind) for kind in _DISKS):
            yield "in-tree disks"
    if spec.get("resourceClaims"):
        yield "resource claims"


def _annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    if annotations.get(vocabulary.REQUIRE_CLIQUE_ANNOTATION) == "true":
        yield vocabulary.REQUIRE_CLIQUE_ANNOTATION
    if annotations.get(vocabulary.CO_LOCATE_ANNOTATION) == "strict":
        yield f"{vocabulary.CO_LOCATE_ANNOTATION}=strict"
    if annotations.get(vocabulary.MIN_FABRIC_TIER_ANNOTATION):
        yield vocabulary.MIN_FABRIC_TIER_ANNOTATION


def _map(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
