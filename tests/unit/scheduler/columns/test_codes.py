"""Codes of values: equal values have equal codes, and values out of use cost nothing for long."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.columns.codes import CodedColumn


def read(column: CodedColumn[str], rows: int) -> list[str]:
    return [column.values[code] for code in column.codes[:rows]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=300))
def test_each_row_has_its_value_and_few_codes_are_unused(steps: list[tuple[int, int]]) -> None:
    column, rows = CodedColumn("", 5), [""] * 5
    for row, number in steps:
        rows[row] = str(number) if number else ""
        column.set(row, rows[row])
        in_use = {value for value in rows if value}
        assert read(column, 5) == rows
        assert len(column.values) <= 2 * len(in_use) + 16
        assert {column.numbers[value] for value in in_use} <= set(range(1, len(column.values)))
        assert [column.values[code] for code in column.numbers.values()] == [*column.numbers]


def test_new_codes_keep_the_order_and_leave_the_array_of_readers_alone() -> None:
    column = CodedColumn("", 4)
    for row, value in enumerate("zya"):
        column.set(row, value)
    before = column.codes
    for number in range(40):
        column.set(3, str(number))
    assert column.codes is not before
    assert read(column, 3) == ["z", "y", "a"]
    assert list(np.argsort(column.codes[:3])) == [0, 1, 2]
    assert list(before[:3]) == [1, 2, 3]


def test_rows_that_are_added_have_the_base() -> None:
    column = CodedColumn("base", 1)
    column.set(0, "a")
    column.grow(2)
    assert read(column, 3) == ["a", "base", "base"]
