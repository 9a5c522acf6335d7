"""
Runs a long computation in a forked process, beside the event loop.

    event loop ──fork──▶ child: computes, writes its result to a pipe, exits
        │                                  │
        │ watches, binds, lease renewals   │ killed after `seconds`
        ◀────────────── result ────────────┘

The child has the whole state of the scheduler at the moment of the fork, and no later change
reaches it: a consistent snapshot that costs a copy of the page tables. A result describes the
cluster of that moment, so the caller confirms it against the present one before it acts on it. The
child has no files, sockets or signal handlers of its parent, and never returns into its event loop.
"""

import asyncio
import contextlib
import gc
import math
import os
import pickle
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol, TypeVar

T = TypeVar("T")

MAX_RESULT: Final = 64 * 1024 * 1024  # bytes
_NICENESS: Final = 5  # the event loop goes first
_CHUNK: Final = 65536
_WALL: Final = 5.0  # times the CPU time


class Fork(Protocol):
    """What callers of `run` declare, so that tests can compute without a process."""

    async def __call__(self, work: Callable[[], T], *, seconds: float) -> T: ...


@dataclass(frozen=True, slots=True)
class ForkPolicy:
    """When the event loop gives a computation to a fork, and how long that may take."""

    run: Fork
    after: float = 0.02
    """Seconds of CPU time in the event loop."""
    seconds: float = 60.0
    """After these, of CPU time, the computation is abandoned."""
    pods_in_loop: int = 1000
    """On nodes: what visits more pods than these goes to a fork at once."""


class ForkError(Exception):
    """The computation gave no result: it took too long, failed, or no process could be made."""


async def run(work: Callable[[], T], *, seconds: float) -> T:
    """
    What `work` returns, computed on the state of now. Its result must be picklable.

    It has `seconds` of CPU time, and a multiple of that by the clock: on a busy machine it waits.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise ForkError(f"no process could be made: {error}") from error
    if child == 0:
        _compute(work, writing, seconds)
    os.close(writing)
    result: T = await _result(child, reading, seconds)
    return result


def _compute(work: Callable[[], Any], writing: int, seconds: float) -> NoReturn:
    """The whole life of the child."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(math.ceil(_WALL * seconds) + 1)  # if the parent is gone by then
        limit = math.ceil(seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        _close_all_but(writing)
        os.nice(_NICENESS)
        gc.disable()
        try:
            answer = pickle.dumps((True, work()))
        except BaseException:  # the parent raises it
            answer = pickle.dumps((False, traceback.format_exc()))
        while answer:
            answer = answer[os.write(writing, answer[:_CHUNK]) :]
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """Files and sockets of the parent; a limit on their number may be a billion in a container."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the one that listed the folder is closed already
                os.close(int(name))


async def _result(child: int, reading: int, seconds: float) -> Any:
    loop = asyncio.get_running_loop()
    os.set_blocking(reading, False)
    ended: asyncio.Future[None] = loop.create_future()
    answer = bytearray()

    def readable() -> None:
        try:
            chunk = os.read(reading, _CHUNK)
        except BlockingIOError:
            return
        answer.extend(chunk)
        if (not chunk or len(answer) > MAX_RESULT) and not ended.done():
            ended.set_result(None)

    loop.add_reader(reading, readable)
    try:
        async with asyncio.timeout(_WALL * seconds):
            await ended
    except TimeoutError as error:
        raise ForkError(f"no result within {_WALL * seconds:g} s") from error
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return _decoded(bytes(answer))


def _decoded(answer: bytes) -> Any:
    try:
        succeeded, result = pickle.loads(answer)
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError) as error:
        raise ForkError(f"the process ended with {len(answer)} bytes of a result") from error
    if not succeeded:
        raise ForkError(f"the computation failed:\n{result}")
    return result
