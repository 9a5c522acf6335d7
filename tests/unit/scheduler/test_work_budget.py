"""A budget of CPU time: exceeded by time alone, and never where there is no limit."""

import pytest

from scheduler.work_budget import UNLIMITED, BudgetExceeded, WorkBudget


def test_the_budget_counts_from_its_start() -> None:
    now = 5.0
    budget = WorkBudget(0.5, clock=lambda: now)
    now = 5.5
    budget.check()
    now = 5.51
    with pytest.raises(BudgetExceeded):
        budget.check()


def test_no_limit_is_never_exceeded() -> None:
    UNLIMITED.check()
    assert (UNLIMITED.limited, WorkBudget(1.0).limited) == (False, True)
