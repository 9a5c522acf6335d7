"""
Gangs whose members must share a domain of a topology level: which domains, in which order.

    members ──────────▶ ColocationRequirement   required levels, preferred level, minimum fabric
    + bound members ──▶ DomainConstraint        a domain code per row; all rows of a plan share one

What one member requires holds for the whole gang. Bound members pin the gang to their domain; if
they are in several domains, no further member is placed. A domain is a candidate if enough members
fit by amounts alone: those with the largest capacity first, then those that need the fewest nodes,
then the fullest, so that larger domains stay free.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints
from scheduler.model.fabric import NO_FABRIC
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.policy import TopologyLevel
from scheduler.plugins import fabric
from scheduler.plugins.placement_policy import PlacementPolicy

BoundMembers = Sequence[tuple[Pod, str]]
"""Members of a gang that have a node, with its name."""

_UNPINNED: Final = -1


@dataclass(frozen=True, slots=True)
class ColocationRequirement:
    """What a gang requires as a whole."""

    levels: tuple[TopologyLevel, ...] = ()
    """All members share one domain of each level."""
    preferred: TopologyLevel | None = None
    """The same, if all members fit in one domain of it."""
    min_fabric: int = 0
    """The minimum fabric grade of every node."""
    unresolvable: bool = False
    """A member requires a level that does not exist."""


def requirement_of(
    specs: Iterable[SchedulingSpec], places: PlacementPolicy
) -> ColocationRequirement | None:
    """What these members require together; None: nothing, as for most gangs."""
    requesting = dict.fromkeys(spec for spec in specs if spec.fabric is not NO_FABRIC)
    levels: dict[TopologyLevel, None] = {}
    preferred: list[TopologyLevel] = []
    for spec in requesting:
        levels |= dict.fromkeys(fabric.required(places.tables, spec.fabric))
        level = fabric.preferred(places.tables, spec.fabric)
        preferred += [level] if level is not None else []
    min_fabric = max((spec.fabric.minimum for spec in requesting), default=0)
    unresolvable = any(places.unknown_level(spec) for spec in requesting)
    if not (levels or preferred or min_fabric or unresolvable):
        return None
    order = places.tables.levels
    narrowest = min(preferred, key=order.index, default=None)
    return ColocationRequirement(tuple(levels), narrowest, min_fabric, unresolvable)


def joinable(pods: Iterable[Pod], snapshot: Snapshot, bound_members: BoundMembers) -> Bools | None:
    """The rows on which bound members let these pods be placed; None: all."""
    specs = (pod.spec for pod in (*pods, *(pod for pod, _ in bound_members)))
    requirement = requirement_of(specs, snapshot.placement_policy) if bound_members else None
    if requirement is None or not requirement.levels:
        return None
    constraint = domain_constraint(requirement.levels, snapshot, bound_members)
    if constraint.unpinned:
        return None
    codes = constraint.codes
    rows: Bools = (codes == constraint.pinned) & (codes != ABSENT)
    return rows


def rows_with_fabric(requirement: ColocationRequirement, snapshot: Snapshot) -> Bools | None:
    """The rows with the minimum fabric grade; None: all."""
    if not requirement.min_fabric:
        return None
    return fabric.grades(snapshot.table) >= requirement.min_fabric


@dataclass(frozen=True, slots=True)
class DomainIndex:
    """The rows grouped by domain; derived from labels alone and cached with them."""

    codes: Codes
    """The domain of each row; 0: none."""
    rows: Ints
    """The rows with a domain, domain by domain."""
    starts: Ints
    names: Codes
    """The code of each domain."""
    first: Codes
    """The rank of its first node by name."""

    @classmethod
    def of(cls, codes: Codes, rank: Codes) -> "DomainIndex":
        rows = np.argsort(codes, kind="stable")
        rows = rows[codes[rows] != ABSENT]
        names, starts = np.unique(codes[rows], return_index=True)
        first = np.minimum.reduceat(rank[rows], starts) if len(rows) else names
        return cls(codes, rows, starts, names, first)


@dataclass(frozen=True, slots=True)
class DomainConstraint:
    """All members of the gang share one domain."""

    name: str
    domains: DomainIndex
    pinned: int = _UNPINNED
    """The domain of the bound members; 0: they share none."""

    @property
    def codes(self) -> Codes:
        return self.domains.codes

    @property
    def unpinned(self) -> bool:
        """No member is bound yet: every domain is allowed."""
        return self.pinned == _UNPINNED

    @property
    def outside_reason(self) -> str:
        """Why nodes outside are filtered; `attempts` may append the capacity of the best domain."""
        if self.unpinned:
            return f"node(s) were outside any {self.name} that can hold the gang"
        if self.pinned == ABSENT:
            return f"node(s) could not join a gang whose bound members share no {self.name}"
        return f"node(s) were outside the {self.name} of the gang's bound members"


def domain_constraint(
    levels: Sequence[TopologyLevel], snapshot: Snapshot, bound_members: BoundMembers
) -> DomainConstraint:
    places, table = snapshot.placement_policy, snapshot.table
    index = places.derived(tuple(levels), lambda: _domains(levels, snapshot))
    name = " and ".join(level.name for level in levels)
    rows = [table.rows[node] for _, node in bound_members if node in snapshot]
    if not rows:
        return DomainConstraint(name, index)
    codes = np.unique(index.codes[rows])
    return DomainConstraint(name, index, int(codes[0]) if len(codes) == 1 else ABSENT)


def _domains(levels: Sequence[TopologyLevel], snapshot: Snapshot) -> DomainIndex:
    codes = _combined([snapshot.placement_policy.codes(level) for level in levels])
    return DomainIndex.of(codes, snapshot.table.rank)


def _combined(levels: Sequence[Codes]) -> Codes:
    """One code for each combination of codes; 0 where one of them is 0."""
    first, *others = levels
    for more in others:
        both = first.astype(np.int64) * (int(more.max(initial=0)) + 1) + more
        _, numbers = np.unique(both, return_inverse=True)
        first = np.where((first == ABSENT) | (more == ABSENT), 0, numbers + 1).astype(np.int32)
    return first


@dataclass(frozen=True, slots=True)
class DomainCandidate:
    """A domain and how many members fit in it at most, by amounts."""

    code: int
    most: int


def candidate_domains(
    constraint: DomainConstraint, capacities: Sequence[Ints], counts: Sequence[int], need: int
) -> list[DomainCandidate]:
    """
    The domains to try. If `need` members fit in none, the one with the largest capacity, for its
    reasons. `capacities` are how many members of each class every row could take.
    """
    index = constraint.domains
    if len(index.names) == 0:
        return []
    most, total, nodes = _totals(index, capacities, counts)
    ranked = np.lexsort((index.first, total, nodes, -most))
    if not constraint.unpinned:
        ranked = ranked[index.names[ranked] == constraint.pinned]
    able = ranked[most[ranked] >= need]
    chosen = able if len(able) else ranked[:1]
    return [
        DomainCandidate(int(code), int(n))
        for code, n in zip(index.names[chosen], most[chosen], strict=True)
    ]


def _totals(
    index: DomainIndex, capacities: Sequence[Ints], counts: Sequence[int]
) -> tuple[Ints, Ints, Ints]:
    """For each domain: how many members fit, its capacity, and how many nodes they take."""
    most = total = nodes = np.zeros(len(index.names), dtype=np.int64)
    for capacity, count in zip(capacities, counts, strict=True):
        by_domain = capacity[index.rows]
        sums = np.add.reduceat(by_domain, index.starts)
        most, total = most + np.minimum(sums, count), total + sums
        nodes = np.maximum(nodes, _fewest_nodes(index, by_domain, count))
    return most, total, nodes


def _fewest_nodes(index: DomainIndex, by_domain: Ints, count: int) -> Ints:
    """How many nodes of each domain are needed; all with capacity where they do not suffice."""
    largest = np.maximum.reduceat(by_domain, index.starts)
    if ((largest >= count) | (largest == 0)).all():
        return (largest > 0).astype(np.int64)  # one node of each domain suffices
    sizes = np.diff(np.r_[index.starts, len(by_domain)])
    domain = np.repeat(np.arange(len(sizes)), sizes)
    descending = by_domain[np.lexsort((-by_domain, domain))]
    before = np.cumsum(descending) - descending
    needed = (before - np.repeat(before[index.starts], sizes) < count) & (descending > 0)
    return np.bincount(domain[needed], minlength=len(sizes))
