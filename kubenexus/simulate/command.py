"""
`kubenexus simulate`: read the inputs, simulate, print.

    neither --for nor --jobs   all manifests are admitted and placed once, without time
    --for, --jobs              virtual time: jobs arrive, run and end (`virtual_time`)

Wrong input is an `InputError`; its text is for the user of the command.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kubenexus.simulate import inputs, render, run
from kubenexus.simulate.virtual_time import engine, jobs_csv
from kubenexus.simulate.virtual_time import render as render_timed
from kubenexus.simulate.virtual_time import run as timed
from policies import duration
from policies.cel import engines
from policies.documents import yaml_reader
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.loader import Reading
from policies.engine.policyset import PolicySet


class InputError(Exception):
    """The input is wrong; the text names the place."""


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options as they were typed."""

    path: Path
    cluster: Path | None = None
    policies: tuple[Path, ...] = (loader.LIBRARY,)
    within: str | None = None
    jobs: Path | None = None
    compare: bool = False
    timeline: bool = False
    what_if: tuple[Path, ...] = ()
    json: bool = False


def simulate(options: SimulateOptions, out: Console) -> None:
    try:
        if options.within is None and options.jobs is None:
            _once(options, out)
        else:
            _in_time(options, out)
    except yaml_reader.DocumentError as exc:
        raise InputError(str(exc)) from exc


def _once(options: SimulateOptions, out: Console) -> None:
    given_options = {
        "--compare": options.compare,
        "--timeline": options.timeline,
        "--what-if": bool(options.what_if),
    }
    for name, given in given_options.items():
        if given:
            raise InputError(f"{name} needs virtual time; add --for 6h, or --jobs FILE")
    loaded = inputs.read(options.path, cluster=options.cluster)
    result = run.simulate(loaded, _compiled(_reading(options, loaded)))
    if options.json:
        out.file.write(f"{render.as_json(result)}\n")
    else:
        render.as_text(result, out)


def _in_time(options: SimulateOptions, out: Console) -> None:
    within = _within(options.within)
    listed = options.jobs
    if listed is None and (options.path / jobs_csv.FILE_NAME).is_file():
        listed = options.path / jobs_csv.FILE_NAME
    loaded = inputs.read(options.path, cluster=options.cluster, jobs=listed)
    strategies = engine.STRATEGIES if options.compare else (engine.OURS,)
    base = _reading(options, loaded)
    report = timed.simulate(loaded, _compiled(base), within=within, strategies=strategies)
    before = None
    if options.what_if:
        tried = _replaced(base, loader.read_files(options.what_if))
        before, report = (
            report,
            timed.simulate(loaded, _compiled(tried), within=within, strategies=strategies),
        )
    if options.json:
        body = render_timed.as_json(report, timeline=options.timeline, before=before)
        out.file.write(f"{body}\n")
    else:
        render_timed.as_text(report, out, timeline=options.timeline, before=before)


def _within(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = duration.parse(text)
    except duration.DurationError as exc:
        raise InputError(f"--for: {exc}") from exc
    if seconds <= 0:
        raise InputError(f"--for: found {text!r}, want more than 0s")
    return seconds


# --- policies ---


def _reading(options: SimulateOptions, loaded: inputs.Inputs) -> Reading:
    return loader.read_files((*options.policies, *loaded.policies))


def _replaced(base: Reading, tried: Reading) -> Reading:
    """Policies of --what-if replace those of the same names."""
    names = {model.metadata.name for model, _ in tried.entries}
    others = tuple(row for row in base.entries if row[0].metadata.name not in names)
    return Reading(others, base.faults, base.broken) + tried


def _compiled(reading: Reading) -> PolicySet:
    loaded = loader.compile_all(reading, compiler=Compiler(engines.engine()))
    if loaded.problems:
        raise InputError(_lines(loaded.problems))
    return loaded.policies


def _lines(problems: Iterable[object]) -> str:
    return "\n".join(str(problem) for problem in problems)
