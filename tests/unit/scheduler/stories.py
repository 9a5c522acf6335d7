"""Story tables: the expectation of a story stands above its steps."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

Steps = TypeVar("Steps", bound=Callable[..., Any])


class Stories:
    """
    Rows of a parametrized test, added by decorators.

        story = Stories()

        @story("low", "new", id="a lower priority is evicted")
        async def lower_priority(bench: Bench) -> None: ...

        @pytest.mark.parametrize(("steps", "evicted", "placed"), story.rows)
    """

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def __call__(self, *expected: Any, id: str) -> Callable[[Steps], Steps]:
        def add(steps: Steps) -> Steps:
            self.rows.append(pytest.param(steps, *expected, id=id))
            return steps

        return add
