"""Tasks, signals and identity of the process."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def tasks(
    *work: Coroutine[Any, Any, None],
) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that do not outlive the context; more may be added to the list."""
    started = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield started
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def collect_young_garbage() -> None:
    """
    Collect cycles among new objects only, from now on.

    A collection of the whole heap takes a second in a large cluster, in the middle of any step.
    Pods, nodes and units have no cycles: they are freed when the last reference goes.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 1_000_000)
    gc.enable()


def identity() -> str:
    """Host name and process id; `kubenexus why` reads the leader's host name from the lease."""
    return f"{socket.gethostname()}_{os.getpid()}"
