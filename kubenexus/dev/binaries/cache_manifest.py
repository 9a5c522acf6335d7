"""
The contents of the cache: one entry per program, written with the program.

    file there, entry fits the recipe, size and digest agree   --> sound
    anything else                                               --> a Fault; the program is rebuilt

The recipe of a program is a digest of its sources and build settings.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kubenexus.dev.binaries.versions import Program

FILE: Final = "manifest.json"
MISSING: Final = "is not there"


@dataclass(frozen=True, slots=True)
class Entry:
    sha256: str
    size: int
    module: str
    version: str
    recipe: str
    go: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A program that cannot be used, and the reason."""

    program: Program
    reason: str


def recipe(program: Program, settings: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((program.folder / name).read_bytes())
    digest.update("\0".join([program.package, *settings]).encode())
    return digest.hexdigest()


def read(folder: Path) -> dict[str, Entry]:
    """program -> entry. Empty where the manifest cannot be read."""
    try:
        programs = json.loads((folder / FILE).read_text())["programs"]
        return {name: Entry(**entry) for name, entry in programs.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def record(folder: Path, name: str, entry: Entry) -> None:
    programs = {**read(folder), name: entry}
    document = {"programs": {key: asdict(programs[key]) for key in sorted(programs)}}
    scratch = folder / f".{FILE}.{os.getpid()}.tmp"
    with scratch.open("w") as file:
        file.write(json.dumps(document, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(folder / FILE)


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def faults(folder: Path, programs: Iterable[tuple[Program, str]]) -> list[Fault]:
    """The faults of the programs in a folder, each given with its recipe."""
    entries = read(folder)

    def check(pair: tuple[Program, str]) -> Fault | None:
        program, expected = pair
        reason = _objection(folder / program.name, entries.get(program.name), expected)
        return Fault(program, reason) if reason else None

    # Hashing releases the interpreter's lock: threads use all cores.
    with ThreadPoolExecutor() as pool:
        return [fault for fault in pool.map(check, list(programs)) if fault]


def _objection(path: Path, entry: Entry | None, expected: str) -> str:
    size = -1
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
    if size < 0:
        return MISSING
    if entry is None:
        return f"is not in {FILE}: its origin is unknown"
    if entry.recipe != expected:
        return "was built from other sources or with other settings"
    if size != entry.size:
        return f"is damaged: it has {size} bytes and should have {entry.size}"
    if digest(path) != entry.sha256:
        return "is damaged: its content is not what was built"
    return "" if os.access(path, os.X_OK) else "may not be executed"
