"""A loop in a thread: any thread submits work, and nothing is left behind."""

import asyncio
import threading

import pytest

from cluster.errors import ClusterError, Retry
from cluster.loop_thread import BackgroundLoop


async def where() -> str:
    return threading.current_thread().name


async def forever() -> None:
    await asyncio.Event().wait()


async def fail(error: BaseException) -> None:
    raise error


def test_work_runs_in_the_thread_and_the_thread_ends() -> None:
    with BackgroundLoop("apiserver") as loop:
        got = (loop.run(where()), loop.running)
    names = [thread.name for thread in threading.enumerate()]
    assert (got, loop.running, "apiserver" in names) == (("apiserver", True), False, False)


def test_an_error_of_the_work_reaches_the_caller() -> None:
    with BackgroundLoop() as loop, pytest.raises(ZeroDivisionError):
        loop.run(fail(ZeroDivisionError()))


def test_a_timeout_of_the_work_itself_is_not_taken_for_a_late_one() -> None:
    with BackgroundLoop() as loop, pytest.raises(TimeoutError, match="own"):
        loop.run(fail(TimeoutError("own")), timeout=10)


def test_work_that_takes_too_long_is_cancelled() -> None:
    with BackgroundLoop() as loop, pytest.raises(Retry, match=r"no result in 0\.01 s"):
        loop.run(forever(), timeout=0.01)


def test_stopping_cancels_what_still_runs() -> None:
    with BackgroundLoop() as loop:
        future = loop.submit(forever())
    assert future.cancelled()


def test_stopping_twice_and_starting_again() -> None:
    loop = BackgroundLoop("again")
    loop.start()
    loop.start()
    loop.stop()
    loop.stop()
    loop.start()
    got = loop.run(where())
    loop.stop()
    assert got == "again"


def test_a_loop_that_does_not_run() -> None:
    with pytest.raises(ClusterError, match="start it first"):
        BackgroundLoop().submit(where())
