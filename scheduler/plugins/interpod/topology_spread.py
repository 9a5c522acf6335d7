"""
Topology spread: the selected pods, evenly over the domains of a topology key.

    a node counts        when it has every key of the constraints, and the constraint's policies
                         allow it: node affinity (by default) and taints (on request)
    a domain             the nodes that share a value of the key; it exists when one of them counts
    a node is rejected   when its domain would exceed the emptiest one by more than `max_skew`

As in kube-scheduler a selector that selects everything counts no pod, yet selects the pod itself.
Terminating pods do not count. Values that depend only on nodes are cached until the nodes change.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler import bounded
from scheduler.columns.node_table import ABSENT, Bools, Codes, Ints, NodeTable
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_affinity import NamespaceScope, SpreadConstraint
from scheduler.model.taints import tolerated
from scheduler.plugins import node_affinity
from scheduler.plugins.interpod.pod_counts import Column, PodCounts, PodKind, SelectorCount

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
UNLABELLED: Final = f"{SKEWED} (missing required label)"
HOST: Final = "kubernetes.io/hostname"

Floats = NDArray[np.float64]

_BEST: Final = 100
_CACHE_SIZE: Final = 128


@dataclass(frozen=True, slots=True)
class _ConstraintDomains:
    """The domains of one constraint for one scheduling spec, from the nodes alone."""

    codes: Codes
    counting: Codes
    """`codes`, but `ABSENT` for nodes that do not count."""
    existing: Codes
    """The codes of the domains that exist."""


class TopologySpread:
    """Hard constraints filter, soft constraints score."""

    def __init__(self, table: NodeTable, counts: PodCounts) -> None:
        self._table = table
        self._counts = counts
        self._cache: dict[tuple[object, ...], tuple[int, tuple[_ConstraintDomains, ...]]] = {}

    def filter(self, pod: Pod, kind: PodKind, rows: Bools) -> Iterator[tuple[str, Bools]]:
        """The first constraint that a node breaks gives the reason."""
        hard = pod.spec.inter_pod.hard_spread
        left = rows
        all_domains = self._all_domains(pod.spec, hard, every_key=True)
        for constraint, domains in zip(hard, all_domains, strict=True):
            unlabelled = left & (domains.codes == ABSENT)
            left = left & ~unlabelled
            yield UNLABELLED, unlabelled
            skewed = left & self._skewed(constraint, domains, pod.key.namespace, kind)
            left = left & ~skewed
            yield SKEWED, skewed

    def _skewed(
        self,
        constraint: SpreadConstraint,
        domains: _ConstraintDomains,
        namespace: str,
        kind: PodKind,
    ) -> Bools:
        count = self.count(namespace, constraint)
        if count is None:
            # The pod itself counts as one at most, and every constraint allows a skew of one.
            return np.zeros(len(domains.codes), dtype=np.bool_)
        pods = _pods_by_domain(domains, count.fit(len(domains.codes)))
        least = 0.0
        if len(domains.existing) >= constraint.min_domains:
            least = pods[domains.existing].min()
        own = self._counts.selects(count, kind)
        skewed: Bools = (pods + own - least > constraint.max_skew)[domains.codes]
        return skewed

    def score(
        self, pod: Pod, rows: Bools, constraints: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> Ints:
        """
        0 to 100 over the rows, best where the domains are emptiest. Without `every_key`, as for
        default constraints, a node that lacks one key is scored by the others.
        """
        all_domains = self._all_domains(pod.spec, constraints, every_key=every_key)
        scored = rows
        if every_key:
            for domains in all_domains:
                scored = scored & (domains.codes != ABSENT)
        if not scored.any():
            return np.zeros(len(rows), dtype=np.int64)
        total = np.zeros(len(rows))
        for constraint, domains in zip(constraints, all_domains, strict=True):
            points = self._points(pod.key.namespace, constraint, domains, scored)
            total += np.where(domains.codes != ABSENT, points, 0)
        sums = np.floor(total + 0.5).astype(np.int64)
        most, least = int(sums[scored].max()), int(sums[scored].min())
        scores = _BEST * (most + least - sums) // most if most else np.full_like(sums, _BEST)
        return np.where(scored, scores, 0)

    def _points(
        self,
        namespace: str,
        constraint: SpreadConstraint,
        domains: _ConstraintDomains,
        scored: Bools,
    ) -> Floats:
        """More for more pods; a key with few domains weighs less than one with many."""
        count = self.count(namespace, constraint)
        if count is None:
            return np.full(len(scored), constraint.max_skew - 1, dtype=np.float64)
        column = count.fit(len(scored))
        if constraint.topology_key == HOST:
            size, pods = int(scored.sum()), column.astype(np.float64)
        else:
            size = int(np.count_nonzero(np.bincount(domains.codes[scored])))
            pods = _pods_by_domain(domains, column)[domains.codes]
        return pods * math.log(size + 2) + (constraint.max_skew - 1)

    def count(self, namespace: str, constraint: SpreadConstraint) -> SelectorCount | None:
        """None: the constraint counts no pods."""
        if not constraint.selector:
            return None
        group = ((NamespaceScope((namespace,)), constraint.selector),)
        return self._counts.count(group, with_terminating=False)

    def prepare(self, pod: Pod) -> None:
        """Open the counts of the pod's own constraints."""
        constraints = pod.spec.inter_pod
        for constraint in (*constraints.hard_spread, *constraints.soft_spread):
            self.count(pod.key.namespace, constraint)

    # --- nodes alone ---

    def _all_domains(
        self, spec: SchedulingSpec, constraints: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> tuple[_ConstraintDomains, ...]:
        key = (constraints, every_key, spec.selector, spec.tolerations, spec.node_constraints)
        known = self._cache.get(key)
        if known is not None and known[0] == self._table.statics:
            return known[1]
        domains = tuple(self._domains(spec, constraints, every_key=every_key))
        bounded.remember(self._cache, key, (self._table.statics, domains), _CACHE_SIZE)
        return domains

    def _domains(
        self, spec: SchedulingSpec, constraints: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> Iterator[_ConstraintDomains]:
        table = self._table
        labelled = table.alive
        for constraint in constraints if every_key else ():
            labelled = labelled & (table.codes(constraint.topology_key) != ABSENT)
        for constraint in constraints:
            counting = labelled
            if constraint.honor_affinity:
                counting = counting & node_affinity.matching(table, spec)
            if constraint.honor_taints:
                counting = counting & _tolerable(table, spec)
            codes = table.codes(constraint.topology_key)
            counted = np.where(counting, codes, np.int32(ABSENT))
            existing = np.unique(counted)
            yield _ConstraintDomains(codes, counted, existing[existing != ABSENT])


def _pods_by_domain(domains: _ConstraintDomains, column: Column) -> Floats:
    """The number of pods in each domain, by its code; pods of other nodes do not count."""
    size = int(domains.codes.max(initial=0)) + 1
    pods = np.bincount(domains.counting, weights=column, minlength=size).astype(np.float64)
    pods[ABSENT] = 0
    return pods


def _tolerable(table: NodeTable, spec: SchedulingSpec) -> Bools:
    by_set = np.array(
        [
            all(tolerated(taint, spec.tolerations) for taint in taints)
            for taints, _ in table.taint_sets
        ],
        dtype=np.bool_,
    )
    tolerable: Bools = by_set[table.taints]
    return tolerable
