"""
Pods and the pods around them: (anti-)affinity and topology spread.

    selectors, kinds    which selectors in use select a pod
    counts              how many pods a selector selects on each row
    owners              the terms of pods that are on rows
    spread, affinity    the rules over these numbers
    defaults            the spreading that nobody wrote down

Placing a pod changes the numbers at once, taking it back restores them exactly; so the members of a
gang see each other inside a plan. A pod that no selector selects costs one look at its labels.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints, NodeTable
from scheduler.model.assignment import Assignment
from scheduler.model.pod import Pod, SchedulingSpec
from scheduler.model.pod_affinity import NO_INTER_POD, InterPodConstraints
from scheduler.plugins.interpod.affinity import InterPodAffinity
from scheduler.plugins.interpod.default_spread import DefaultSpread
from scheduler.plugins.interpod.existing_terms import ExistingTerms
from scheduler.plugins.interpod.pod_counts import PodCounts
from scheduler.plugins.interpod.selector_index import Labels, NamespaceLabels
from scheduler.plugins.interpod.topology_spread import TopologySpread
from scheduler.plugins.protocol import POD_EVENT, Plugin, Rejection, Relaxation

WEIGHT: Final = 2
_KEPT: Final = 1024


class InterPod(Plugin):
    """kube-scheduler's PodTopologySpread and InterPodAffinity."""

    events = frozenset({POD_EVENT, "Namespace"})

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.defaults = DefaultSpread()
        self._namespaces = NamespaceLabels()
        self._counts = PodCounts(table, self._namespaces)
        self._owners = ExistingTerms(self._namespaces)
        self._spreading = TopologySpread(table, self._counts)
        self._nearness = InterPodAffinity(table, self._counts, self._owners)
        self._prepared: dict[InterPodConstraints, int] = {}  # wish -> the epoch of its counts

    # --- state ---

    def charge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._counts.take(pod, row)
        if pod.spec.inter_pod is not NO_INTER_POD:
            self._owners.take(pod.spec.inter_pod, row)

    def uncharge(self, pod: Pod, row: int, assignment: Assignment) -> None:
        self._counts.give(pod, row)
        if pod.spec.inter_pod is not NO_INTER_POD:
            self._owners.give(pod.spec.inter_pod, row)

    def drop(self, row: int) -> None:
        self._counts.drop(row)
        self._owners.drop(row)

    def state(self, row: int) -> tuple[object, ...]:
        return self._counts.on(row), self._owners.on(row)

    def put_namespace(self, name: str, labels: Labels) -> bool:
        """Namespace selectors are answered by these labels. True when something changed."""
        return self._namespaces.put(name, labels) and self._renew()

    def drop_namespace(self, name: str) -> bool:
        return self._namespaces.drop(name) and self._renew()

    def _renew(self) -> bool:
        self._counts.forget()
        self._owners.renew()
        return True

    # --- filters ---

    def filter(self, pod: Pod, rows: Bools) -> Iterator[Rejection]:
        if not self.depends_on_pods(pod):
            return
        kind = self._counts.kind(pod)
        left = rows
        for reason, refused in self._spreading.refuse(pod, kind, rows):
            left = left & ~refused
            yield reason, refused
        yield from self._nearness.refuse(pod, kind, left)

    def depends_on_pods(self, pod: Pod) -> bool:
        """Whether where this pod may go depends on other pods: by its own wish or by theirs."""
        if pod.spec.inter_pod.binding:
            return True
        return bool(len(self._owners)) and self._nearness.keeps_out(self._counts.kind(pod))

    def signature(self, pod: Pod) -> tuple[int, ...]:
        """Which known selectors match the pod: pods of one shape and signature are alike."""
        self._prepare(pod)
        if not (len(self._counts) or len(self._owners)):
            return ()
        kind = self._counts.kind(pod)
        counted = sorted(count.number for count in kind.counts)
        return (*counted, *sorted(-owned.number for owned in self._owners.about(kind)))

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
        wish = pod.spec.inter_pod
        spread: Ints | None = None
        if soft := wish.soft or (() if wish.hard else self.defaults.of(pod)):
            spread = self._spreading.score(pod, rows, soft, every_key=bool(wish.soft))
        near: Ints | None = None
        if wish.preferred or len(self._owners):
            near = self._nearness.score(pod, self._counts.kind(pod), rows)
        if spread is None and near is None:
            return None
        nothing = np.zeros(len(rows), dtype=np.int64)
        return nothing if spread is None else spread, nothing if near is None else near

    def _prepare(self, pod: Pod) -> None:
        """The counts that the pod's own wish asks for, so that it is known which it is part of."""
        wish = pod.spec.inter_pod
        if wish is NO_INTER_POD or self._prepared.get(wish) == self._counts.epoch:
            return
        if len(self._prepared) >= _KEPT:
            self._prepared.clear()
        self._spreading.prepare(pod)
        self._nearness.prepare(pod)
        self._prepared[wish] = self._counts.epoch
