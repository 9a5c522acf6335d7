"""
`kubenexus why`: one question, one answer, exit code out.

    exit 0   the scheduler answered
    exit 1   nobody could be asked, and the message says what to do
    exit 2   the pod is not known to the scheduler, or the command is at fault
"""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from cluster import errors
from cluster.client import Client
from cluster.connection import connection
from kubenexus.exit_codes import BAD_INPUT, FAILED, end
from kubenexus.why import client as ask
from kubenexus.why import render
from policies import vocabulary

app: Final = typer.Typer(
    name="why",
    help="Say why a pod waits, and what would help.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


@app.command()
def why(
    pod: Annotated[str, typer.Argument(help="pod/NAME, or just NAME.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    url: Annotated[
        str | None,
        typer.Option(
            envvar="KUBENEXUS_SCHEDULER_URL",
            help="The scheduler's address; default: the leading replica, through the API server.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: as kubectl does.")
    ] = None,
    system_namespace: Annotated[
        str, typer.Option(help="Where the scheduler is installed.")
    ] = vocabulary.SYSTEM_NAMESPACE,
    output: Annotated[Output, typer.Option("--output", "-o", help="text or json.")] = Output.TEXT,
) -> None:
    """Say why a pod waits: reasons, the nearest node, and what alone would make it fit."""
    kind, slash, name = pod.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise end(f"{pod!r} is no pod: want pod/NAME", BAD_INPUT)
    wanted = f"{namespace}/{name}"
    try:
        answer = (
            ask.at(url, wanted) if url else asyncio.run(_ask(kubeconfig, wanted, system_namespace))
        )
    except errors.ConfigError as exc:
        raise end(str(exc), BAD_INPUT) from exc
    except (ask.AskError, errors.ClusterError) as exc:
        raise end(str(exc), FAILED) from exc
    if answer.get("error"):
        raise end(str(answer["error"]), BAD_INPUT)
    if output is Output.JSON:
        typer.echo(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())
        return
    for line in render.lines(answer):
        typer.echo(line)


async def _ask(kubeconfig: Path | None, pod: str, namespace: str) -> ask.Answer:
    async with Client(connection.load(kubeconfig), component="why") as client:
        return await ask.through(client, pod, namespace=namespace)
