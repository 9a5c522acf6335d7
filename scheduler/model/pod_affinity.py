"""
A pod's constraints on other pods: (anti-)affinity and topology spread.

`matchLabelKeys` and `mismatchLabelKeys` are resolved here with the pod's own labels. The API server
adds the same requirements to the (anti-)affinity terms that it stores. Those are not resolved
again, because labels may have changed since, and kube-scheduler obeys the stored requirement.
Topology spread is resolved on every read, as in kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from policies.json_fields import Json, mapping
from scheduler.model import label_selector
from scheduler.model.fields import rows, weight, whole
from scheduler.model.label_selector import NOTHING, LabelRequirement, Selector, joined

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NamespaceScope(NamedTuple):
    """Namespaces by name and by label selector."""

    namespaces: tuple[str, ...]
    selector: Selector = NOTHING


class PodAffinityTerm(NamedTuple):
    """Pods in a scope with these labels, in the same domain of a topology key."""

    scope: NamespaceScope
    selector: Selector
    topology_key: str


class SpreadConstraint(NamedTuple):
    """The selected pods, evenly over the domains of a topology key."""

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    """Only nodes that match the pod's node affinity count."""
    honor_taints: bool = False
    """Only nodes whose taints the pod tolerates count."""


@dataclass(frozen=True, slots=True)
class InterPodConstraints:
    """Empty: the placement does not depend on other pods."""

    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[tuple[PodAffinityTerm, int], ...] = ()
    """With weights; below zero for preferred anti-affinity."""
    hard_spread: tuple[SpreadConstraint, ...] = ()
    soft_spread: tuple[SpreadConstraint, ...] = ()
    digest: int = field(init=False, repr=False, compare=False)
    """The hash, computed once: plugins look constraints up for every pod that they charge."""

    def __post_init__(self) -> None:
        parts = (
            self.affinity,
            self.anti_affinity,
            self.preferred,
            self.hard_spread,
            self.soft_spread,
        )
        object.__setattr__(self, "digest", hash(parts))

    def __hash__(self) -> int:
        return self.digest

    @property
    def is_hard(self) -> bool:
        """They can filter nodes out, not only lower scores."""
        return bool(self.affinity or self.anti_affinity or self.hard_spread)


NO_INTER_POD: Final = InterPodConstraints()


def read(namespace: str, labels: tuple[tuple[str, str], ...], spec: Json) -> InterPodConstraints:
    """The labels give `matchLabelKeys` their values."""
    affinity = mapping(spec.get("affinity"))
    spreads = rows(spec.get("topologySpreadConstraints"))
    if not (affinity.get("podAffinity") or affinity.get("podAntiAffinity") or spreads):
        return NO_INTER_POD
    own = dict(labels)
    near, far = mapping(affinity.get("podAffinity")), mapping(affinity.get("podAntiAffinity"))
    constraints = InterPodConstraints(
        affinity=tuple(_term(namespace, own, row) for row in rows(near.get(_REQUIRED))),
        anti_affinity=tuple(_term(namespace, own, row) for row in rows(far.get(_REQUIRED))),
        preferred=(
            *_weighted(namespace, own, rows(near.get(_PREFERRED)), +1),
            *_weighted(namespace, own, rows(far.get(_PREFERRED)), -1),
        ),
        hard_spread=tuple(_spread(own, row) for row in spreads if _is_hard(row)),
        soft_spread=tuple(_spread(own, row) for row in spreads if not _is_hard(row)),
    )
    return NO_INTER_POD if constraints == NO_INTER_POD else constraints


def _weighted(
    namespace: str, own: Mapping[str, str], terms: Iterable[Json], sign: int
) -> tuple[tuple[PodAffinityTerm, int], ...]:
    return tuple(
        (_term(namespace, own, mapping(row.get("podAffinityTerm"))), sign * points)
        for row in terms
        if (points := weight(row.get("weight")))
    )


def _term(namespace: str, own: Mapping[str, str], row: Json) -> PodAffinityTerm:
    names = tuple(sorted({str(name) for name in row.get("namespaces") or ()}))
    namespace_selector = label_selector.read(row.get("namespaceSelector"))
    if not names and namespace_selector is NOTHING:
        names = (namespace,)
    selector = label_selector.read(row.get("labelSelector"))
    if selector is not None:
        present = {(requirement.key, requirement.operator) for requirement in selector}
        added = (
            requirement
            for field_name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for requirement in _own_values(own, row.get(field_name), operator)
            if (requirement.key, operator) not in present
        )
        selector = joined(selector, added)
    return PodAffinityTerm(
        NamespaceScope(names, namespace_selector), selector, str(row.get("topologyKey") or "")
    )


def _spread(own: Mapping[str, str], row: Json) -> SpreadConstraint:
    selector = label_selector.read(row.get("labelSelector"))
    if selector is not None:
        selector = joined(selector, _own_values(own, row.get("matchLabelKeys"), "In"))
    return SpreadConstraint(
        topology_key=str(row.get("topologyKey") or ""),
        max_skew=whole(row.get("maxSkew")),
        selector=selector,
        min_domains=whole(row.get("minDomains")) or 1,
        honor_affinity=row.get("nodeAffinityPolicy") != "Ignore",
        honor_taints=row.get("nodeTaintsPolicy") == "Honor",
    )


def _is_hard(row: Json) -> bool:
    """An unknown value counts as hard, so that it does not weaken the constraint."""
    return row.get("whenUnsatisfiable") != "ScheduleAnyway"


def _own_values(own: Mapping[str, str], keys: object, operator: str) -> list[LabelRequirement]:
    """Keys that the pod does not carry are ignored."""
    listed = keys if isinstance(keys, list) else []
    return [LabelRequirement(str(key), operator, (own[key],)) for key in listed if key in own]
