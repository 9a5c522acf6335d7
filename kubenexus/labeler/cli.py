"""
`kubenexus labeler`: runs on every node.

    exit 0   `--once` is done, or a signal stopped it
    exit 1   the host or the API server could not be read with `--once`; the message says why
    exit 2   the options are wrong

Without `--once` a failure is logged and retried at the next interval; the node keeps its labels.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from cluster import errors
from cluster.client import Client
from cluster.connection import connection
from kubenexus import json_logs
from kubenexus.exit_codes import BAD_INPUT, FAILED, end
from kubenexus.labeler import labels, sync, sysfs
from kubenexus.labeler.sysfs import Host

logger = logging.getLogger(__name__)


app: Final = typer.Typer(
    name="labeler",
    help="Publish a host's NUMA nodes and GPUs on its Node object.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def labeler(
    node: Annotated[
        str | None,
        typer.Option(envvar="NODE_NAME", help="The name of the Node object of this host."),
    ] = None,
    sys_root: Annotated[Path, typer.Option("--sys", help="Where the host's /sys is.")] = sysfs.ROOT,
    proc_root: Annotated[
        Path, typer.Option("--proc", help="Where the host's /proc is.")
    ] = sysfs.PROC,
    every: Annotated[
        float, typer.Option(min=1.0, help="Seconds between two reads of the host.")
    ] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Read and write once, then exit.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be written; needs no cluster.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: in-cluster.")
    ] = None,
) -> None:
    """Write a host's NUMA nodes and GPUs to its Node object when they change."""
    if dry_run:
        raise typer.Exit(_show(sys_root, proc_root))
    if not node:
        raise end("the node is unknown; pass --node, or set NODE_NAME", BAD_INPUT)
    json_logs.configure(sys.stderr)
    try:
        read = partial(sysfs.read, sys_root, proc_root)
        asyncio.run(_run(kubeconfig, node, read, every=None if once else every))
    except errors.ConfigError as exc:
        raise end(str(exc), BAD_INPUT) from exc
    except (sysfs.SysfsError, errors.ClusterError) as exc:
        raise end(str(exc), FAILED) from exc


def _show(root: Path, proc: Path) -> int:
    try:
        host = sysfs.read(root, proc)
    except sysfs.SysfsError as exc:
        raise end(str(exc), FAILED) from exc
    metadata = {"labels": labels.labels(host), "annotations": labels.annotations(host)}
    typer.echo(orjson.dumps(metadata, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())
    return 0


async def _run(
    kubeconfig: Path | None, node: str, read: Callable[[], Host], *, every: float | None
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(connection.load(kubeconfig), component="labeler") as client:
        while not stop.is_set():
            try:
                if await sync.sync(client, node, read()):
                    logger.info("wrote node labels", extra={"node": node})
            except (sysfs.SysfsError, errors.KubeError) as exc:
                if every is None:
                    raise
                logger.error("cannot write node labels", extra={"node": node, "error": str(exc)})
            if every is None:
                return
            try:
                async with asyncio.timeout(every):
                    await stop.wait()
            except TimeoutError:
                continue
