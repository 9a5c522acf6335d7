"""
`kubenexus audit`: options in, one scan of the cluster, exit code out.

    exit 0   every object was read, and would be admitted today
    exit 1   every object was read, and at least one fails a rule
    exit 2   an object could not be read, or the options are wrong; the message says why

It asks no questions and changes nothing, so it can run as a CronJob.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from cluster import errors, resources
from cluster.client import Client
from cluster.connection import connection
from kubenexus.audit import report
from kubenexus.audit.scan import NoNamespace, Scan, Totals
from kubenexus.audit.validate import Violation
from kubenexus.output import Output
from policies.cel import engines
from policies.cel.protocol import CelError
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.policyset import PolicySet
from webhook.registration import configurations

BAD_INPUT: Final = 2

app: Final = typer.Typer(
    name="audit",
    help="Find existing objects that admission would not admit today.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class AuditError(Exception):
    """The options do not allow an audit; the message says what to do."""


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
        bool, typer.Option(help="Apply PlatformPolicy and TenantPolicy objects as well.")
    ] = True,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace; default: all.")
    ] = None,
    exclude_namespace: Annotated[
        list[str] | None,
        typer.Option(help="A namespace that admission excludes; default: as the webhook does."),
    ] = None,
    not_admitted: Annotated[
        bool,
        typer.Option(
            "--not-admitted", help="Also list pods that bypassed admission and fail no rule."
        ),
    ] = False,
    engine: Annotated[str | None, typer.Option(help="The CEL engine; default: the best.")] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text, or json: one line each.")
    ] = Output.TEXT,
) -> None:
    """Find existing objects that admission would not admit today.

    Such objects were created while the webhook was off, before a policy existed, or under an
    exception that has expired. Ends with 0 when there is none, with 1 when an object fails a rule,
    with 2 when not every object could be read.
    """
    table = report.Table()

    def stream(row: Violation) -> None:
        typer.echo(report.row_json(row))

    try:
        totals = asyncio.run(
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
    for line in [report.summary_json(totals)] if output is Output.JSON else table.lines(totals):
        typer.echo(line)
    raise typer.Exit(1 if totals.violations else 0)


def _advice(exc: Exception) -> str:
    if isinstance(exc, errors.Refused) and exc.status == 403:
        return "; an audit needs to list namespaces, policies and every kind of workload"
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
) -> Totals:
    if namespace in excluded:
        raise AuditError(
            f"namespace {namespace!r} is excluded from admission, so it is not audited; "
            "name another, or set the excluded ones with --exclude-namespace"
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
