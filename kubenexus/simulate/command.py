"""
What `kubenexus simulate` does with its options: read, simulate, print.

    neither --for nor a list of jobs   everything is admitted and placed once, without time
    --for, --jobs                      virtual time: work arrives, runs and goes (`timed`)

Whatever is wrong with the input is an `InputError` whose text is for whoever typed the command.
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
    """The input is wrong, and the text says where."""


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


def simulate(asked: SimulateOptions, out: Console) -> None:
    try:
        if asked.within is None and asked.jobs is None:
            _once(asked, out)
        else:
            _in_time(asked, out)
    except yaml_reader.DocumentError as exc:
        raise InputError(str(exc)) from exc


def _once(asked: SimulateOptions, out: Console) -> None:
    options = {
        "--compare": asked.compare,
        "--timeline": asked.timeline,
        "--what-if": bool(asked.what_if),
    }
    for name, given in options.items():
        if given:
            raise InputError(f"{name} needs virtual time; add --for 6h, or --jobs FILE")
    found = inputs.read(asked.path, cluster=asked.cluster)
    result = run.simulate(found, _compiled(_reading(asked, found)))
    if asked.json:
        out.file.write(f"{render.as_json(result)}\n")
    else:
        render.as_text(result, out)


def _in_time(asked: SimulateOptions, out: Console) -> None:
    within = _within(asked.within)
    listed = asked.jobs
    if listed is None and (asked.path / jobs_csv.FILE_NAME).is_file():
        listed = asked.path / jobs_csv.FILE_NAME
    found = inputs.read(asked.path, cluster=asked.cluster, jobs=listed)
    strategies = engine.STRATEGIES if asked.compare else (engine.OURS,)
    base = _reading(asked, found)
    report = timed.simulate(found, _compiled(base), within=within, strategies=strategies)
    before = None
    if asked.what_if:
        tried = _instead(base, loader.read_files(asked.what_if))
        before, report = (
            report,
            timed.simulate(found, _compiled(tried), within=within, strategies=strategies),
        )
    if asked.json:
        body = render_timed.as_json(report, timeline=asked.timeline, before=before)
        out.file.write(f"{body}\n")
    else:
        render_timed.as_text(report, out, timeline=asked.timeline, before=before)


def _within(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = duration.parse(text)
    except duration.DurationError as exc:
        raise InputError(f"--for: {exc}") from exc
    if seconds <= 0:
        raise InputError(f"--for: found {text!r}, want more than nothing")
    return seconds


# --- policies ---


def _reading(asked: SimulateOptions, found: inputs.Inputs) -> Reading:
    return loader.read_files((*asked.policies, *found.policies))


def _instead(base: Reading, tried: Reading) -> Reading:
    """What is tried takes the place of policies of the same names."""
    names = {model.metadata.name for model, _ in tried.entries}
    kept = tuple(row for row in base.entries if row[0].metadata.name not in names)
    return Reading(kept, base.faults, base.broken) + tried


def _compiled(reading: Reading) -> PolicySet:
    loaded = loader.compile_all(reading, compiler=Compiler(engines.engine()))
    if loaded.problems:
        raise InputError(_lines(loaded.problems))
    return loaded.policies


def _lines(problems: Iterable[object]) -> str:
    return "\n".join(str(one) for one in problems)
