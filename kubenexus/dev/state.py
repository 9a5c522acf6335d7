"""
The state of one running plane, in its folder, for later commands.

    nothing --supervisor takes the lock--> starting --> up --> nothing
                                              +------> failed

The lock file shows whether a supervisor runs: the kernel frees it when the process ends for any
reason. `state.json` has the rest, and may be stale after the supervisor was killed. A process is
identified by its id and its start time, so that a reused id does not match.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kubenexus.dev import paths
from kubenexus.dev.errors import DevError, UsageError

FILE: Final = "state.json"
LOCK: Final = "lock"
SUPERVISOR_LOG: Final = "supervisor.log"
STARTING: Final = "starting"
UP: Final = "up"
FAILED: Final = "failed"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
# These stay after `down`, for troubleshooting.
_KEPT: Final = frozenset({"logs", LOCK, SUPERVISOR_LOG})


class AlreadyRunning(DevError):
    pass


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    pid: int
    started: int
    """The kernel's count of ticks at its start; 0 where the system does not tell."""
    url: str = ""
    """Where it says whether it is well."""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class State:
    phase: str
    step: str
    """What is being done, or why it failed."""
    supervisor: Process
    kubernetes: str
    server: str = ""
    kubectl: str = ""
    components: tuple[Process, ...] = ()


def folder_of(name: str, env: Mapping[str, str]) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name for a plane; accepted are small letters, digits and '-' "
            "between them, 40 at most."
        )
    return paths.state(env, name)


def read(folder: Path) -> State | None:
    try:
        document = json.loads((folder / FILE).read_text())
        supervisor = Process(**document.pop("supervisor"))
        components = tuple(Process(**each) for each in document.pop("components"))
        return State(supervisor=supervisor, components=components, **document)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(folder: Path, state: State) -> None:
    scratch = folder / f".{FILE}.tmp"
    scratch.write_text(json.dumps(asdict(state), indent=2) + "\n")
    scratch.replace(folder / FILE)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the one supervisor of this folder; `AlreadyRunning` when there is one."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise AlreadyRunning(f"the plane in {folder} is up already.") from exc
        yield


def is_supervised(folder: Path) -> bool:
    if not (folder / LOCK).exists():
        return False
    try:
        with locked(folder):
            return False
    except AlreadyRunning:
        return True


def clear(folder: Path) -> None:
    """Remove the data, keys and kubeconfigs of a stopped plane."""
    if not folder.exists():
        return
    for entry in folder.iterdir():
        if entry.name in _KEPT:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def start_time(pid: int) -> int:
    """When a process started, in ticks; 0 where it has ended or the system has no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The second field is the command in brackets and may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    # A zombie (Z) is listed until its parent reads its exit code.
    return 0 if fields[0] in "ZX" else int(fields[19])


def lives(process: Process) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return process.started == 0
    return start_time(process.pid) == process.started
