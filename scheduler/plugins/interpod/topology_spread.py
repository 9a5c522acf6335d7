"""
Topology spread: pods alike, evenly over the domains of a topology key.

    a node counts        when it has every key of the constraints, and the constraint's policies let
                         it: the pod's node affinity (as a rule) and taints (on request)
    a domain             the nodes that share a value of the key; it exists when one of them counts
    a node is refused    when its domain would hold more than the emptiest one by above `skew`

A selector that selects everything counts no pod, yet selects the pod itself: kube-scheduler has it
so. Terminating pods are not counted. What depends on nodes alone is kept while they stand still.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
_KEPT: Final = 128


@dataclass(frozen=True, slots=True)
class _ConstraintDomains:
    """What nodes alone say of one constraint of one shape."""

    codes: Codes
    counting: Codes
    """The codes again, `ABSENT` for nodes that do not count."""
    domains: Codes
    """The codes of domains that exist."""


class TopologySpread:
    """Hard constraints refuse, soft ones score."""

    def __init__(self, table: NodeTable, counts: PodCounts) -> None:
        self._table = table
        self._counts = counts
        self._grounds: dict[tuple[object, ...], tuple[int, tuple[_ConstraintDomains, ...]]] = {}

    def refuse(self, pod: Pod, kind: PodKind, rows: Bools) -> Iterator[tuple[str, Bools]]:
        """The first constraint that a node breaks gives the reason."""
        hard = pod.spec.inter_pod.hard
        left = rows
        for wish, ground in zip(hard, self._all(pod.spec, hard, every_key=True), strict=True):
            without = left & (ground.codes == ABSENT)
            left = left & ~without
            yield UNLABELLED, without
            over = left & self._skewed(wish, ground, pod.key.namespace, kind)
            left = left & ~over
            yield SKEWED, over

    def _skewed(
        self, wish: SpreadConstraint, ground: _ConstraintDomains, namespace: str, kind: PodKind
    ) -> Bools:
        count = self.count(namespace, wish)
        if count is None:
            # The pod itself is one at most, and a skew of one is always allowed.
            return np.zeros(len(ground.codes), dtype=np.bool_)
        held = _held(ground, count.fit(len(ground.codes)))
        least = 0.0
        if len(ground.domains) >= wish.domains:
            least = held[ground.domains].min()
        own = self._counts.selects(count, kind)
        found: Bools = (held + own - least > wish.skew)[ground.codes]
        return found

    def score(
        self, pod: Pod, rows: Bools, wishes: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> Ints:
        """
        0 to 100 over the rows, best where the domains are emptiest. Without `every_key` a node that
        lacks a key is judged by the others: so it is for the defaults that nobody wrote down.
        """
        grounds = self._all(pod.spec, wishes, every_key=every_key)
        judged = rows
        if every_key:
            for ground in grounds:
                judged = judged & (ground.codes != ABSENT)
        if not judged.any():
            return np.zeros(len(rows), dtype=np.int64)
        total = np.zeros(len(rows))
        for wish, ground in zip(wishes, grounds, strict=True):
            points = self._points(pod.key.namespace, wish, ground, judged)
            total += np.where(ground.codes != ABSENT, points, 0)
        sums = np.floor(total + 0.5).astype(np.int64)
        most, least = int(sums[judged].max()), int(sums[judged].min())
        marks = _BEST * (most + least - sums) // most if most else np.full_like(sums, _BEST)
        return np.where(judged, marks, 0)

    def _points(
        self, namespace: str, wish: SpreadConstraint, ground: _ConstraintDomains, judged: Bools
    ) -> Floats:
        """More where more pods are; scarce domains weigh more, so that many do not drown them."""
        count = self.count(namespace, wish)
        if count is None:
            return np.full(len(judged), wish.skew - 1, dtype=np.float64)
        column = count.fit(len(judged))
        if wish.key == HOST:
            size, here = int(judged.sum()), column.astype(np.float64)
        else:
            size = int(np.count_nonzero(np.bincount(ground.codes[judged])))
            here = _held(ground, column)[ground.codes]
        return here * math.log(size + 2) + (wish.skew - 1)

    def count(self, namespace: str, wish: SpreadConstraint) -> SelectorCount | None:
        """None: nobody is counted."""
        if not wish.selector:
            return None
        return self._counts.count(((NamespaceScope((namespace,)), wish.selector),), staying=True)

    def prepare(self, pod: Pod) -> None:
        """Have the counts that the pod's own wish asks for."""
        for wish in (*pod.spec.inter_pod.hard, *pod.spec.inter_pod.soft):
            self.count(pod.key.namespace, wish)

    # --- nodes alone ---

    def _all(
        self, spec: SchedulingSpec, wishes: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> tuple[_ConstraintDomains, ...]:
        key = (wishes, every_key, spec.selector, spec.tolerations, spec.node_constraints)
        known = self._grounds.get(key)
        if known is not None and known[0] == self._table.statics:
            return known[1]
        grounds = tuple(self._ground(spec, wishes, every_key=every_key))
        if len(self._grounds) >= _KEPT:
            self._grounds.clear()
        self._grounds[key] = (self._table.statics, grounds)
        return grounds

    def _ground(
        self, spec: SchedulingSpec, wishes: tuple[SpreadConstraint, ...], *, every_key: bool
    ) -> Iterator[_ConstraintDomains]:
        table = self._table
        keyed = table.alive
        for wish in wishes if every_key else ():
            keyed = keyed & (table.codes(wish.key) != ABSENT)
        for wish in wishes:
            counting = keyed
            if wish.by_affinity:
                counting = counting & node_affinity.matching(table, spec)
            if wish.by_taints:
                counting = counting & _tolerable(table, spec)
            codes = table.codes(wish.key)
            mine = np.where(counting, codes, np.int32(ABSENT))
            domains = np.unique(mine)
            yield _ConstraintDomains(codes, mine, domains[domains != ABSENT])


def _held(ground: _ConstraintDomains, column: Column) -> Floats:
    """How many pods each domain holds, by its code; nodes that do not count hold none."""
    most = int(ground.codes.max(initial=0))
    held = np.bincount(ground.counting, weights=column, minlength=most + 1).astype(np.float64)
    held[ABSENT] = 0
    return held


def _tolerable(table: NodeTable, spec: SchedulingSpec) -> Bools:
    by_set = np.array(
        [
            all(tolerated(taint, spec.tolerations) for taint in taints)
            for taints, _ in table.taint_sets
        ],
        dtype=np.bool_,
    )
    found: Bools = by_set[table.taints]
    return found
