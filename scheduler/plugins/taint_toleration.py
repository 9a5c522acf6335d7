"""
Taints: nodes that are cordoned or tainted against the pod, and fewer soft taints as a score.

The table numbers the different sets of taints, and there are only a handful of them: each set is
compared with the pod's tolerations once, and the result is read off for all rows.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.columns.node_table import Bools, Ints
from scheduler.model.pod import SchedulingSpec
from scheduler.model.taints import CORDON, Taint, Toleration, tolerated
from scheduler.plugins.protocol import MAX_SCORE, Plugin, Rejection, Relaxation

UNSCHEDULABLE: Final = "node(s) were unschedulable"
TAINTED: Final = "node(s) had untolerated taint(s)"
WEIGHT: Final = 3


_CORDONED: Final = Taint(CORDON)
_EVERYTHING: Final = (Toleration(operator="Exists"),)


class TaintToleration(Plugin):
    """kube-scheduler's NodeUnschedulable and TaintToleration."""

    def static_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.tolerations

    def static_filter(self, spec: SchedulingSpec) -> Iterator[Rejection]:
        table = self._table
        cordoned = np.array(
            [
                unschedulable and not tolerated(_CORDONED, spec.tolerations)
                for _, unschedulable in table.taint_sets
            ],
            dtype=np.bool_,
        )
        tainted = np.array(
            [
                any(not tolerated(taint, spec.tolerations) for taint in taints)
                for taints, _ in table.taint_sets
            ],
            dtype=np.bool_,
        )
        yield UNSCHEDULABLE, cordoned[table.taints]
        # The API server taints a cordoned node as well: one reason is enough.
        yield TAINTED, (tainted & ~cordoned)[table.taints]

    def static_score_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.tolerations

    def static_score(self, spec: SchedulingSpec) -> Ints | None:
        """The number of soft taints on each row that the pod does not tolerate."""
        table = self._table
        counts = np.array(
            [
                sum(not tolerated(taint, spec.tolerations) for taint in taints)
                for taints in table.soft_taint_sets
            ],
            dtype=np.int64,
        )
        return counts[table.soft_taints] if counts.any() else None

    def normalize(self, points: Ints, rows: Bools) -> Ints | None:
        worst = int(points.max(where=rows, initial=0))
        return WEIGHT * (MAX_SCORE - MAX_SCORE * points // worst) if worst else None

    def relaxations(self, spec: SchedulingSpec) -> Iterator[Relaxation]:
        yield "tolerate the taints", replace(spec, tolerations=_EVERYTHING)
