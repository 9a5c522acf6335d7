"""
Which images are on which rows, for the ImageLocality score.

As in kube-scheduler an image has one size, that of the first node that reports it. `changes` counts
the changes: values derived from images are valid while it stays the same.
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
        self._rows: dict[str, array[int]] = {}  # unordered, each row once

    def move(self, row: int, old: Iterable[Image], new: Iterable[Image]) -> None:
        """Replace the images of a row."""
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
        rows = self._rows.get(name)
        return None if rows is None else (self._sizes[name], np.array(rows, dtype=np.int64))

    def _remove(self, name: str, row: int) -> None:
        rows = self._rows[name]
        rows.remove(row)
        if not rows:
            del self._rows[name], self._sizes[name]
