"""
A pod's constraints on nodes: node affinity, required and preferred, features, and its images.

All requirements of a `NodeSelectorTerm` must hold; of the required terms one must hold. As in
kube-scheduler a term that is empty or unreadable (`Gt` of a word) holds nowhere.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows, weight
from scheduler.model.label_selector import LabelRequirement, integer

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_NAME: Final = "metadata.name"
_CONTAINERS: Final = ("containers", "initContainers")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    labels: tuple[LabelRequirement, ...] = ()
    names: tuple[LabelRequirement, ...] = ()
    readable: bool = True

    @property
    def named(self) -> frozenset[str] | None:
        """The only nodes that the term can match; None: it names none."""
        names = [frozenset(row.values) for row in self.names if row.operator == "In"]
        return frozenset.intersection(*names) if names else None


@dataclass(frozen=True, slots=True)
class NodeConstraints:
    """All constraints beyond the plain node selector; empty: every node matches."""

    required: tuple[NodeSelectorTerm, ...] | None = None
    """One of them must hold, so an empty tuple matches no node; None: nothing is required."""
    preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    """Weights, and the terms that earn them."""
    images: tuple[str, ...] = ()
    """One for each container or image volume, sorted."""
    features: tuple[str, ...] = ()
    """Features that the kubelet must have declared."""

    @property
    def named(self) -> frozenset[str] | None:
        """The nodes named one by one when every required term does so; empty: they conflict."""
        named = [term.named for term in self.required or ()]
        sets = [names for names in named if names is not None]
        return frozenset.union(*sets) if sets and len(sets) == len(named) else None


ANY_NODE: Final = NodeConstraints()


def read(spec: Json) -> NodeConstraints:
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    images, features = _images(spec), tuple(_features(spec))
    if not (affinity or images or features):
        return ANY_NODE
    required = affinity.get(_REQUIRED)
    terms = None
    if isinstance(required, Mapping):
        terms = tuple(_term(row) for row in rows(required.get("nodeSelectorTerms")))
    preferred = [
        (weight(row.get("weight")), _term(mapping(row.get("preference"))))
        for row in rows(affinity.get(_PREFERRED))
    ]
    return NodeConstraints(
        required=terms,
        preferred=tuple((points, term) for points, term in preferred if points and term.readable),
        images=images,
        features=features,
    )


def _term(row: Json) -> NodeSelectorTerm:
    labels = tuple(_requirement(item) for item in rows(row.get("matchExpressions")))
    names = tuple(_requirement(item) for item in rows(row.get("matchFields")))
    readable = (
        bool(labels or names) and all(map(_readable, labels)) and all(map(_readable_name, names))
    )
    return NodeSelectorTerm(labels, names, readable)


def _requirement(row: Json) -> LabelRequirement:
    values = row.get("values")
    return LabelRequirement(
        key=str(row.get("key") or ""),
        operator=str(row.get("operator") or ""),
        values=tuple(map(str, values)) if isinstance(values, list) else (),
    )


def _readable(row: LabelRequirement) -> bool:
    if not all(map(_LABEL_VALUE.fullmatch, row.values)):
        return False
    match row.operator:
        case "In" | "NotIn":
            return bool(row.values)
        case "Exists" | "DoesNotExist":
            return not row.values
        case "Gt" | "Lt":
            return len(row.values) == 1 and integer(row.values[0]) is not None
        case _:
            return False


def _readable_name(row: LabelRequirement) -> bool:
    return row.key == _NAME and row.operator in ("In", "NotIn") and len(row.values) == 1


def _features(spec: Json) -> Iterator[str]:
    """Features behind fields that an older kubelet ignores."""
    containers = [row for field in _CONTAINERS for row in rows(spec.get(field))]
    rules = (rule for row in containers for rule in rows(row.get("restartPolicyRules")))
    if any(rule.get("action") == "RestartAllContainers" for rule in rules):
        yield "RestartAllContainersOnContainerExits"
    if spec.get("hostNetwork") is True and spec.get("hostUsers") is False:
        yield "UserNamespacesHostNetworkSupport"
    mounts = (mount for row in containers for mount in rows(row.get("volumeMounts")))
    if any(mount.get("bindMountOptions") for mount in mounts):
        yield "VolumeBindMountOptions"


def _images(spec: Json) -> tuple[str, ...]:
    names = [row.get("image") for field in _CONTAINERS for row in rows(spec.get(field))]
    volumes = (row.get("image") for row in rows(spec.get("volumes")))
    names += [image.get("reference") for image in volumes if isinstance(image, Mapping)]
    if not any(names):
        return ()
    return tuple(sorted(_tagged(str(name or "")) for name in names))


def _tagged(name: str) -> str:
    """With the tag that the container runtime adds to a name without one."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
