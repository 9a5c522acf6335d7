"""
A short soak: what the scheduler keeps does not grow with what has come and gone.

Caches are not full after a few hours, so `make soak` compares the heap.
"""

import pytest

from tests.bench import soak
from tests.bench.soak import Hour

pytestmark = pytest.mark.timeout(300)


def test_hours_of_churn_leave_containers_flat() -> None:
    hours = soak.run(3, seed=7, heap=False)
    _, items, _ = soak.report(hours)
    assert items.holds, items
    assert all(hour.bound > 300 for hour in hours)


@pytest.mark.parametrize(
    ("last", "holds"),
    [
        pytest.param(Hour(100, 1000, 0.01, 1), [True, True, True], id="flat"),
        pytest.param(Hour(150, 1000, 0.01, 1), [False, True, True], id="the heap grows"),
        pytest.param(Hour(100, 2000, 0.01, 1), [True, False, True], id="a container grows"),
        pytest.param(Hour(100, 1000, 0.03, 1), [True, True, False], id="steps grow"),
    ],
)
def test_what_the_report_says_of_the_last_hours(last: Hour, holds: list[bool]) -> None:
    first = Hour(100, 1000, 0.01, 1)
    rows = soak.report([Hour(10, 10, 1.0, 1), first, first, first, last])
    assert [row.holds for row in rows] == holds
