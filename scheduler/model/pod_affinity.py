"""
What a pod asks of the pods around it: (anti-)affinity and topology spread.

`matchLabelKeys` and `mismatchLabelKeys` are resolved here with the pod's own labels. The API server
has done so already for what it stores, as a requirement on the same key; then it is not done again,
because labels may have changed since and the stored requirement is what kube-scheduler obeys.
Topology spread is resolved at every reading, as in kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from scheduler.model import label_selector
from scheduler.model.fields import Json, mapping, rows, whole
from scheduler.model.label_selector import NOTHING, LabelRequirement, Selector, joined

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NamespaceScope(NamedTuple):
    """Namespaces by name, and those whose labels are selected."""

    namespaces: tuple[str, ...]
    selector: Selector = NOTHING


class PodAffinityTerm(NamedTuple):
    """Pods in a scope with these labels, in the same domain of a topology key."""

    scope: NamespaceScope
    selector: Selector
    key: str


class SpreadConstraint(NamedTuple):
    """Pods like these, evenly over the domains of a topology key."""

    key: str
    skew: int
    selector: Selector
    domains: int = 1
    by_affinity: bool = True
    """Only nodes that the pod's node affinity allows are counted."""
    by_taints: bool = False
    """Only nodes whose taints the pod tolerates are counted."""


@dataclass(frozen=True, slots=True)
class InterPodConstraints:
    """Empty: the pod does not care who else is where."""

    affinity: tuple[PodAffinityTerm, ...] = ()
    anti: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[tuple[PodAffinityTerm, int], ...] = ()
    """With weights; below zero: rather not."""
    hard: tuple[SpreadConstraint, ...] = ()
    soft: tuple[SpreadConstraint, ...] = ()
    digest: int = field(init=False, repr=False, compare=False)
    """The hash, computed once: a wish is looked up for every pod that is placed or tried."""

    def __post_init__(self) -> None:
        parts = (self.affinity, self.anti, self.preferred, self.hard, self.soft)
        object.__setattr__(self, "digest", hash(parts))

    def __hash__(self) -> int:
        return self.digest

    @property
    def binding(self) -> bool:
        """Some node may be refused for it, not only liked less."""
        return bool(self.affinity or self.anti or self.hard)


NO_INTER_POD: Final = InterPodConstraints()


def read(namespace: str, labels: tuple[tuple[str, str], ...], spec: Json) -> InterPodConstraints:
    """The labels give `matchLabelKeys` their values."""
    affinity = mapping(spec.get("affinity"))
    constraints = rows(spec.get("topologySpreadConstraints"))
    if not (affinity.get("podAffinity") or affinity.get("podAntiAffinity") or constraints):
        return NO_INTER_POD
    mine = dict(labels)
    near, far = mapping(affinity.get("podAffinity")), mapping(affinity.get("podAntiAffinity"))
    wish = InterPodConstraints(
        affinity=tuple(_term(namespace, mine, row) for row in rows(near.get(_REQUIRED))),
        anti=tuple(_term(namespace, mine, row) for row in rows(far.get(_REQUIRED))),
        preferred=(
            *_weighted(namespace, mine, rows(near.get(_PREFERRED)), +1),
            *_weighted(namespace, mine, rows(far.get(_PREFERRED)), -1),
        ),
        hard=tuple(_spread(mine, row) for row in constraints if _refuses(row)),
        soft=tuple(_spread(mine, row) for row in constraints if not _refuses(row)),
    )
    return NO_INTER_POD if wish == NO_INTER_POD else wish


def _weighted(
    namespace: str, mine: Mapping[str, str], found: Iterable[Json], sign: int
) -> tuple[tuple[PodAffinityTerm, int], ...]:
    return tuple(
        (_term(namespace, mine, mapping(row.get("podAffinityTerm"))), sign * whole(row["weight"]))
        for row in found
        if whole(row.get("weight"))
    )


def _term(namespace: str, mine: Mapping[str, str], row: Json) -> PodAffinityTerm:
    named = tuple(sorted({str(name) for name in row.get("namespaces") or ()}))
    chosen = label_selector.read(row.get("namespaceSelector"))
    if not named and chosen is NOTHING:
        named = (namespace,)
    selector = label_selector.read(row.get("labelSelector"))
    if selector is not None:
        known = {(requirement.key, requirement.operator) for requirement in selector}
        added = (
            requirement
            for field_name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for requirement in _own(mine, row.get(field_name), operator)
            if (requirement.key, operator) not in known
        )
        selector = joined(selector, added)
    return PodAffinityTerm(
        NamespaceScope(named, chosen), selector, str(row.get("topologyKey") or "")
    )


def _spread(mine: Mapping[str, str], row: Json) -> SpreadConstraint:
    selector = label_selector.read(row.get("labelSelector"))
    if selector is not None:
        selector = joined(selector, _own(mine, row.get("matchLabelKeys"), "In"))
    return SpreadConstraint(
        key=str(row.get("topologyKey") or ""),
        skew=whole(row.get("maxSkew")),
        selector=selector,
        domains=whole(row.get("minDomains")) or 1,
        by_affinity=row.get("nodeAffinityPolicy") != "Ignore",
        by_taints=row.get("nodeTaintsPolicy") == "Honor",
    )


def _refuses(row: Json) -> bool:
    """Anything but the one mild word: a word that is not known must not weaken the wish."""
    return row.get("whenUnsatisfiable") != "ScheduleAnyway"


def _own(mine: Mapping[str, str], keys: object, operator: str) -> list[LabelRequirement]:
    """Keys that the pod does not carry are ignored."""
    listed = keys if isinstance(keys, list) else []
    return [LabelRequirement(str(key), operator, (mine[key],)) for key in listed if key in mine]
