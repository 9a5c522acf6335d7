"""
One child process, with its output in a log file.

    new --start--> running --stop / kill--> exited
                      |                       ^
                      +------- it exits ------+

Every child ends with this process (see `die_with_parent`). The kernel ties that to the *thread*
that forked, so one thread, which lives as long as this process, forks all children. Each child
leads its own session, so that its own children stop with it.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from kubenexus.dev.process import die_with_parent

TAIL_LINES: Final = 15
TAIL_BYTES: Final = 4096


@functools.cache
def _spawner() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


def _spawn(argv: Sequence[str], log: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )


class Child:
    def __init__(
        self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self.log = log
        self._env = dict(os.environ if env is None else env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        if self.alive:
            raise RuntimeError(f"{self.name} runs already as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._process = _spawner().submit(_spawn, self.argv, self.log, self._env).result()

    def stop(self, *, grace: float = 3.0) -> None:
        """Ask to end; after `grace` seconds, end it. Its helpers are ended with it."""
        if self._process is None:
            return
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash of the machine would."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def tail(self) -> str:
        return tail(self.log)


def stop_all(children: Sequence[Child], *, grace: float = 3.0) -> None:
    """Stop several at once, so that the slowest of them sets the time and not their sum."""
    for child in children:
        if child.alive and child.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGTERM)
    end = time.monotonic() + grace
    while any(child.alive for child in children) and time.monotonic() < end:
        time.sleep(0.02)
    for child in children:
        child.kill()


def tail(log: Path) -> str:
    """The last lines of a log, bounded."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-TAIL_LINES:])
