"""
`kubenexus node`: one node, looked at closely.

    exit 0   the node is described
    exit 1   the API server could not be asked, and the message says why
    exit 2   there is no such node, or the command is at fault
"""

import asyncio
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from cluster import errors
from cluster.client import Client
from cluster.connection import connection
from kubenexus.exit_codes import BAD_INPUT, FAILED, end
from kubenexus.node import fetch, render
from kubenexus.node.describe import view
from scheduler.errors import ModelError

app: Final = typer.Typer(
    name="node",
    help="Look at one node closely.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Look at one node closely."""


@app.command()
def describe(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for programs.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: as kubectl does.")
    ] = None,
) -> None:
    """Show a host's NUMA nodes, GPUs and fabric, where each fact is from, and who holds what."""
    try:
        answer = view(asyncio.run(_gather(kubeconfig, node)))
    except errors.ConfigError as exc:
        raise end(str(exc), BAD_INPUT) from exc
    except errors.Gone as exc:
        raise end(f"there is no node {node!r}; see `kubectl get nodes`", BAD_INPUT) from exc
    except (errors.ClusterError, ModelError) as exc:
        raise end(str(exc), FAILED) from exc
    if as_json:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
        return
    for line in render.lines(answer):
        typer.echo(line)


async def _gather(kubeconfig: Path | None, name: str) -> fetch.Found:
    async with Client(connection.load(kubeconfig), component="node") as client:
        return await fetch.gather(client, name)
