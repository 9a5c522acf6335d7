"""Policies by which the scheduler computes in forks, however little there is to compute."""

import asyncio
import pickle
from collections.abc import Callable
from typing import Final, TypeVar

from scheduler import fork
from scheduler.fork import ForkPolicy

T = TypeVar("T")

ALWAYS: Final = -1  # a budget that every computation exceeds


async def at_once(work: Callable[[], T], *, seconds: float) -> T:
    """Without a process, for work that leaves the state as it was: the result arrives later, as a
    copy."""
    result: T = pickle.loads(pickle.dumps(work()))
    for _ in range(3):
        await asyncio.sleep(0)
    return result


EVERYTHING_IN_FORKS: Final = ForkPolicy(fork.run, after=ALWAYS, pods_in_loop=ALWAYS)
