"""
`kubenexus dev`: options in, one call, exit code out.

    build      find or build every program of a control plane
    up, down   start and stop one, with fake nodes, the webhook and the scheduler
    status     its processes and their health (exit code 1 when one is not ready)
    kubectl    kubectl on it
    logs       the logs of its processes

Errors are one message on stderr, without a traceback.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from kubenexus import rbac
from kubenexus.dev import lifecycle, state, supervisor
from kubenexus.dev.binaries import locate, versions
from kubenexus.dev.binaries.progress import Bar, Lines, Show
from kubenexus.dev.errors import DevError, UsageError
from kubenexus.dev.lifecycle import Status
from kubenexus.dev.plane.flags import Layout
from kubenexus.dev.supervisor import PlaneOptions
from kubenexus.output import Output
from policies.documents import yaml_reader

BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
LOG_LINES: Final = 200
PLAIN_NODES: Final = 4

app: Final = typer.Typer(
    name="dev",
    help="A real Kubernetes control plane on this machine, with fake nodes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


Name = Annotated[str, typer.Option(help="The name of the plane, where several run.")]
Kubernetes = Annotated[str, typer.Option(help=f"One of {', '.join(versions.KNOWN_KUBERNETES)}.")]


def _print_line(line: str) -> None:
    typer.echo(line, err=True)


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Errors as one message and an exit code."""
    try:
        yield
    except DevError as exc:
        _print_line(f"kubenexus: {exc}")
        raise typer.Exit(exc.exit_code) from exc
    except yaml_reader.DocumentError as exc:
        _print_line(f"kubenexus: {exc}")
        raise typer.Exit(BAD_INPUT) from exc
    except KeyboardInterrupt as exc:
        _print_line("kubenexus: interrupted; run the same command again to continue.")
        raise typer.Exit(INTERRUPTED) from exc


@contextlib.contextmanager
def _show() -> Iterator[Show]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(_print_line)
        return
    with Bar(console) as bar:
        yield bar


@app.command()
def build(
    kubernetes: Kubernetes = versions.DEFAULT_KUBERNETES,
    tool: Annotated[
        list[str] | None,
        typer.Option(help=f"Also build this tool: {', '.join(versions.tools())}."),
    ] = None,
) -> None:
    """Find or build every program of a control plane, and verify the cache.

    Taken from the folder KUBEBUILDER_ASSETS, else from the cache, else built from the Go module
    proxy: about 8 minutes on two cores, once. Safe to interrupt and to run twice at once.
    """
    with _errors_as_messages(), _show() as show:
        requested = {name: versions.tool(name) for name in tool or ()}
        binaries = locate.get(kubernetes, env=os.environ, show=show)
        tools = {name: locate.tool(name, env=os.environ, show=show) for name in requested}
    typer.echo(f"Kubernetes {binaries.kubernetes} is ready in {binaries.folder}")
    for name, folder in tools.items():
        typer.echo(f"{name} {requested[name][0].version} is ready in {folder}")


@app.command()
def up(
    nodes: Annotated[
        int | None, typer.Option(min=0, max=10_000, help="Number of plain nodes; default 4.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="A YAML file that describes the nodes and namespaces.")
    ] = None,
    kubernetes: Kubernetes = versions.DEFAULT_KUBERNETES,
    name: Name = "default",
    webhook: Annotated[bool, typer.Option(help="Start the KubeNexus webhook.")] = True,
    scheduler: Annotated[bool, typer.Option(help="Start the KubeNexus scheduler.")] = True,
    kube_scheduler: Annotated[
        bool, typer.Option(help="Start kube-scheduler, for pods without another scheduler.")
    ] = True,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops everything.")
    ] = False,
) -> None:
    """Start a control plane with fake nodes, the webhook and the scheduler."""
    with _errors_as_messages():
        folder = state.folder_of(name, os.environ)
        options = PlaneOptions(
            kubernetes=_known(kubernetes),
            nodes=PLAIN_NODES if nodes is None else nodes,
            cluster=_only_one(nodes, cluster),
            webhook=webhook,
            scheduler=scheduler,
            kube_scheduler=kube_scheduler,
        )
        options.described()
        if state.is_supervised(folder) and lifecycle.inspect(name, folder).phase == state.UP:
            typer.echo(f"The plane {name!r} is up already.")
            return _print_use(name, folder)
        with _show() as show:
            locate.get(options.kubernetes, env=os.environ, show=show)
        if foreground:
            return supervisor.supervise(folder, options, env=os.environ, show=Lines(_print_line))
        arguments = _arguments(name, options)
        started = lifecycle.start(folder, arguments, env=os.environ, print_line=_print_line)
        typer.echo(f"The plane {name!r} is up{'' if started else ' already'}.")
        _print_use(name, folder)


def _known(kubernetes: str) -> str:
    versions.programs(kubernetes)
    return kubernetes.removeprefix("v")


def _only_one(nodes: int | None, cluster: Path | None) -> Path | None:
    if nodes is not None and cluster is not None:
        raise UsageError("pass --nodes or --cluster, not both.")
    return cluster.absolute() if cluster else None


def _arguments(name: str, options: PlaneOptions) -> list[str]:
    """The same options for `supervise`."""
    return [
        f"--name={name}",
        f"--kubernetes={options.kubernetes}",
        f"--cluster={options.cluster}" if options.cluster else f"--nodes={options.nodes}",
        *([] if options.webhook else ["--no-webhook"]),
        *([] if options.scheduler else ["--no-scheduler"]),
        *([] if options.kube_scheduler else ["--no-kube-scheduler"]),
    ]


def _print_use(name: str, folder: Path) -> None:
    option = "" if name == "default" else f" --name {name}"
    typer.echo(f"  kubenexus dev kubectl{option} get nodes")
    typer.echo(f"  kubenexus dev kubectl{option} --as-user {rbac.TENANT} get pods")
    typer.echo(f"  export KUBECONFIG={Layout(folder).kubeconfig(rbac.ADMIN)}")
    typer.echo(f"  kubenexus dev down{option}")


@app.command(hidden=True)
def supervise(
    name: Name = "default",
    nodes: int | None = None,
    cluster: Path | None = None,
    kubernetes: Kubernetes = versions.DEFAULT_KUBERNETES,
    webhook: bool = True,
    scheduler: bool = True,
    kube_scheduler: bool = True,
) -> None:
    """The process that `up` starts."""
    with _errors_as_messages():
        folder = state.folder_of(name, os.environ)
        options = PlaneOptions(
            kubernetes=_known(kubernetes),
            nodes=PLAIN_NODES if nodes is None else nodes,
            cluster=_only_one(nodes, cluster),
            webhook=webhook,
            scheduler=scheduler,
            kube_scheduler=kube_scheduler,
        )
        supervisor.supervise(folder, options, env=os.environ, show=Lines(_print_line))


@app.command()
def status(
    name: Name = "default",
    output: Annotated[Output, typer.Option("--output", "-o", help="text or json.")] = Output.TEXT,
) -> None:
    """Show every process of a plane. Ends with 0 when all are ready, else with 1."""
    with _errors_as_messages():
        health = lifecycle.inspect(name, state.folder_of(name, os.environ))
    if output is Output.JSON:
        typer.echo(json.dumps(health.as_dict(), indent=2))
    else:
        _print_status(health)
    raise typer.Exit(0 if health.well else 1)


def _print_status(status: Status) -> None:
    typer.echo(f"{status.name}: {status.phase}{f' ({status.step})' if status.step else ''}")
    if not status.components:
        return
    typer.echo(
        f"Kubernetes  {status.kubernetes} at {status.server}, {status.nodes_ready} nodes ready"
    )
    typer.echo(f"KUBECONFIG  {status.kubeconfig}")
    typer.echo(f"\n{'PROCESS':<26}{'PID':<10}{'READY':<8}{'RESTARTS':<10}HEALTH")
    typer.echo(f"{'supervisor':<26}{status.supervisor:<10}{'yes':<8}{0:<10}")
    for each in status.components:
        ready = "yes" if each.ready else "no" if each.alive else "exited"
        process = each.process
        typer.echo(
            f"{process.name:<26}{process.pid:<10}{ready:<8}{process.restarts:<10}{process.url}"
        )


@app.command()
def down(name: Name = "default") -> None:
    """Stop a plane and remove its data. The logs stay."""
    with _errors_as_messages():
        folder = state.folder_of(name, os.environ)
        stopped = lifecycle.stop(folder)
    if stopped:
        typer.echo("Stopped " + ", ".join(f"{each.name} ({each.pid})" for each in stopped))
    else:
        typer.echo(f"The plane {name!r} was not up.")


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        # Options behind kubectl's first word are kubectl's.
        "allow_interspersed_args": False,
        "help_option_names": [],
    }
)
def kubectl(
    context: typer.Context,
    name: Name = "default",
    as_user: Annotated[str, typer.Option(help="Run as this user of the cluster.")] = rbac.ADMIN,
) -> None:
    """Run kubectl on a plane; all arguments and the exit code are kubectl's."""
    with _errors_as_messages():
        program, path = lifecycle.kubectl(state.folder_of(name, os.environ), name, as_user)
    sys.stdout.flush()
    os.execve(program, [program, *context.args], {**os.environ, "KUBECONFIG": str(path)})


@app.command()
def logs(
    component: Annotated[
        str | None, typer.Argument(help="The process; without it, the list of logs.")
    ] = None,
    name: Name = "default",
    lines: Annotated[int, typer.Option(min=1, help="How many of the last lines.")] = LOG_LINES,
) -> None:
    """Show the last log lines of a process."""
    with _errors_as_messages():
        folder = state.folder_of(name, os.environ)
        log_files = {path.stem: path for path in sorted((folder / "logs").glob("*.log"))}
        if (folder / state.SUPERVISOR_LOG).exists():
            log_files["supervisor"] = folder / state.SUPERVISOR_LOG
        if component is None:
            for each, path in log_files.items():
                typer.echo(f"{each:<26}{path}")
            return
        if component not in log_files:
            known = ", ".join(log_files) or "none; `kubenexus dev up` makes some"
            raise UsageError(f"there is no log of {component!r}; there are: {known}.")
        text = log_files[component].read_text(errors="replace")
        typer.echo("\n".join(text.splitlines()[-lines:]))
