"""
Inter-pod affinity and topology spread as one plugin.

    selector_index             which selectors in use select a pod
    pod_counts                 how many pods a selector selects on each row
    existing_terms             the affinity terms of the pods on rows
    topology_spread, affinity  filters and scores over these counts
    default_spread             spread constraints of pods without their own

`charge` updates the counts at once and `uncharge` restores them exactly, so the members of a gang
see each other within one plan. A pod that no selector selects costs one lookup per label.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler import bounded
from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.feed import Feed
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_affinity import NO_INTER_POD, InterPodConstraints
from scheduler.plugins.interpod import informers
from scheduler.plugins.interpod.affinity import InterPodAffinity
from scheduler.plugins.interpod.default_spread import DefaultSpread
from scheduler.plugins.interpod.existing_terms import ExistingTerms
from scheduler.plugins.interpod.pod_counts import PodCounts
from scheduler.plugins.interpod.selector_index import Labels, NamespaceLabels
from scheduler.plugins.interpod.topology_spread import TopologySpread
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation

WEIGHT: Final = 2
_CACHE_SIZE: Final = 1024


class InterPod(Plugin):
    """kube-scheduler's PodTopologySpread and InterPodAffinity."""

    events = frozenset({POD_EVENT, "Namespace"})

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.defaults = DefaultSpread()
        self._namespaces = NamespaceLabels()
        self._counts = PodCounts(table, self._namespaces)
        self._existing = ExistingTerms(self._namespaces)
        self._spread = TopologySpread(table, self._counts)
        self._affinity = InterPodAffinity(table, self._counts, self._existing)
        self._prepared: dict[InterPodConstraints, int] = {}  # -> the epoch of its counts

    def feeds(self) -> Iterator[Feed]:
        yield informers.namespaces(self)
        yield from informers.workloads(self.defaults)

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._counts.charge(pod, row)
        if pod.spec.inter_pod is not NO_INTER_POD:
            self._existing.charge(pod.spec.inter_pod, row)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._counts.uncharge(pod, row)
        if pod.spec.inter_pod is not NO_INTER_POD:
            self._existing.uncharge(pod.spec.inter_pod, row)

    def drop(self, row: int) -> None:
        self._counts.drop(row)
        self._existing.drop(row)

    def state(self, row: int) -> tuple[object, ...]:
        return self._counts.on(row), self._existing.on(row)

    def put_namespace(self, name: str, labels: Labels) -> bool:
        """Set the labels that namespace selectors match. True when something changed."""
        return self._namespaces.put(name, labels) and self._renew()

    def drop_namespace(self, name: str) -> bool:
        return self._namespaces.drop(name) and self._renew()

    def _renew(self) -> bool:
        self._counts.forget()
        self._existing.renew()
        return True

    # --- filters ---

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        if not self.depends_on_pods(pod):
            return
        kind = self._counts.kind(pod)
        left = rows
        for reason, rejected in self._spread.filter(pod, kind, rows):
            left = left & ~rejected
            yield reason, rejected
        yield from self._affinity.filter(pod, kind, left)

    def depends_on_pods(self, pod: Pod) -> bool:
        """By the pod's own constraints, or by anti-affinity of the pods on rows."""
        if pod.spec.inter_pod.is_hard:
            return True
        if not len(self._existing):
            return False
        return self._affinity.excluded_by_existing(self._counts.kind(pod))

    def signature(self, pod: Pod) -> tuple[int, ...]:
        """The selectors in use that select the pod, and the existing terms, as negative numbers."""
        self._prepare(pod)
        if not (len(self._counts) or len(self._existing)):
            return ()
        kind = self._counts.kind(pod)
        counted = sorted(count.number for count in kind.counts)
        # Terms are numbered apart from counts: the sign keeps the two from being mixed up.
        return (*counted, *sorted(-term.number for term in self._existing.selecting(kind)))

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        if spec.inter_pod != NO_INTER_POD:
            relaxed = replace(spec, inter_pod=NO_INTER_POD)
            yield "drop the pod affinity and topology spread", relaxed

    # --- scores ---

    def score(self, pod: Pod, rows: Bools) -> Ints | None:
        parts = self.scores(pod, rows)
        return None if parts is None else WEIGHT * parts[0] + WEIGHT * parts[1]

    def scores(self, pod: Pod, rows: Bools) -> tuple[Ints, Ints] | None:
        """(spread, affinity), each 0 to 100 over the rows, 0 elsewhere; None: nothing applies."""
        constraints = pod.spec.inter_pod
        own = constraints.soft_spread
        spread: Ints | None = None
        if soft := own or (() if constraints.hard_spread else self.defaults.of(pod)):
            spread = self._spread.score(pod, rows, soft, every_key=bool(own))
        affinity: Ints | None = None
        if constraints.preferred or len(self._existing):
            affinity = self._affinity.score(pod, self._counts.kind(pod), rows)
        if spread is None and affinity is None:
            return None
        nothing = np.zeros(len(rows), dtype=np.int64)
        return (
            nothing if spread is None else spread,
            nothing if affinity is None else affinity,
        )

    def _prepare(self, pod: Pod) -> None:
        """Open the counts of the pod's own constraints, which may select the pod itself."""
        constraints = pod.spec.inter_pod
        if constraints is NO_INTER_POD or self._prepared.get(constraints) == self._counts.epoch:
            return
        self._spread.prepare(pod)
        self._affinity.prepare(pod)
        bounded.remember(self._prepared, constraints, self._counts.epoch, _CACHE_SIZE)
