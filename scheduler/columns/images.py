"""
Which images are on which rows: what a node need not pull before a pod can start there.

As in kube-scheduler an image has one size, that of the node which was first to name it. `changes`
counts what moved: whatever was derived from images holds while it stands still.
"""

from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler.model.node import Image


class ImageIndex:
    def __init__(self) -> None:
        self.changes = 0
        self._sizes: dict[str, int] = {}
        self._rows: dict[str, array[int]] = {}  # in no order, each row once

    def move(self, row: int, old: Iterable[Image], new: Iterable[Image]) -> None:
        """The row has the new ones in place of the old ones."""
        before, after = dict(old), dict(new)
        if before == after:
            return
        self.changes += 1
        for name in before.keys() - after.keys():
            self._remove(name, row)
        for name, size in after.items():
            if name in before:
                continue
            self._sizes.setdefault(name, size)
            self._rows.setdefault(name, array("q")).append(row)

    def on(self, name: str) -> tuple[int, NDArray[np.int64]] | None:
        """The image's size and the rows that have it; None when no node has it."""
        found = self._rows.get(name)
        return None if found is None else (self._sizes[name], np.array(found, dtype=np.int64))

    def _remove(self, name: str, row: int) -> None:
        rows_of = self._rows[name]
        rows_of.remove(row)
        if not rows_of:
            del self._rows[name], self._sizes[name]
