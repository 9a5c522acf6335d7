"""
The scheduler as a process: its options, its wiring, its end.

    connection ──▶ client ──▶ informers (pods, nodes, ──▶ Scheduler ──▶ client (binds, conditions,
                              storage, namespaces, …)        │            gates, releases, claims)
                                                             └────────▶ recorder (events)

    start ──▶ watch ──all in sync──▶ [leader] ──▶ plan ──SIGTERM──▶ binds in flight end ──▶ stop

A standby watches too, so that it starts from a warm cache when it becomes leader. A leader that
loses its lease ends with an error: another one may be at work, and a fresh process is the surest
way to hold no belief of the time before. Whether it leads is asked of the clock before every write,
so that one that was frozen writes nothing when it wakes.
"""

import asyncio
import gc
import logging
import sys
from contextlib import AsyncExitStack
from typing import Final

from cluster import errors
from cluster.client import Client
from cluster.connection import connection
from cluster.events.recorder import Recorder
from scheduler.options import Options
from scheduler.serve import http_server, process
from scheduler.wiring import LeaseLost, Wiring

__all__ = ["LeaseLost", "Options", "main", "run"]

logger = logging.getLogger(__name__)

_LAST_BINDS: Final = 5.0  # seconds that binds in flight have after the process gets SIGTERM
_LONG_START: Final = 30.0  # seconds


def main(options: Options) -> int:
    """Run until asked to end. 0: as asked; 1: lease lost or port taken; 2: no usable connection."""
    try:
        asyncio.run(run(options))
    except errors.ConfigError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    except LeaseLost as exc:
        logger.error("leadership lost", extra={"error": str(exc)})
        return 1
    except OSError as exc:
        where = f"{options.host}:{options.port}"
        print(f"error: cannot serve on {where}: {exc}; choose another --port", file=sys.stderr)
        return 1
    return 0


async def run(options: Options) -> None:
    """Watch, plan and bind until SIGTERM or SIGINT."""
    gc.disable()  # until the first lists are in, or for a while: nothing of them is garbage
    asyncio.get_running_loop().call_later(_LONG_START, gc.enable)
    connection_config = connection.load(options.kubeconfig)
    stop = process.stop_on_signals()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(connection_config, component="scheduler"))
        recorder = await stack.enter_async_context(
            Recorder(client, controller=options.scheduler_name, instance=process.identity())
        )
        parts = Wiring(options, client, recorder)
        await stack.enter_async_context(
            http_server.serve(
                http_server.create_app(
                    metrics=parts.metrics, missing=parts.missing, explain=parts.scheduler.explain
                ),
                host=options.host,
                port=options.port,
            )
        )
        await _until(stop, parts)


async def _until(stop: asyncio.Event, parts: "Wiring") -> None:
    """Run the parts until `stop`, or until one of them ends, which is an error."""
    async with process.tasks(*parts.background()) as tasks:
        tasks.append(asyncio.create_task(parts.lead(), name="lead"))
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for task in done - {stopping}:
            task.result()
        logger.info("ending", extra={"binding": parts.scheduler.binding})
        await parts.scheduler.finish(_LAST_BINDS)
