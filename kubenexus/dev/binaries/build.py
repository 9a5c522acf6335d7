"""
Build the programs of a control plane from the Go module proxy into the cache.

    verify --sound--> done
       | faults
       v
    lock (one builder at a time) --> verify again --> for each fault: go build --> hash --> rename
                                                                                     --> manifest

A program appears under its name only when it is complete. An interrupted build continues where it
stopped: finished programs stay, and Go caches every compiled package.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubenexus.dev.binaries import cache_manifest, toolchain
from kubenexus.dev.binaries import go as gobuild
from kubenexus.dev.binaries.cache_manifest import Entry, Fault
from kubenexus.dev.binaries.progress import BuildProgress, Show
from kubenexus.dev.binaries.versions import Program

LOCK: Final = ".lock"


def ensure(
    programs: Sequence[Program],
    folder: Path,
    *,
    cache: Path,
    env: Mapping[str, str],
    show: Show,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Build every missing or damaged program; returns the names of those."""
    recipes = [
        (program, cache_manifest.recipe(program, gobuild.settings(program))) for program in programs
    ]
    if not cache_manifest.faults(folder, recipes):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, show=show):
        for leftover in folder.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        faults = cache_manifest.faults(folder, recipes)
        for fault in faults:
            if fault.reason != cache_manifest.MISSING:
                show.note(f"{fault.program.name} in {folder} {fault.reason}; it is built again.")
        if faults:
            _build(faults, dict(recipes), folder, cache=cache, env=env, show=show, clock=clock)
    return [fault.program.name for fault in faults]


@contextlib.contextmanager
def locked(folder: Path, *, show: Show) -> Iterator[None]:
    """One builder at a time; the kernel frees the lock with the process."""
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            show.note(f"Another build is at work on {folder} (process {holder}); waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _build(
    faults: Sequence[Fault],
    recipes: Mapping[Program, str],
    folder: Path,
    *,
    cache: Path,
    env: Mapping[str, str],
    show: Show,
    clock: Callable[[], float],
) -> None:
    programs = [fault.program for fault in faults]
    minimum = max(toolchain.needed(program.folder) for program in programs)
    go = toolchain.get(minimum, cache=cache, env=env, print_line=show.note)
    show.note(f"Building {', '.join(each.name for each in programs)} with {go.version}.")
    tally = BuildCounts(clock=clock)
    for program in programs:
        tally.expect(program, gobuild.stale(program, go, env=env, note=show.note))
    for program in programs:
        scratch = folder / f".{program.name}.{os.getpid()}.tmp"

        def compiled(package: str, name: str = program.name) -> None:
            tally.compiled(package)
            show.standing(tally.standing(name))

        show.standing(tally.standing(program.name))
        try:
            gobuild.build(program, go, scratch, env=env, compiled=compiled)
            _install(scratch, folder / program.name)
        finally:
            scratch.unlink(missing_ok=True)
        tally.finished(program)
        entry = Entry(
            sha256=cache_manifest.digest(folder / program.name),
            size=(folder / program.name).stat().st_size,
            module=program.module,
            version=program.version,
            recipe=recipes[program],
            go=go.version,
        )
        cache_manifest.record(folder, program.name, entry)
        show.note(f"{program.name} {program.version} is done.")


def _install(scratch: Path, target: Path) -> None:
    scratch.chmod(0o755)
    with scratch.open("rb") as file:
        os.fsync(file.fileno())
    scratch.replace(target)


class BuildCounts:
    """Counts packages over all programs; those that programs share count once."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock, self._start = clock, clock()
        self._expected: dict[str, frozenset[str]] = {}  # program -> packages to compile
        self._done: set[str] = set()
        self._linked: set[str] = set()

    def expect(self, program: Program, packages: frozenset[str]) -> None:
        self._expected[program.name] = packages

    def compiled(self, package: str) -> None:
        self._done.add(package)

    def finished(self, program: Program) -> None:
        self._done |= self._expected[program.name]
        self._linked.add(program.name)

    def standing(self, program: str) -> BuildProgress:
        everything = frozenset[str]().union(*self._expected.values())
        return BuildProgress(
            program,
            done=len(self._done & everything),
            total=len(everything),
            linked=len(self._linked),
            programs=len(self._expected),
            elapsed=self._clock() - self._start,
        )
