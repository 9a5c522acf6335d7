"""
Sums of amounts in an int64 column: they saturate, and come back exactly.

    column[row] + change   within ±LARGEST  ──▶ the column holds the sum
                           beyond           ──▶ the column holds the bound, `beyond` the rest

Pods that other schedulers bound may request any amount, and any number of them may be on one node.
A column that wrapped would show free capacity where there is none. The rest is kept, so that
charging a pod and releasing it leaves the column as it was. Arithmetic on a column may multiply it
by a hundred before it leaves an int64.
"""

import numpy as np
from numpy.typing import NDArray

from scheduler.model.resources import LARGEST

Ints = NDArray[np.int64]


class SaturatingSums:
    """Changes the cells of columns, which are told apart by a name."""

    def __init__(self) -> None:
        self.beyond: dict[tuple[str, int], int] = {}  # column, row -> what the cell cannot hold

    def __len__(self) -> int:
        return len(self.beyond)

    def add(self, column: Ints, name: str, row: int, change: int) -> None:
        total = column.item(row) + change
        if self.beyond:
            total += self.beyond.pop((name, row), 0)
        if not -LARGEST <= total <= LARGEST:
            bound = LARGEST if total > 0 else -LARGEST
            self.beyond[name, row] = total - bound
            total = bound
        column[row] = total

    def exact(self, column: Ints, name: str, row: int) -> int:
        """The sum of all changes of the cell."""
        return column.item(row) + self.beyond.get((name, row), 0)

    def drop(self, row: int) -> None:
        """The row is free: another node may use it."""
        for cell in [cell for cell in self.beyond if cell[1] == row]:
            del self.beyond[cell]
