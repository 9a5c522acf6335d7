"""
`kubenexus node`: inspect one node.

    exit 0   the node is described
    exit 1   the API server did not answer; the message says why
    exit 2   there is no such node, or the options are wrong
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
from kubenexus.node import describe as node_view
from kubenexus.node import fetch, render
from scheduler.errors import ModelError

app: Final = typer.Typer(
    name="node",
    help="Inspect one node.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Inspect one node."""


@app.command()
def describe(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The name of the node.")],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for programs.")] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: as kubectl does.")
    ] = None,
) -> None:
    """Show a host's NUMA nodes, GPUs and fabric, the source of each fact, and usage by pods."""
    try:
        answer = node_view.describe(asyncio.run(_fetch(kubeconfig, node)))
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


async def _fetch(kubeconfig: Path | None, name: str) -> fetch.NodeObjects:
    async with Client(connection.load(kubeconfig), component="node") as client:
        return await fetch.fetch(client, name)
