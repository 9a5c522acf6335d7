"""Images: nodes that have the pod's images already. An image counts by its size and its spread."""

from collections.abc import Hashable
from typing import Final

import numpy as np

from scheduler.columns.node_table import Ints
from scheduler.model.pod import SchedulingSpec
from scheduler.plugins.protocol import MAX_SCORE, Plugin

_LEAST_IMAGE: Final = 23 * 2**20
_MOST_IMAGE: Final = 1000 * 2**20


class ImageLocality(Plugin):
    """kube-scheduler's ImageLocality, with weight 1."""

    def static_score_key(self, spec: SchedulingSpec) -> Hashable:
        return spec.node_constraints.images

    def static_score(self, spec: SchedulingSpec) -> Ints | None:
        """An image on few nodes counts less, or all pods would go where it was pulled first."""
        table, names = self._table, spec.node_constraints.images
        if not names:
            return None
        total = np.zeros(len(table.alive), dtype=np.int64)
        for name in names:
            image = table.images.on(name)
            if image is not None:
                size, rows = image
                total[rows] += int(size * (len(rows) / len(table)))
        most = _MOST_IMAGE * len(names)
        if total.max(initial=0) <= _LEAST_IMAGE:
            return None
        return (
            MAX_SCORE * (np.clip(total, _LEAST_IMAGE, most) - _LEAST_IMAGE) // (most - _LEAST_IMAGE)
        )
