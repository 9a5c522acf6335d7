"""A computation in a fork: on the state of its start, beside the event loop, within its time."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from scheduler import fork
from scheduler.fork import ForkError

pytestmark = pytest.mark.timeout(60)


def run(work: Callable[[], Any], seconds: float = 30.0) -> Any:
    return asyncio.run(fork.run(work, seconds=seconds))


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(None, id="none"),
        pytest.param({"group": frozenset({"a", "b"})}, id="a value"),
        pytest.param(b"x" * 1_000_000, id="more than a pipe holds"),
    ],
)
def test_the_result_is_what_the_work_returns(result: Any) -> None:
    assert run(lambda: result) == result


def test_the_work_sees_the_state_of_its_start_and_changes_nothing() -> None:
    state = {"nodes": 1}

    def work() -> int:
        time.sleep(0.2)
        state["nodes"] += 10
        return state["nodes"]

    async def scene() -> tuple[int, int]:
        task = asyncio.create_task(fork.run(work, seconds=30.0))
        await asyncio.sleep(0)
        state["nodes"] = 2
        return await task, state["nodes"]

    assert asyncio.run(scene()) == (11, 2)


def test_the_event_loop_goes_on_meanwhile() -> None:
    async def scene() -> int:
        task = asyncio.create_task(fork.run(lambda: time.sleep(1.0), seconds=30.0))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0.01)
        return turns

    assert asyncio.run(scene()) > 3


@pytest.mark.parametrize(
    ("work", "message"),
    [
        pytest.param(lambda: 1 / 0, "ZeroDivisionError", id="it raises"),
        pytest.param(lambda: os._exit(3), "ended with 0 bytes", id="the process ends"),
        pytest.param(
            lambda: os.kill(os.getpid(), signal.SIGKILL), "ended with 0 bytes", id="it is killed"
        ),
        pytest.param(lambda: lambda: 0, "the computation failed", id="no value to send"),
    ],
)
def test_a_computation_that_fails_is_an_error_of_its_caller(
    work: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ForkError, match=message):
        run(work)


def test_a_computation_that_takes_too_long_is_killed() -> None:
    read, write = os.pipe()

    def work() -> None:
        os.write(1, b"")  # its own descriptors work
        time.sleep(60)

    with pytest.raises(ForkError, match="no result within 1 s"):
        run(work, seconds=0.2)
    os.close(write)
    # The child is gone, and with it every copy of the pipe: the end of the file is read at once.
    assert os.read(read, 1) == b""
    os.close(read)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_computation_has_its_seconds_of_cpu_time() -> None:
    def work() -> None:
        while True:
            pass

    with pytest.raises(ForkError, match="ended with 0 bytes"):
        run(work, seconds=1.0)


def test_a_cancelled_computation_leaves_no_process() -> None:
    async def scene() -> None:
        task = asyncio.create_task(fork.run(lambda: time.sleep(60), seconds=60.0))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_child_holds_no_socket_of_its_parent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> bool:
            try:
                os.fstat(listener.fileno())
            except OSError:
                return False
            return True

        assert run(work) is False
