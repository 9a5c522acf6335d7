"""Results of filters, kept for one planning cycle."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.model.plan import NoFit
from scheduler.plugins.numa import gpu_packing

Codes = NDArray[np.uint8]


@dataclass(slots=True)
class Memo:
    """Derived facts of one snapshot, by what they were derived from; bounded."""

    statics: dict[tuple[object, ...], tuple[int, Codes]] = field(default_factory=dict)
    wishes: dict[tuple[object, ...], tuple[tuple[int, int], object]] = field(default_factory=dict)
    loads: dict[tuple[int, ...], tuple[int, NDArray[np.int16]]] = field(default_factory=dict)
    misfits: dict[object, tuple[tuple[int, ...], NoFit]] = field(default_factory=dict)
    islands: gpu_packing.HostIslands = field(default_factory=gpu_packing.HostIslands)
    limit: int = 1024

    def remember(self, where: dict[Any, Any], key: object, value: object) -> None:
        if len(where) >= self.limit:
            where.clear()
        where[key] = value
