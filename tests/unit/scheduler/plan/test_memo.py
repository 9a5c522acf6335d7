"""Memoised results are bounded, and those in use are kept."""

import numpy as np
import pytest

from scheduler.model.plan import NoFit
from scheduler.plan.memo import Memo, StaticFilters


def filters_of(rows: int) -> StaticFilters:
    return StaticFilters(np.zeros(rows, dtype=np.bool_), {})


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        pytest.param(1024, 4096, id="few nodes: the number of values is bounded"),
        pytest.param(16_384, 2048, id="10,000 nodes: their bytes are bounded"),
        pytest.param(2**24, 64, id="a few are kept at any size"),
    ],
)
def test_results_of_static_filters_are_bounded(rows: int, kept: int) -> None:
    memo, filters = Memo(), filters_of(rows)
    for number in range(5000):
        memo.remember_filters((number,), 0, filters)
    assert (len(memo.static_filters), next(iter(memo.static_filters))) == (kept, (5000 - kept,))


def test_a_result_in_use_stays_while_thousands_of_others_come_and_go() -> None:
    memo, filters = Memo(), filters_of(64)
    memo.remember_filters(("used",), 0, filters)
    for number in range(20_000):
        memo.remember_filters((number,), 0, filters)
        assert memo.kept(memo.static_filters, ("used",)) is not None


def test_misfits_are_bounded() -> None:
    memo = Memo()
    for number in range(5000):
        memo.remember_misfit(number, (0,), NoFit())
    assert len(memo.misfits) == 4096
