"""
The policies being served, and the faults of a newer set that the store rejected.

    files ────poll──────────┐
                            ├──▶ PolicyLoader ──compiled──▶ Store.offer
    objects ──put_objects───┘

    offer(good)  --> current = new,  faults = none
    offer(bad)   --> current = old,  faults = its faults     the last good set stays in force

`FileWatch` compares names, times, sizes, inodes and link targets to find out whether files changed,
without reading them. A mounted ConfigMap changes by one symbolic link being swapped; a folder that
changes while it is read is read again. It has no thread and no clock of its own: the server polls.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies.cel import engines
from policies.documents.faults import Fault
from policies.engine import loader
from policies.engine.compiler import Compiler
from policies.engine.loader import LoadResult, Reading
from policies.engine.policyset import PolicySet
from policies.engine.status import Loaded
from policies.json_fields import Json

logger = logging.getLogger(__name__)

_TRIES: Final = 3

Fingerprint = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The set in force and since when, and the faults of a set that was rejected since."""

    digest: str
    policies: int
    generation: int
    loaded_at: float | None
    faults: tuple[Fault, ...] = ()

    @property
    def ready(self) -> bool:
        """A set was taken at some time; a later rejected one does not change that."""
        return self.loaded_at is not None


class Store:
    """Holds the policies in force. One writer offers; readers take `current` once a request."""

    def __init__(self) -> None:
        self._current = PolicySet()
        self._status = Status("", 0, 0, None)

    @property
    def current(self) -> PolicySet:
        return self._current

    def status(self) -> Status:
        return self._status

    def offer(self, result: LoadResult, *, at: float) -> bool:
        """Take the set where it has no faults; otherwise keep the last good one and its faults."""
        before = self._status
        if not result.ok:
            self._status = Status(
                before.digest,
                before.policies,
                before.generation,
                before.loaded_at,
                result.problems,
            )
            return False
        policies = result.policies
        changed = before.loaded_at is None or policies.digest != before.digest
        generation = before.generation + changed
        self._current = policies
        self._status = Status(policies.digest, len(policies.policies), generation, at)
        return True


class FileWatch:
    """Reads files again when they changed since the last look."""

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        read: Callable[[Iterable[Path]], Reading] = loader.read_files,
    ) -> None:
        self._paths = tuple(paths)
        self._read = read
        self._seen: Fingerprint | None = None

    def poll(self) -> Reading | None:
        """The documents of the files, or None where nothing changed."""
        before = fingerprint(self._paths)
        if before == self._seen:
            return None
        for _ in range(_TRIES):
            reading = self._read(self._paths)
            after = fingerprint(self._paths)
            if after == before:
                break
            before = after
        self._seen = before
        return reading


class PolicyLoader:
    """
    Loads files and policy objects as one set.

    With `wait_for_objects` nothing is loaded before the first `put_objects`: the set would be
    incomplete. The policies of `fallback` are in force until a set without faults comes.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        *,
        wait_for_objects: bool = False,
        fallback: Iterable[Path] | None = None,
        engine: str | None = None,
    ) -> None:
        self.store = Store()
        self._files = FileWatch(paths)
        self._reading = Reading()
        self._objects: Sequence[Json] | None = None if wait_for_objects else ()
        self._new_objects: Sequence[Json] | None = None
        self._fallback = fallback
        self._engine = engine

    @property
    def objects(self) -> Sequence[Json]:
        """The objects of the last load."""
        return self._objects or ()

    def put_objects(self, objects: Sequence[Json]) -> None:
        """The policy objects of the API server as they are now; safe from any thread."""
        self._new_objects = objects

    def load(self, *, at: float) -> Loaded | None:
        """Load the set if files or objects changed; None: nothing was loaded."""
        new_objects, self._new_objects = self._new_objects, None
        reading = self._files.poll()
        if reading is None and new_objects is None:
            return None
        self._reading = self._reading if reading is None else reading
        self._objects = self._objects if new_objects is None else new_objects
        if self._objects is None:
            return None
        result = self._compile_new(self._reading)
        if not (result.ok or self.store.status().ready) and self._fallback is not None:
            self.store.offer(self._compile(loader.read_files(self._fallback)), at=at)
        return Loaded(self.store.offer(result, at=at), result.problems)

    def _compile_new(self, files: Reading) -> LoadResult:
        """An error of this program is a fault of the set, as any other: the last good set stays."""
        try:
            return self._compile(files + loader.read_objects(self._objects or ()))
        except Exception as error:
            logger.error("policies cannot be compiled", exc_info=error)
            text = f"the set cannot be compiled: {type(error).__name__}: {error}"
            return LoadResult(PolicySet.of([]), (Fault("policies", 0, 0, "", text),))

    def _compile(self, reading: Reading) -> LoadResult:
        # A compiler of its own for each set: its memory goes with the set that used it.
        return loader.compile_all(reading, compiler=Compiler(engines.engine(self._engine)))


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Different whenever the files may be; a file that is gone has one too."""
    rows: list[tuple[str, ...]] = []
    for path in paths:
        rows += [(str(file), *_facts(file)) for file in loader.files_of(path)]
    return tuple(rows)


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _facts(path: Path) -> tuple[str, ...]:
    try:
        stat = path.stat()
    except OSError as exc:
        return (type(exc).__name__,)
    return (str(stat.st_mtime_ns), str(stat.st_size), str(stat.st_ino), _link(path))
