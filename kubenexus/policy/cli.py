"""
`kubenexus policy`: options in, one call, exit code out.

    exit 0   done; for lint and test: nothing is wrong
    exit 1   lint found problems, or a test failed
    exit 2   the options, or a file, are wrong; the message says where

A denied pod is a result of `explain`, not a failure.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kubenexus.output import Output
from kubenexus.policy.errors import PolicyCommandError, UsageError
from policies.cel.protocol import CelError, Engine

BAD_INPUT: Final = 2
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "head": {"bold": True},
    "good": {"fg": typer.colors.GREEN, "bold": True},
    "bad": {"fg": typer.colors.RED, "bold": True},
    "faint": {"dim": True},
}

app: Final = typer.Typer(
    name="policy",
    help="Lint, test, explain, measure and export policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Kind(StrEnum):
    """The kinds of documents."""

    PLATFORM_POLICY = "PlatformPolicy"
    TENANT_POLICY = "TenantPolicy"
    POLICY_TEST = "PolicyTest"
    RESOURCE_RESERVATION = "ResourceReservation"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text or json.")]
EngineOption = Annotated[
    str | None, typer.Option("--engine", help="The CEL engine; default: the best.")
]
PoliciesOption = Annotated[
    list[Path] | None,
    typer.Option("--policies", help="Policy files or folders; default: the policies that ship."),
]


@contextlib.contextmanager
def _errors_as_messages() -> Iterator[None]:
    """Errors as one message and an exit code."""
    try:
        yield
    except (PolicyCommandError, CelError) as exc:
        typer.echo(f"kubenexus: {exc}", err=True)
        raise typer.Exit(BAD_INPUT) from exc


def _engine(name: str | None) -> Engine:
    from policies.cel import engines

    return engines.engine(name)


@app.command()
def lint(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    output: OutputOption = Output.TEXT,
    engine: EngineOption = None,
) -> None:
    """Show every fault of policies and tests.

    Ends with 0 when nothing is, with 1 when something is, with 2 when a path is not there.
    """
    from kubenexus.policy import lint as command
    from policies.engine.compiler import Compiler

    with _errors_as_messages():
        report = command.lint(paths, compiler=Compiler(_engine(engine)))
    typer.echo(command.as_json(report) if output is Output.JSON else command.as_text(report))
    raise typer.Exit(0 if report.clean else 1)


@app.command("test")
def verify(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders with PolicyTests.")],
    policies: Annotated[
        list[Path] | None,
        typer.Option(help="Test these policies instead of those that the tests name."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(help="Also write the results to this file as JUnit XML.")
    ] = None,
    output: OutputOption = Output.TEXT,
    engine: EngineOption = None,
) -> None:
    """Run PolicyTests, and list the rules that no test covers.

    A test says what policies should make of objects. Its policies are those that it names, or
    those in its own file, or those beside it. Ends with 0 when all hold, with 1 when one does not.
    """
    from kubenexus.policy.policy_test import junit as xml
    from kubenexus.policy.policy_test import runner as command
    from policies.engine.compiler import Compiler

    with _errors_as_messages():
        report = command.run(paths, policies=policies or [], compiler=Compiler(_engine(engine)))
        if junit is not None:
            _write(junit, xml.as_xml(report.tests))
    typer.echo(command.as_json(report) if output is Output.JSON else command.as_text(report))
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def explain(
    file: Annotated[Path, typer.Option("--file", "-f", help="The object, such as a Pod.")],
    policies: PoliciesOption = None,
    namespace_file: Annotated[
        Path | None, typer.Option(help="The object's Namespace, from kubectl get -o yaml.")
    ] = None,
    namespace_labels: Annotated[
        str | None, typer.Option(help="Only its labels: key=value,key=value.")
    ] = None,
    queue_tier: Annotated[
        str | None, typer.Option(help="Tier of the Kueue queue of the object.")
    ] = None,
    output: OutputOption = Output.TEXT,
    engine: EngineOption = None,
) -> None:
    """Show how policies evaluate an object: each expression, and each of its parts."""
    from kubenexus.policy import inputs
    from kubenexus.policy.explain import explain as command
    from kubenexus.policy.explain import text as explain_text
    from kubenexus.policy.explain.tracing import PartsEngine
    from policies.engine.compiler import Compiler

    with _errors_as_messages():
        if namespace_file is not None and namespace_labels is not None:
            raise UsageError("pass --namespace-file or --namespace-labels, not both")
        known = None if namespace_file is None else inputs.namespace(namespace_file)
        loaded = inputs.load(policies or [], compiler=Compiler(PartsEngine(_engine(engine))))
        tiers = loaded.policies.tables.tiers
        if queue_tier is not None and queue_tier not in tiers:
            expected = f"want one of {', '.join(tiers)}"
            raise UsageError(f"--queue-tier: found {queue_tier!r}, {expected}")
        explanations = [
            command.explain(
                obj,
                loaded.policies,
                namespace=inputs.namespace_of(obj, known, labels=namespace_labels or ""),
                queue_tier=queue_tier,
                now=datetime.now(UTC),
            )
            for obj in inputs.objects(file)
        ]
    if output is Output.JSON:
        body = {"objects": [command.as_dict(explanation) for explanation in explanations]}
        typer.echo(json.dumps(body, indent=2, ensure_ascii=False))
        return
    for index, explanation in enumerate(explanations):
        typer.echo("\n" if index else "", nl=False)
        for line in explain_text.lines(explanation):
            typer.secho(line.text, **_STYLES.get(line.tone, {}))


@app.command()
def bench(
    policies: PoliciesOption = None,
    file: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Objects; default: a GPU pod.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Show costs as multiples of this saved baseline.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the costs as a baseline.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Requests for each object.")] = 1000,
    output: OutputOption = Output.TEXT,
    engine: EngineOption = None,
) -> None:
    """Measure the cost of a request under each policy, and under all of them."""
    from kubenexus.policy import bench as command
    from kubenexus.policy import inputs
    from policies.engine.compiler import Compiler
    from policies.engine.request import AdmissionRequest

    with _errors_as_messages():
        baseline = None if compare is None else command.read(compare)
        used = _engine(engine)
        loaded = inputs.load(policies or [], compiler=Compiler(used))
        objects = [obj for path in file or [] for obj in inputs.objects(path)]
        report = command.run(
            [
                AdmissionRequest.of(obj, namespace=inputs.namespace_of(obj, None))
                for obj in objects or [command.SAMPLE]
            ],
            loaded.policies,
            rounds=rounds,
            engine=f"{used.name} {used.version}",
            now=datetime.now(UTC),
            clock=time.perf_counter_ns,
        )
        if save is not None:
            _write(save, command.as_json(report))
    if output is Output.JSON:
        typer.echo(command.as_json(report, baseline), nl=False)
    else:
        typer.echo(command.as_text(report, baseline))


@app.command()
def export(
    vap: Annotated[
        bool, typer.Option("--vap", help="As Validating- and MutatingAdmissionPolicy.")
    ] = False,
    policies: PoliciesOption = None,
    engine: EngineOption = None,
) -> None:
    """Write the part of policies that Kubernetes can evaluate itself, for kubectl apply -f -.

    What stays with KubeNexus is listed above each policy, in comments, with the reason.
    """
    from kubenexus.policy import inputs
    from kubenexus.policy.export import export as command
    from policies.engine.compiler import Compiler

    with _errors_as_messages():
        if not vap:
            raise UsageError("no format was given; pass --vap")
        loaded = inputs.load(policies or [], compiler=Compiler(_engine(engine)))
    exported = command.export(loaded.policies, now=datetime.now(UTC))
    typer.echo(command.as_yaml(exported), nl=False)
    typer.echo(f"kubenexus: {command.summary(exported)}", err=True)


@app.command()
def schema(
    kind: Annotated[Kind | None, typer.Argument(help="One kind; default: all.")] = None,
) -> None:
    """Print the JSON Schema of a kind of document, or of all, by kind."""
    from policies.documents import json_schemas

    known = json_schemas.documents()
    typer.echo(json.dumps(known if kind is None else known[kind.value], indent=2))


@app.command()
def version(output: OutputOption = Output.TEXT, engine: EngineOption = None) -> None:
    """Show the CEL engine in use, its version, and the engines of this platform."""
    from kubenexus.policy import version as engines

    with _errors_as_messages():
        report = engines.survey(engine)
    typer.echo(engines.as_json(report) if output is Output.JSON else engines.as_text(report))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"{path}: cannot be written: {exc.strerror}") from exc
