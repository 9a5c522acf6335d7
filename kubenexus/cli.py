"""
The `kubenexus` command: options in, one call, exit code out.

    simulate    admit and place manifests on a cluster described in YAML; no cluster needed
    webhook     serve admission reviews
    scheduler   place pending pods
    dev         a real control plane on this machine
    policy      lint, test, explain, measure and export policies
    audit       find objects that admission would not admit today
    why         why a pod is pending, and what would help
    labeler     publish a host's NUMA nodes and GPUs on its Node object
    node        NUMA nodes, GPUs and usage of a node
    install     the chart's hooks

    exit 0   done; a denied manifest is a result of `simulate`, not a failure
    exit 1   the command failed, and the message says why
    exit 2   the input is wrong, and the message says where

Each command imports its own libraries when it runs, so that the others do not slow it down.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from kubenexus.output import Output

BAD_INPUT: Final = 2
_HELP: Final = {"help_option_names": ["-h", "--help"]}
_PASS_ALL: Final = {"allow_extra_args": True, "ignore_unknown_options": True}

app: Final = typer.Typer(
    name="kubenexus",
    help="Admission and placement for Kubernetes: services, batch and GPU training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


class Release(StrEnum):
    """What the scheduler does with a gang that stays partial."""

    EVICT = "evict"
    HOLD = "hold"


def main() -> None:
    """The entry point of the installed command."""
    app(prog_name="kubenexus")


def _bad_input(exc: Exception | str) -> typer.Exit:
    """Print one line on standard error; the caller raises the result."""
    typer.echo(f"kubenexus: {exc}", err=True)
    return typer.Exit(BAD_INPUT)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib import metadata

        try:
            version = metadata.version("kubenexus")
        except metadata.PackageNotFoundError:
            version = "(not installed, run from its source)"
        typer.echo(f"kubenexus {version}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Admission and placement for Kubernetes: services, batch and GPU training."""


@app.command()
def simulate(
    path: Annotated[
        Path, typer.Argument(help="A folder with cluster.yaml and manifests, or one manifest.")
    ],
    cluster: Annotated[
        Path | None,
        typer.Option(help="The file that describes the cluster; default: the folder's own."),
    ] = None,
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Policy files or folders; default: the policies that ship."),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="text or json.")] = Output.TEXT,
    within: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="Virtual time: simulate jobs that arrive within this time, such as 6h.",
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(help="Virtual time: a CSV list of jobs; default: the folder's jobs.csv."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Virtual time: also run FIFO and greedy scheduling.")
    ] = False,
    what_if: Annotated[
        list[Path] | None,
        typer.Option(help="Virtual time: policies to try in place of those with the same names."),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Virtual time: print every arrival, start and end.")
    ] = False,
) -> None:
    """Admit and place manifests on a cluster described in YAML, with the code of the services.

    Prints for each manifest the verdict, the injected fields, and the nodes of its pods; for denied
    and pending pods the reasons. In virtual time it prints the waiting times and shares of each
    tenant. Ends with 0 when the simulation ran, 2 on bad input.
    """
    from kubenexus.simulate import command, render
    from policies.engine import loader

    options = command.SimulateOptions(
        path,
        cluster=cluster,
        policies=tuple(policies or (loader.LIBRARY,)),
        within=within,
        jobs=jobs,
        compare=compare,
        timeline=timeline,
        what_if=tuple(what_if or ()),
        json=output is Output.JSON,
    )
    try:
        command.simulate(options, render.console())
    except command.InputError as exc:
        raise _bad_input(exc) from exc


@app.command()
def webhook(
    cert_file: Annotated[Path, typer.Option(help="The serving certificate, PEM.")],
    key_file: Annotated[Path, typer.Option(help="Its private key, PEM.")],
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: in-cluster.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="The port for admission reviews, TLS.")] = 8443,
    metrics_port: Annotated[int, typer.Option(help="The port for metrics, plain HTTP.")] = 9443,
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Policy files or folders; default: the policies that ship."),
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="Only answer clients with a certificate of this CA."),
    ] = None,
    client_name: Annotated[
        list[str] | None,
        typer.Option(help="A name that the client certificate must have; default: any."),
    ] = None,
    scheduler_user: Annotated[
        list[str] | None,
        typer.Option(help="A user name of the scheduler; default: its service account."),
    ] = None,
    policy_objects: Annotated[
        bool, typer.Option(help="Also apply PlatformPolicy and TenantPolicy objects.")
    ] = True,
    configuration: Annotated[
        str | None,
        typer.Option(help="The ValidatingWebhookConfiguration whose rules the webhook updates."),
    ] = None,
    event_defaults: Annotated[
        bool, typer.Option("--event-defaults", help="Write Events about injected defaults.")
    ] = False,
    engine: Annotated[str | None, typer.Option(help="The CEL engine; default: the best.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; one per core is enough.")] = 2,
    threads: Annotated[int, typer.Option(min=1, help="Threads per process.")] = 8,
) -> None:
    """Serve admission reviews to the API server."""
    from cluster import errors
    from kubenexus import json_logs
    from policies import vocabulary
    from policies.engine import loader
    from webhook.serve import server

    json_logs.configure(sys.stderr)
    options = server.Options(
        kubeconfig=kubeconfig,
        host=host,
        port=port,
        cert_file=cert_file,
        key_file=key_file,
        metrics_port=metrics_port,
        policies=tuple(policies or (loader.LIBRARY,)),
        client_ca=client_ca,
        client_names=tuple(client_name or ()),
        schedulers=tuple(scheduler_user or server.SCHEDULERS),
        policy_objects=policy_objects,
        configuration=configuration or vocabulary.WEBHOOK_NAME,
        event_defaults=event_defaults,
        engine=engine,
        workers=workers,
        threads=threads,
    )
    try:
        raise typer.Exit(server.main(options))
    except (server.OptionsError, errors.ConfigError) as exc:
        raise _bad_input(exc) from exc


@app.command()
def scheduler(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; default: in-cluster.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="The port for health and metrics.")] = 10259,
    scheduler_name: Annotated[
        str | None, typer.Option(help="Place the pods whose spec.schedulerName is this.")
    ] = None,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect", help="Run several replicas; one is active at a time.")
    ] = False,
    lease_namespace: Annotated[
        str | None, typer.Option(help="The namespace of the lease of --leader-elect.")
    ] = None,
    release: Annotated[
        Release,
        typer.Option(
            help="A gang that stays partial: evict its bound members that have a controller, or "
            "hold them and write an Event."
        ),
    ] = Release.EVICT,
    starving_after: Annotated[
        float,
        typer.Option(
            min=1.0, help="Seconds after which a pending pod precedes others of its priority."
        ),
    ] = 60.0,
    hold_seconds: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds for which nodes are reserved for a starving gang."),
    ] = 300.0,
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Policy files or folders; default: the policies that ship."),
    ] = None,
    policy_objects: Annotated[
        bool, typer.Option(help="Also apply PlatformPolicy and TenantPolicy objects.")
    ] = True,
    provisioning_class: Annotated[
        str,
        typer.Option(
            help="Request nodes for gangs that lack capacity, with ProvisioningRequests of this "
            "class; default: autoscalers see the pods only."
        ),
    ] = "",
) -> None:
    """Place pending pods, and gangs as a whole."""
    from cluster import errors
    from kubenexus import json_logs
    from policies import vocabulary
    from policies.engine import loader
    from scheduler import app as service
    from scheduler.options import StaleGangPolicy

    json_logs.configure(sys.stderr)
    options = service.Options(
        kubeconfig=kubeconfig,
        host=host,
        port=port,
        scheduler_name=scheduler_name or vocabulary.SCHEDULER_NAME,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace or vocabulary.SYSTEM_NAMESPACE,
        stale_gang_policy=StaleGangPolicy(release),
        starving_after=starving_after,
        hold_seconds=hold_seconds,
        policies=tuple(policies or (loader.LIBRARY,)),
        policy_objects=policy_objects,
        provisioning_class=provisioning_class,
    )
    try:
        raise typer.Exit(service.main(options))
    except errors.ConfigError as exc:
        raise _bad_input(exc) from exc


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def dev(context: typer.Context) -> None:
    """Run a real control plane on this machine, with fake nodes: up, status, kubectl, down."""
    from kubenexus.dev import cli

    cli.app(context.args, prog_name="kubenexus dev")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def policy(context: typer.Context) -> None:
    """Work on policies: lint, test, explain, bench, export, schema, version."""
    from kubenexus.policy import cli

    cli.app(context.args, prog_name="kubenexus policy")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def audit(context: typer.Context) -> None:
    """Find existing objects that admission would not admit today."""
    from kubenexus.audit import cli

    cli.app(context.args, prog_name="kubenexus audit")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def why(context: typer.Context) -> None:
    """Explain why a pod is pending: reasons, the nearest node, and what would make it fit."""
    from kubenexus.why import cli

    cli.app(context.args, prog_name="kubenexus why")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def labeler(context: typer.Context) -> None:
    """Publish a host's NUMA nodes and GPUs on its Node object; runs on every node."""
    from kubenexus.labeler import cli

    cli.app(context.args, prog_name="kubenexus labeler")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def node(context: typer.Context) -> None:
    """Show NUMA nodes, GPUs and usage of a node, with the source of each fact: describe."""
    from kubenexus.node import cli

    cli.app(context.args, prog_name="kubenexus node")


@app.command(context_settings={**_PASS_ALL, "help_option_names": []})
def install(context: typer.Context) -> None:
    """Run the chart's hooks: certificates, register, probe, cleanup."""
    from kubenexus.install import cli

    cli.app(context.args, prog_name="kubenexus install")
