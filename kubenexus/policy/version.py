"""
`policy version`: the CEL engine in use, and those that this platform has.
"""

import json
from dataclasses import asdict, dataclass

from policies.cel import engines
from policies.cel.protocol import CelError


@dataclass(frozen=True, slots=True)
class Known:
    """One engine; `version` is empty and `why` is said where this platform lacks it."""

    name: str
    version: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class VersionReport:
    """The engine in use by name, and all of them, the first choice first."""

    used: str
    engines: tuple[Known, ...]


def survey(engine_name: str | None) -> VersionReport:
    """What is there; raises CelError where the wanted engine is not."""
    used = engines.engine(engine_name).name
    return VersionReport(used, tuple(_known(name) for name in engines.ENGINES))


def _known(name: str) -> Known:
    try:
        return Known(name, engines.engine(name).version)
    except CelError as exc:
        return Known(name, why=str(exc))


def as_json(report: VersionReport) -> str:
    return json.dumps(asdict(report), indent=2)


def as_text(report: VersionReport) -> str:
    lines = []
    for engine in report.engines:
        state = "in use" if engine.name == report.used else engine.why or "available"
        lines.append(f"{engine.name:<16} {engine.version or '-':<10} {state}")
    return "\n".join(lines)
