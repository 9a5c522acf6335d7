"""
`kubenexus install`: the commands of the chart's hook Jobs.

    exit 0   done
    exit 1   it failed, and the message says why; running it again is safe
    exit 2   the options are wrong
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from cluster import errors
from cluster.client import Client
from cluster.connection import connection
from kubenexus import json_logs
from kubenexus.exit_codes import BAD_INPUT, FAILED, end
from kubenexus.install import cert_secrets, uninstall
from kubenexus.install import probe as probing
from kubenexus.install import register as registering
from policies import vocabulary

logger = logging.getLogger(__name__)


app: Final = typer.Typer(
    name="install",
    help="The hooks of the chart: certificates, register, probe, cleanup.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Kubeconfig = Annotated[
    Path | None, typer.Option(help="How to reach the API server; default: in-cluster.")
]
Seconds = Annotated[float, typer.Option(min=1.0, help="How long to wait.")]
Tried = Annotated[
    str, typer.Option(help="The namespace of the dry runs; admission must apply to it.")
]


@app.command()
def certificates(
    namespace: Annotated[str, typer.Option(help="Where the secret is.")],
    secret: Annotated[str, typer.Option(help="The secret; that of the CA ends in -ca.")],
    service: Annotated[str, typer.Option(help="The service that the certificate is for.")],
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create the webhook's certificate, or renew it when a third of its validity is left."""
    names = tuple(f"{service}{end}" for end in service_suffixes(namespace))

    async def run(client: Client) -> None:
        written = await cert_secrets.sync(
            client, namespace=namespace, name=secret, names=names, now=datetime.now(UTC)
        )
        logger.info("wrote certificate" if written else "certificate is up to date")

    _run(kubeconfig, run)


def service_suffixes(namespace: str) -> tuple[str, ...]:
    """How clients spell a service: the API server uses the second form."""
    return "", f".{namespace}.svc", f".{namespace}.svc.cluster.local"


@app.command()
def register(
    configurations: Annotated[Path, typer.Option(help="The webhook configurations, YAML.")],
    ca_file: Annotated[Path, typer.Option(help="The CA of the webhook's certificate.")],
    url: Annotated[str, typer.Option(help="The readiness endpoint of the webhook.")],
    server_name: Annotated[
        str | None, typer.Option(help="The name of its certificate; default: that of the URL.")
    ] = None,
    timeout: Seconds = 300.0,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Wait until the webhook is ready, then create or update its configurations."""
    try:
        documents = _configurations(configurations.read_text())
        authority = ca_file.read_bytes()
        authority.decode("ascii")
    except (OSError, ValueError, yaml.YAMLError) as exc:
        raise end(str(exc), BAD_INPUT) from exc

    async def run(client: Client) -> None:
        await registering.wait_until_ready(url, authority, seconds=timeout, server_name=server_name)
        await registering.apply(client, documents, authority)
        logger.info("registered webhook configurations")

    _run(kubeconfig, run)


def _configurations(text: str) -> list[dict[str, Any]]:
    documents = [document for document in yaml.safe_load_all(text) if document]
    strange = [
        document.get("kind")
        for document in documents
        if document.get("kind") not in registering.RESOURCES
    ]
    if strange or not documents:
        accepted = " and ".join(registering.RESOURCES)
        raise ValueError(f"want {accepted}; found {strange or 'nothing'}")
    return documents


@app.command()
def probe(
    try_namespace: Tried = "default",
    timeout: Seconds = 60.0,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Create a pod and an impossible Job by dry run: does admission answer?"""

    async def run(client: Client) -> None:
        async def check() -> str:
            try:
                if not await probing.mutates(client, try_namespace):
                    return f"a pod in {try_namespace} was not mutated"
                if not await probing.validates(client, try_namespace):
                    return f"an impossible Job in {try_namespace} was not denied"
            except errors.KubeError as exc:
                return str(exc)
            return ""

        await registering.until(check, failure="admission did not answer", seconds=timeout)
        logger.info("admission answers")

    _run(kubeconfig, run)


@app.command()
def cleanup(
    configuration: Annotated[
        str, typer.Option(help="The name of both webhook configurations.")
    ] = vocabulary.WEBHOOK_NAME,
    try_namespace: Tried = "default",
    namespace: Annotated[str, typer.Option(help="Where the secrets are.")] = "",
    secret: Annotated[
        list[str] | None, typer.Option(help="A secret to delete, made by `certificates`.")
    ] = None,
    timeout: Seconds = 60.0,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Delete the webhook configurations, then remove scheduling gates. Run before uninstall."""
    if secret and not namespace:
        raise end("--secret was given without --namespace", BAD_INPUT)

    async def run(client: Client) -> None:
        await uninstall.unregister(
            client, name=configuration, namespace=try_namespace, seconds=timeout
        )
        removed = await uninstall.remove_gates(client)
        await uninstall.delete_secrets(client, namespace=namespace, secrets=secret or ())
        logger.info("removed registration and gates", extra={"gates_removed": removed})

    _run(kubeconfig, run)


def _run(kubeconfig: Path | None, run: Callable[[Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with Client(connection.load(kubeconfig), component="install") as client:
            await run(client)

    json_logs.configure(sys.stderr)
    try:
        asyncio.run(with_client())
    except errors.ConfigError as exc:
        raise end(str(exc), BAD_INPUT) from exc
    except (errors.ClusterError, registering.NotInTime, cert_secrets.Unreadable) as exc:
        raise end(str(exc), FAILED) from exc
