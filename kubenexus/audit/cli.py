"""
`kubenexus audit`: options in, one walk over the cluster, exit code out.

    exit 0   everything was read, and all of it would be admitted today
    exit 1   everything was read, and something fails a rule
    exit 2   not everything could be read, or the command is at fault; the message says why

Nothing is asked and nothing is changed, so that it runs as a CronJob too.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from cluster import errors, resources
from cluster.client import Client
from cluster.connection import connection
from kubenexus.audit import report
from kubenexus.audit.scan import NoNamespace, Scan, Sums
from kubenexus.audit.validate import Violation
from policies.cel import engines
from policies.cel.protocol import CelError
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from webhook.registration import configurations

BAD_INPUT: Final = 2

app: Final = typer.Typer(
    name="audit",
    help="Find what exists and would not be admitted today.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(StrEnum):
    """How a result is written."""

    TEXT = "text"
    JSON = "json"


class AuditError(Exception):
    """The audit cannot be done as asked; the message says what to do."""


@app.command()
def audit(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: as kubectl does.")
    ] = None,
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Policy files or folders; default: the policies that ship."),
    ] = None,
    policy_objects: Annotated[
        bool, typer.Option(help="Judge by PlatformPolicy and TenantPolicy objects as well.")
    ] = True,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace; default: all.")
    ] = None,
    exclude_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="A namespace that admission leaves alone; default: those of the product."
        ),
    ] = None,
    not_admitted: Annotated[
        bool,
        typer.Option("--not-admitted", help="List pods that admission never saw, even good ones."),
    ] = False,
    engine: Annotated[str | None, typer.Option(help="The CEL engine; default: the best.")] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text, or json: one line each.")
    ] = Output.TEXT,
) -> None:
    """Find what exists and would not be admitted today, such as what was made without admission.

    Ends with 0 when there is nothing, with 1 when something fails a rule, with 2 when not
    everything could be read.
    """
    table = report.Table()

    def stream(row: Violation) -> None:
        typer.echo(report.row_json(row))

    try:
        sums = asyncio.run(
            _run(
                kubeconfig,
                paths=policies or [loader.LIBRARY],
                policy_objects=policy_objects,
                namespace=namespace,
                excluded=exclude_namespace or configurations.EXCLUDED_NAMESPACES,
                list_not_admitted=not_admitted,
                engine=engine,
                take=stream if output is Output.JSON else table.take,
            )
        )
    except (AuditError, NoNamespace, errors.ClusterError, CelError) as exc:
        typer.echo(f"kubenexus: {exc}{_advice(exc)}", err=True)
        raise typer.Exit(BAD_INPUT) from exc
    for line in [report.summary_json(sums)] if output is Output.JSON else table.lines(sums):
        typer.echo(line)
    raise typer.Exit(1 if sums.violations else 0)


def _advice(exc: Exception) -> str:
    if isinstance(exc, errors.Refused) and exc.status == 403:
        return (
            "; an audit lists namespaces, policies and every kind of workload: ask for the rights"
        )
    return ""


async def _run(
    kubeconfig: Path | None,
    *,
    paths: Sequence[Path],
    policy_objects: bool,
    namespace: str | None,
    excluded: Sequence[str],
    list_not_admitted: bool,
    engine: str | None,
    take: Callable[[Violation], None],
) -> Sums:
    if namespace in excluded:
        raise AuditError(
            f"namespace {namespace!r} is left alone by admission, so nothing in it is judged; "
            "name another, or say with --exclude-namespace which ones are left alone"
        )
    async with Client(connection.load(kubeconfig), component="audit") as client:
        in_force = await _policies(client, paths, policy_objects=policy_objects, engine=engine)
        scan = Scan(
            client,
            in_force,
            now=datetime.now(UTC),
            namespace=namespace,
            excluded=excluded,
            list_not_admitted=list_not_admitted,
        )
        return await scan.run(take)


async def _policies(
    client: Client, paths: Sequence[Path], *, policy_objects: bool, engine: str | None
) -> PolicySet:
    """The set that the webhook would serve from the same files and objects."""
    for path in paths:
        if not path.exists():
            raise AuditError(f"{path}: no such file or folder; check --policies")
    reading = loader.read_files(paths)
    for kind in (resources.PLATFORM_POLICIES, resources.TENANT_POLICIES) if policy_objects else ():
        try:
            reading += loader.read_objects((await client.list(kind)).items)
        except errors.Gone:
            continue  # not installed
    result = loader.compile_all(reading, compiler=Compiler(engines.engine(engine)))
    if not result.ok:
        raise AuditError("\n".join(str(fault) for fault in result.problems))
    return result.policies
