"""
The processes under attack, inspected four times a second: which ended, when, and what it said.

A process that ended is started again, as a kubelet would, and so is a webhook whose workers end
one after another. Before a scheduler starts, the pods of the hostile namespace are deleted: what
ended it must not hide what ends it next.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kubenexus.dev.plane.control_plane import healthy
from kubenexus.dev.process.child import Child

PERIOD: Final = 0.25  # seconds
HEALTH_PERIOD: Final = 1.0
STARTUP: Final = 20.0  # seconds after a start in which a silent process is no news
MOST_WORKERS: Final = 3  # ends of workers after which their webhook is started again
MOST_ENDS: Final = 40  # of all processes: more add nothing, and the run stops
LAST_ERROR: Final = re.compile(r"^[ |]*(\w[\w.]*(?:Error|Exception|Lost): .*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class End:
    """One process that ended while it should not have."""

    process: str
    sent: int
    """How many hostile requests had been sent by then."""
    said: str
    """The last error in its log, or its last line."""


@dataclass(slots=True)
class Watched:
    child: Child
    health: str = ""
    workers: bool = False
    """Its own children are counted as processes too."""
    pids: frozenset[int] = frozenset()
    started: float = 0.0
    answered: float = 0.0
    longest_silence: float = 0.0
    lost_workers: int = 0  # since the last start
    revival: threading.Thread | None = None
    mark: int = 0  # bytes of the log that were read


class Census:
    """Runs inside `with`. `sent` says how far the attack is; `before_revival` cleans up."""

    def __init__(
        self,
        watched: Sequence[Watched],
        *,
        sent: Callable[[], int],
        before_revival: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watched = list(watched)
        self.ends: list[End] = []
        self._sent, self._clean, self._clock = sent, before_revival, clock
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, daemon=True),
            *(
                threading.Thread(target=self._probe, args=(one,), daemon=True)
                for one in self.watched
                if one.health
            ),
        ]
        for one in self.watched:
            one.pids = workers_of(one.child) if one.workers else frozenset()
            one.started = one.answered = clock()
            one.mark = _size(one.child.log)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        self.inspect()

    @property
    def hopeless(self) -> bool:
        return len(self.ends) >= MOST_ENDS

    def silences(self) -> dict[str, float]:
        """Process -> the longest time in seconds in which its health endpoint did not answer."""
        return {one.child.name: round(one.longest_silence, 1) for one in self.watched if one.health}

    def cpu_seconds(self) -> dict[str, float]:
        """Process -> the CPU that it and its workers used since their start."""
        return {
            one.child.name: round(sum(map(_cpu, (one.child.pid, *workers_of(one.child)))), 1)
            for one in self.watched
        }

    def inspect(self) -> None:
        for one in self.watched:
            if one.revival is not None and one.revival.is_alive():
                continue
            if not one.child.alive:
                self._ended(one, f"{one.child.name} (exit code {one.child.exit_code})")
                self._revive(one)
            elif one.workers:
                pids = workers_of(one.child)
                for pid in sorted(one.pids - pids):
                    self._ended(one, f"{one.child.name} worker", pid)
                one.lost_workers += len(one.pids - pids)
                one.pids = pids
                if one.lost_workers >= MOST_WORKERS:
                    one.child.kill()
                    self._revive(one)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD):
            self.inspect()

    def _ended(self, one: Watched, process: str, pid: int | None = None) -> None:
        # The log of a process that was ended comes a moment later.
        time.sleep(PERIOD)
        self.ends.append(End(process, self._sent(), _said(one, pid)))

    def _revive(self, one: Watched) -> None:
        if not (self.hopeless or self._stop.is_set()):
            one.revival = threading.Thread(target=self._start, args=(one,), daemon=True)
            one.revival.start()

    def _start(self, one: Watched) -> None:
        if not one.workers:  # the webhook keeps no object in mind
            self._clean()
        one.child.start()
        one.started = one.answered = self._clock()
        one.lost_workers = 0
        if one.workers:
            time.sleep(PERIOD)
            one.pids = workers_of(one.child)

    def _probe(self, one: Watched) -> None:
        while not self._stop.wait(HEALTH_PERIOD):
            answers = healthy(one.health)
            now = self._clock()
            if answers:
                one.longest_silence = max(one.longest_silence, now - one.answered - HEALTH_PERIOD)
                one.answered = now
            elif now - one.started > STARTUP:
                one.longest_silence = max(one.longest_silence, now - one.answered)


def workers_of(child: Child) -> frozenset[int]:
    """The processes that a process forked and that still run."""
    try:
        listed = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text()
    except OSError:
        return frozenset()
    return frozenset(map(int, listed.split()))


def _cpu(pid: int | None) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The second field is the command in brackets and may hold anything; user and system time
    # are the twelfth and thirteenth after it.
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _said(one: Watched, pid: int | None) -> str:
    """What the log says about it since it was last read: the error, or the last line."""
    with one.child.log.open("rb") as file:
        file.seek(one.mark)
        text = file.read().decode(errors="replace")
    one.mark = _size(one.child.log)
    if pid is not None:
        lines = [line for line in text.splitlines() if str(pid) in line]
        return lines[-1][:300] if lines else ""
    errors = LAST_ERROR.findall(text)
    lines = text.splitlines()
    return (errors[-1] if errors else lines[-1] if lines else "")[:300]
