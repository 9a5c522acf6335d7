"""
Start, inspect and stop a plane that a supervisor owns.

`up` and `down` may be repeated; `down` also cleans up after a supervisor that was killed.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kubenexus import rbac
from kubenexus.dev import state
from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed, StartFailed, UsageError
from kubenexus.dev.plane import fake_nodes
from kubenexus.dev.plane.control_plane import healthy
from kubenexus.dev.plane.flags import Layout
from kubenexus.dev.process import self_exec
from kubenexus.dev.process.child import tail
from kubenexus.dev.state import Process, State

POLL: Final = 0.1
START_DEADLINE: Final = 180.0
STOP_DEADLINE: Final = 20.0

PrintLine = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Health:
    process: Process
    alive: bool
    ready: bool


@dataclass(frozen=True, slots=True)
class Status:
    name: str
    phase: str
    """`up`, `starting`, `failed`, `degraded` or `down`."""
    step: str = ""
    kubernetes: str = ""
    server: str = ""
    kubeconfig: str = ""
    nodes_ready: int = 0
    supervisor: int = 0
    components: tuple[Health, ...] = ()

    @property
    def well(self) -> bool:
        return self.phase == state.UP

    def as_dict(self) -> dict[str, object]:
        components = [
            {**asdict(each.process), "alive": each.alive, "ready": each.ready}
            for each in self.components
        ]
        plain = {field: getattr(self, field) for field in self.__slots__ if field != "components"}
        return {**plain, "well": self.well, "components": components}


def start(
    folder: Path, arguments: Sequence[str], *, env: Mapping[str, str], print_line: PrintLine
) -> bool:
    """Start a supervisor and wait until all is ready; False when there was one already."""
    if _phase(folder) == state.UP:
        return False
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / state.SUPERVISOR_LOG
    process: subprocess.Popen[bytes] | None = None
    if not state.is_supervised(folder):
        (folder / state.FILE).unlink(missing_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self_exec.COMMAND, "dev", "supervise", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self_exec.environment(env),
            )
    try:
        _follow(folder, process, print_line=print_line)
    except BaseException:
        if process is not None:
            stop(folder)
            process.wait()
        raise
    if process is not None:
        # The supervisor stays; this suppresses the warning about a child that was not waited for.
        process.returncode = 0
    return process is not None


def _phase(folder: Path) -> str:
    saved = state.read(folder)
    return saved.phase if saved and state.is_supervised(folder) else ""


def _follow(
    folder: Path, process: subprocess.Popen[bytes] | None, *, print_line: PrintLine
) -> None:
    end, step = time.monotonic() + START_DEADLINE, ""
    while True:
        ended = process.poll() is not None if process else not state.is_supervised(folder)
        saved = state.read(folder)
        if saved and saved.phase == state.FAILED:
            raise StartFailed(saved.step)
        if saved and saved.step != step:
            step = saved.step
            print_line(step)
        if saved and saved.phase == state.UP:
            return
        if ended:
            log = folder / state.SUPERVISOR_LOG
            raise StartFailed(f"the supervisor exited. The end of {log}:\n{tail(log)}")
        if time.monotonic() > end:
            raise StartFailed(f"not ready within {START_DEADLINE:g} s; the last step was: {step}")
        time.sleep(POLL)


def stop(folder: Path) -> list[Process]:
    """Stop the plane; returns the processes that were still running."""
    saved = state.read(folder)
    processes = [saved.supervisor, *saved.components] if saved else []
    running = [process for process in processes if state.lives(process)]
    if saved and saved.supervisor in running:
        _end(saved.supervisor, signal.SIGTERM)
        _wait(lambda: not state.is_supervised(folder), STOP_DEADLINE)
    for process in running:
        if state.lives(process):
            _end(process, signal.SIGKILL)
    _wait(lambda: not any(map(state.lives, running)), STOP_DEADLINE)
    state.clear(folder)
    return running


def _end(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _wait(done: Callable[[], bool], deadline: float) -> None:
    end = time.monotonic() + deadline
    while not done() and time.monotonic() < end:
        time.sleep(POLL)


def inspect(name: str, folder: Path) -> Status:
    saved = state.read(folder)
    if saved is None:
        return Status(name, "down")
    if not state.is_supervised(folder):
        if saved.phase == state.FAILED:
            return Status(name, state.FAILED, step=saved.step, kubernetes=saved.kubernetes)
        step = "the supervisor was killed; `kubenexus dev down` cleans up"
        return Status(name, "down", step=step, kubernetes=saved.kubernetes)
    if saved.phase != state.UP:
        return Status(name, saved.phase, step=saved.step, kubernetes=saved.kubernetes)
    return _probe(name, folder, saved)


def _probe(name: str, folder: Path, saved: State) -> Status:
    api = admin(folder, saved)
    health = tuple(_health(process, api, saved.server) for process in saved.components)
    try:
        ready = len(fake_nodes.usable(api))
    except (OSError, http.client.HTTPException, CallFailed):
        ready = 0
    finally:
        api.close()
    well = all(each.ready for each in health)
    return Status(
        name,
        state.UP if well else "degraded",
        step=saved.step if well else "not every process is ready; see `kubenexus dev logs`",
        kubernetes=saved.kubernetes,
        server=saved.server,
        kubeconfig=str(Layout(folder).kubeconfig(rbac.ADMIN)),
        nodes_ready=ready,
        supervisor=saved.supervisor.pid,
        components=health,
    )


def _health(process: Process, api: Api, server: str) -> Health:
    alive = state.lives(process)
    if process.url.startswith(server):
        # The API server's detailed health needs the admin's rights.
        return Health(process, alive, alive and api.ready(process.url.removeprefix(server)))
    return Health(process, alive, alive and healthy(process.url))


def admin(folder: Path, saved: State) -> Api:
    at = Layout(folder)
    return Api(
        saved.server,
        ca=at.certificate("ca"),
        certificate=at.certificate(rbac.ADMIN),
        key=at.key(rbac.ADMIN),
    )


def kubectl(folder: Path, name: str, user: str) -> tuple[str, Path]:
    """The kubectl to run and the kubeconfig to run it with."""
    saved = state.read(folder)
    if saved is None or not state.is_supervised(folder):
        raise StartFailed(f"the plane {name!r} is not up; `kubenexus dev up` starts it.")
    path = Layout(folder).kubeconfig(user)
    if not path.exists():
        known = ", ".join(each.name for each in rbac.USERS)
        raise UsageError(f"there is no user {user!r} on this cluster; there are {known}.")
    return saved.kubectl, path
