"""
The command `kubenexus why`.

    exit 0   the scheduler responded
    exit 1   no scheduler could be reached; the message tells what to do
    exit 2   the scheduler does not know the pod, or the command line is wrong
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
from kubenexus.output import Output
from kubenexus.why import client, render
from policies import vocabulary

app: Final = typer.Typer(
    name="why",
    help="Explain why a pod waits, and what would help.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def why(
    pod: Annotated[str, typer.Argument(help="pod/NAME, or just NAME.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    url: Annotated[
        str | None,
        typer.Option(
            envvar="KUBENEXUS_SCHEDULER_URL",
            help="The scheduler's address; default: the leader, through the API server.",
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
    """Explain why a pod waits: reasons, nearest node, and single changes that would make it fit."""
    kind, slash, name = pod.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise end(f"{pod!r} is not a pod: want pod/NAME", BAD_INPUT)
    pod_key = f"{namespace}/{name}"
    try:
        explanation = (
            client.explain_at(url, pod_key)
            if url
            else asyncio.run(_explain(kubeconfig, pod_key, system_namespace))
        )
    except errors.ConfigError as exc:
        raise end(str(exc), BAD_INPUT) from exc
    except (client.ExplainError, errors.ClusterError) as exc:
        raise end(str(exc), FAILED) from exc
    if explanation.get("error"):
        raise end(str(explanation["error"]), BAD_INPUT)
    if output is Output.JSON:
        typer.echo(orjson.dumps(explanation, option=orjson.OPT_INDENT_2).decode())
        return
    for line in render.lines(explanation):
        typer.echo(line)


async def _explain(kubeconfig: Path | None, pod: str, namespace: str) -> client.Explanation:
    async with Client(connection.load(kubeconfig), component="why") as api:
        return await client.explain_by_leader(api, pod, namespace=namespace)
