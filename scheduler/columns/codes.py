"""
A column of values as codes: rows with equal values have equal codes.

    row    0  1  2  3           code   0     1     2
    codes  1  0  1  2           value  base  "a"   "b"

Filters compare a pod with each value once, and read the result off for all rows by its code. A code
whose value no row has any more stays until such codes outnumber the others. Then the column gives
new codes to the values in use, in the same order, in a new array. A change of a row must therefore
invalidate what was derived from codes: `NodeTable` counts it in `statics`.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

K = TypeVar("K", bound=Hashable)

_SPARE: Final = 16  # codes beyond twice those in use


class CodedColumn(Generic[K]):
    """`base` is the value of new rows, and always has the code 0."""

    def __init__(self, base: K, size: int) -> None:
        self.codes: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        self.values: list[K] = [base]  # by code
        self.numbers: dict[K, int] = {}  # value -> code, without the base
        self._base = base
        self._rows = [0]  # code -> number of rows that have it; not counted for the base
        self._in_use = 0  # codes that a row has, without the base

    def set(self, row: int, value: K) -> None:
        old = self.codes.item(row)
        if self.values[old] == value:
            return
        if old:
            self._rows[old] -= 1
            self._in_use -= not self._rows[old]
        if value == self._base:
            self.codes[row] = 0
        else:
            code = self.numbers.setdefault(value, len(self.values))
            if code == len(self.values):
                self.values.append(value)
                self._rows.append(0)
            self._in_use += not self._rows[code]
            self._rows[code] += 1
            self.codes[row] = code
        if len(self.values) > 2 * self._in_use + _SPARE:
            self._renumber()

    def reset(self, row: int) -> None:
        """The row is free: another node may use it."""
        self.set(row, self._base)

    def grow(self, extra: int) -> None:
        self.codes = np.concatenate([self.codes, np.zeros(extra, dtype=np.int32)])

    def _renumber(self) -> None:
        used = [0, *(code for code in range(1, len(self.values)) if self._rows[code])]
        renumbered = np.zeros(len(self.values), dtype=np.int32)
        renumbered[used] = np.arange(len(used), dtype=np.int32)
        self.codes = renumbered[self.codes]
        self.values = [self.values[code] for code in used]
        self.numbers = {value: code for code, value in enumerate(self.values) if code}
        self._rows = [self._rows[code] for code in used]
