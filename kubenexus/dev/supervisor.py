"""
The process that owns a plane: every other process of it is its child and ends with it.

    binaries --> control plane --> nodes --> webhook, scheduler --> up --SIGTERM--> all stopped
                                                                    |  ^
                                              a child exited ------ +  | restarted, after a
                                                                    +--+ growing delay

It holds the lock of the plane's folder as long as it lives.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Final

from kubenexus.clusterfile import load
from kubenexus.dev import state
from kubenexus.dev.binaries import locate
from kubenexus.dev.binaries.progress import Show
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process.child import Child
from kubenexus.dev.stack import Stack
from kubenexus.dev.state import Process, State

POLL: Final = 0.5
LONGEST_PAUSE: Final = 30.0


class Stop(BaseException):
    """A signal arrived. Not an `Exception`, so that no handler swallows it."""


@dataclass(frozen=True, slots=True)
class PlaneOptions:
    """The options of `up`."""

    kubernetes: str
    nodes: int
    cluster: Path | None
    webhook: bool
    scheduler: bool
    kube_scheduler: bool
    """The stock scheduler, for pods that do not name ours."""

    def described(self) -> load.Cluster:
        return load.load(self.cluster) if self.cluster else load.plain(self.nodes)


def pause(restarts: int) -> float:
    """Seconds before the n-th restart of a child."""
    return min(2.0**restarts - 1.0, LONGEST_PAUSE)


def supervise(folder: Path, options: PlaneOptions, *, env: Mapping[str, str], show: Show) -> None:
    """Run the plane until a signal ends it. Errors go to the state, where `up` reads them."""
    with state.locked(folder):
        state.clear(folder)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _stop)
        supervisor = Supervisor(folder, options, env=env, show=show)
        try:
            supervisor.run()
        except Stop:
            state.clear(folder)
        except BaseException as exc:
            supervisor.report(str(exc) or type(exc).__name__, phase=state.FAILED)
            raise


def _stop(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the shutdown.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise Stop


class Supervisor:
    def __init__(
        self,
        folder: Path,
        options: PlaneOptions,
        *,
        env: Mapping[str, str],
        show: Show,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._options = options
        self._env = env
        self._show = show
        self._clock = clock
        self._sleep = sleep
        pid = os.getpid()
        own = Process("supervisor", pid, state.start_time(pid))
        self._state = State(state.STARTING, "", own, options.kubernetes)
        self._restarts: dict[str, int] = {}  # component -> number of restarts
        self._due: dict[str, float] = {}  # component -> time of its next start

    def report(
        self, step: str, *, phase: str | None = None, server: str = "", kubectl: str = ""
    ) -> None:
        """Report a step to `up`, which polls the state, and to the log."""
        known = self._state
        self._state = replace(
            known,
            step=step,
            phase=phase or known.phase,
            server=server or known.server,
            kubectl=kubectl or known.kubectl,
        )
        state.write(self._folder, self._state)
        self._show.note(step)

    def run(self) -> None:
        self.report("Locating the programs")
        binaries = locate.get(self._options.kubernetes, env=self._env, show=self._show)
        described = self._options.described()
        self.report("Starting the control plane", kubectl=str(binaries.kubectl))
        with ControlPlane(binaries=binaries, folder=self._folder) as plane:
            self.report(f"Creating {len(described.nodes)} nodes", server=plane.server)
            plane.api().each(plane.api().apply, described.namespaces)
            plane.add_nodes(described.nodes)
            self.report("Starting the webhook and the schedulers")
            if self._options.kube_scheduler:
                plane.start_kube_scheduler()
            with Stack(
                plane, webhook=self._options.webhook, scheduler=self._options.scheduler
            ) as stack:
                self._write_components(plane, stack)
                self.report("Everything is ready", phase=state.UP)
                self._watch(plane, stack)

    def _watch(self, plane: ControlPlane, stack: Stack) -> None:
        while True:
            for child in (*plane.children, *stack.children):
                if not child.alive and self._restart(child):
                    self._write_components(plane, stack)
            self._sleep(POLL)

    def _restart(self, child: Child) -> bool:
        """Restart a child that exited, once its delay is over."""
        restarts = self._restarts.get(child.name, 0)
        due = self._due.setdefault(child.name, self._clock() + pause(restarts))
        if self._clock() < due:
            return False
        self._show.note(f"{child.name} exited with code {child.exit_code}; restarting it")
        del self._due[child.name]
        self._restarts[child.name] = restarts + 1
        child.start()
        return True

    def _write_components(self, plane: ControlPlane, stack: Stack) -> None:
        urls = {**plane.health_urls(), **stack.health_urls()}
        components = tuple(
            Process(
                child.name,
                child.pid,
                state.start_time(child.pid),
                url=urls[child.name],
                restarts=self._restarts.get(child.name, 0),
            )
            for child in (*plane.children, *stack.children)
            if child.pid is not None
        )
        self._state = replace(self._state, components=components)
        state.write(self._folder, self._state)
