"""
Progress of a build, and two displays of it.

Progress is counted in packages: Go lists those to compile and names each as it starts. Linking a
program counts as several packages. The time left is extrapolated from the rate so far.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

LINK: Final = 40
"""What linking one program costs, in packages."""
# Earlier the rate is dominated by Go's start.
EARLIEST_GUESS: Final = 5.0


@dataclass(frozen=True, slots=True)
class BuildProgress:
    program: str
    """The one that is being built."""
    done: int
    total: int
    """Packages over all programs; those that programs share count once."""
    linked: int
    programs: int
    elapsed: float

    @property
    def share(self) -> float:
        """How much of the work is done, from 0 to 1."""
        work = self.total + LINK * self.programs
        return (self.done + LINK * self.linked) / work if work else 1.0

    @property
    def left(self) -> float | None:
        """Seconds, once the rate is known."""
        if self.share == 0 or self.elapsed < EARLIEST_GUESS:
            return None
        return self.elapsed / self.share - self.elapsed

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {clock_time(self.left)} left"
        return (
            f"{self.program}  {self.done}/{self.total} packages  "
            f"{clock_time(self.elapsed)} elapsed{left}"
        )


def clock_time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


class Show(Protocol):
    def note(self, line: str) -> None:
        """A line that stays on the screen."""

    def standing(self, standing: BuildProgress) -> None: ...


class Lines:
    """A line every few seconds, for logs."""

    def __init__(
        self,
        print_line: Callable[[str], None],
        *,
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._print_line = print_line
        self._every = every
        self._clock = clock
        self._last: tuple[str, float] = ("", clock())

    def note(self, line: str) -> None:
        self._print_line(line)

    def standing(self, standing: BuildProgress) -> None:
        program, at = self._last
        if program != standing.program or self._clock() - at >= self._every:
            self._last = (standing.program, self._clock())
            self._print_line(str(standing))


class Bar:
    """A bar that moves, for a terminal."""

    def __init__(self, console: Console) -> None:
        columns = BarColumn(), TextColumn("{task.description}", markup=False)
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def note(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)

    def standing(self, standing: BuildProgress) -> None:
        if self._task is None:
            self._task = self._progress.add_task(str(standing))
        self._progress.update(
            self._task,
            description=str(standing),
            completed=standing.share,
            total=1.0,
        )
