"""
The control plane of the comparison: etcd and an API server, fake nodes, one scheduler at a time.

No controller manager and no kwok: only the measured scheduler writes. Nodes and pods are plain
objects; the feature gates of native gang scheduling are always on in the API server, so that all
schedulers have the same one. Every process is a child that ends with this process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubenexus import rbac
from kubenexus.dev.api import Api, Object
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import StartFailed
from kubenexus.dev.plane import flags, key_files
from kubenexus.dev.plane.control_plane import (
    APISERVER,
    KUBE_SCHEDULER,
    ControlPlane,
    await_ready,
    healthy,
)
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child
from policies import vocabulary
from tests.bench import scheduler_cases as cases
from tests.bench.scheduler_cases import Peer

ROOT: Final = Path(__file__).parents[2]
APISERVER_FLAGS: Final = (
    f"--feature-gates={','.join(f'{gate}=true' for gate in cases.GATES)}",
    f"--runtime-config={cases.GROUP_API}=true",
    # No controller creates service accounts, and no kubelet reports: node objects are created Ready.
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    "--delete-collection-workers=8",
)
PODS: Final = f"/api/v1/namespaces/{cases.NAMESPACE}/pods"
GROUPS: Final = f"/apis/{cases.GROUP_API}/namespaces/{cases.NAMESPACE}/podgroups"
EVENTS: Final = f"/apis/events.k8s.io/v1/namespaces/{cases.NAMESPACE}/events"


class Plane(ControlPlane):
    """A control plane of two processes; see the module."""

    def __init__(self, *, binaries: Binaries, folder: Path) -> None:
        super().__init__(
            binaries=binaries, folder=folder, for_tests=True, apiserver_flags=APISERVER_FLAGS
        )

    def _start(self) -> None:
        at = self.layout
        at.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ports = flags.Ports(*ports.free(6))
        self._ca = key_files.make(at, server=self.server, now=self._now())
        self._launch("etcd", flags.etcd(at, self.ports, unsafe_no_fsync=True))
        self._launch(APISERVER, [*flags.apiserver(at, self.ports), *self._apiserver_flags])
        self._wait(APISERVER, lambda: self.api().ready(), also=("etcd",))
        self._set_up()
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cases.NAMESPACE}}
        self.api().apply(space)

    def process(self, name: str) -> int:
        pid = next(child.pid for child in self.children if child.name == name)
        assert pid is not None
        return pid

    # --- objects ---

    def add(self, path: str, items: Iterable[Object]) -> None:
        """Create many objects at once; the first failure is raised."""
        self.api().each(lambda item: self.api().call("POST", path, item), items)

    def clear(self) -> None:
        """Take away what one measurement left: pods, groups and Events."""
        # A connection of its own: a kept one has the short patience it was opened with.
        api = _admin(self)
        try:
            for path in (PODS, GROUPS, EVENTS):
                self._empty(api, path)
        finally:
            api.close()

    def _empty(self, api: Api, path: str) -> None:
        end = time.monotonic() + 120
        while left := self.count(path):
            if time.monotonic() > end:
                raise StartFailed(f"{left} objects of {path} do not go away")
            api.call("DELETE", f"{path}?gracePeriodSeconds=0", timeout=300)
            for item in api.call("GET", f"{path}?limit=5000", timeout=300)["items"]:
                if item["metadata"].get("finalizers"):
                    # Its controller does not run here.
                    api.call(
                        "PATCH",
                        f"{path}/{item['metadata']['name']}",
                        {"metadata": {"finalizers": None}},
                        content_type="application/merge-patch+json",
                        timeout=300,
                    )

    def metrics(self) -> str:
        """What the API server counts about itself."""
        got = self.kubectl("get", "--raw", "/metrics")
        if got.returncode:
            raise StartFailed(f"the API server gives no metrics: {got.stderr}")
        return got.stdout

    def count(self, path: str) -> int:
        page = self.api().call("GET", f"{path}?limit=1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)


def _admin(plane: Plane) -> Api:
    at = plane.layout
    return Api(
        plane.server,
        ca=at.certificate("ca"),
        certificate=at.certificate(rbac.ADMIN),
        key=at.key(rbac.ADMIN),
    )


def warm_up(binaries: Binaries) -> None:
    """Bytecode is written and the binary is in the page cache before anything is measured."""
    subprocess.run([binaries.path(KUBE_SCHEDULER), "--version"], check=True, capture_output=True)
    code = "import kubenexus.cli, kubenexus.json_logs, scheduler.app"
    subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, env=self_exec.environment(os.environ)
    )


# --- processes ---


def scheduler(plane: Plane, peer: Peer, log: Path) -> tuple[Child, str]:
    """The scheduler as a process that is not started yet, and where it says that it is well."""
    if peer.ours:
        (port,) = ports.free(1)
        argv = [
            *self_exec.COMMAND,
            "scheduler",
            f"--kubeconfig={plane.kubeconfig(vocabulary.SCHEDULER_NAME)}",
            f"--host={ports.HOST}",
            f"--port={port}",
        ]
        child = Child(peer.name, argv, log=log, env=self_exec.environment(os.environ))
        return child, f"http://{ports.HOST}:{port}/readyz"
    config = log.with_suffix(".json")
    config.write_text(json.dumps(cases.configuration(peer, plane.kubeconfig(rbac.KUBE_SCHEDULER))))
    argv = [
        plane.binaries.path(KUBE_SCHEDULER),
        *flags.scheduler(plane.layout, plane.ports, user=rbac.KUBE_SCHEDULER, config=config),
        *(
            [f"--feature-gates={','.join(f'{gate}=true' for gate in peer.gates)}"]
            if peer.gates
            else []
        ),
        "-v=0",
    ]
    url = f"https://{ports.HOST}:{plane.ports.scheduler}/readyz"
    return Child(peer.name, argv, log=log), url


def await_healthy(child: Child, url: str, *, deadline: float = 60.0) -> None:
    await_ready([child], lambda: healthy(url), deadline=deadline)


@contextmanager
def running(child: Child) -> Iterator[Child]:
    child.start()
    try:
        yield child
    finally:
        child.stop(grace=10)


class Watcher:
    """The witness process and what it wrote so far."""

    def __init__(self, plane: Plane, log: Path) -> None:
        at = plane.layout
        self.created: dict[str, float] = {}  # pod -> when it was first seen waiting
        self.bound: dict[str, tuple[float, str]] = {}  # pod -> when, and its node
        self.cuts = 0
        self._ready = False
        self._place = 0
        self.child = Child(
            "watcher",
            [
                sys.executable,
                "-P",
                "-m",
                "tests.bench.scheduler_watcher",
                plane.server,
                str(at.certificate("ca")),
                str(at.certificate(rbac.ADMIN)),
                str(at.key(rbac.ADMIN)),
                cases.NAMESPACE,
            ],
            log=log,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def await_ready(self) -> None:
        def ready() -> bool:
            self.read()
            return self._ready

        await_ready([self.child], ready, deadline=60)

    def read(self) -> None:
        """Take in what was written since the last time."""
        with self.child.log.open("rb") as file:
            file.seek(self._place)
            data = file.read()
        whole, newline, _ = data.rpartition(b"\n")
        self._place += len(whole) + len(newline)
        for line in whole.decode().splitlines():
            self._take(line.split(" "))

    def _take(self, words: list[str]) -> None:
        match words:
            case ["ready"]:
                self._ready = True
            case ["created", at, pod]:
                self.created.setdefault(pod, float(at))
            case ["bound", at, pod, node]:
                self.bound.setdefault(pod, (float(at), node))
            case ["cut", _]:
                self.cuts += 1
            case ["deleted", *_]:
                pass
            case _:
                raise StartFailed(f"the watcher said {' '.join(words)!r}: {self.child.tail()}")

    def wait_for(
        self, pods: int, *, deadline: float, stall: float, alive: Callable[[], bool]
    ) -> None:
        """Until so many are bound, or nothing was bound for `stall` seconds, or time is over."""
        end, last, seen = time.monotonic() + deadline, time.monotonic(), -1
        while len(self.bound) < pods and time.monotonic() < end and alive():
            time.sleep(0.05)
            self.read()
            if len(self.bound) != seen:
                seen, last = len(self.bound), time.monotonic()
            elif time.monotonic() - last > stall:
                return
