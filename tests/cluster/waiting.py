"""Waiting for what a cluster does in its own time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0  # how long something may take that a busy machine does late


def eventually(found: Callable[[], T | None], what: str) -> T:
    """The first result that is true; fails with `what` where none comes."""
    end = time.monotonic() + PATIENCE
    while True:
        result = found()
        if result:
            return result
        assert time.monotonic() < end, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(0.1)
