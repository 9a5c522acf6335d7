"""
A control plane: etcd, kube-apiserver, kube-controller-manager and kwok as children of this process.

    etcd + kube-apiserver --> namespaces and roles --> controller manager + kwok --> up

The stock kube-scheduler is a peer that can be started beside them. Nothing outlives this process:
`stop` ends everything, and the kernel does so when the process is killed.
The KubeNexus webhook and scheduler are in `stack`.
"""

import contextlib
import http.client
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from kubenexus import rbac
from kubenexus.dev.api import Api, Object
from kubenexus.dev.binaries.locate import Binaries
from kubenexus.dev.errors import CallFailed, StartFailed, UsageError
from kubenexus.dev.plane import fake_nodes, flags, key_files
from kubenexus.dev.plane.flags import Layout, Ports
from kubenexus.dev.process import ports
from kubenexus.dev.process.child import Child, stop_all
from kubenexus.pki import KeyPair

ATTEMPTS: Final = 3
POLL: Final = 0.05
APISERVER: Final = "kube-apiserver"
KUBE_SCHEDULER: Final = "kube-scheduler"
STAGES: Final = Path(__file__).with_name("stages.yaml")


class PortTaken(StartFailed):
    """Another process took a port between its choice and its use."""


class ControlPlane:
    def __init__(
        self,
        *,
        binaries: Binaries,
        folder: Path,
        for_tests: bool = False,
        apiserver_flags: Sequence[str] = (),
        deadline: float = 60.0,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.binaries, self.layout = binaries, Layout(folder)
        self._for_tests, self._apiserver_flags = for_tests, tuple(apiserver_flags)
        self._deadline, self._now = deadline, now
        self._apis: dict[str, Api] = {}
        self._children: dict[str, Child] = {}  # component -> its process
        self._ports: Ports | None = None
        self._ca: KeyPair | None = None

    # --- access to a running plane ---

    @property
    def folder(self) -> Path:
        return self.layout.root

    @property
    def kubernetes(self) -> str:
        return self.binaries.kubernetes

    @property
    def ports(self) -> Ports:
        if self._ports is None:
            raise RuntimeError("the control plane was not started")
        return self._ports

    @property
    def ca(self) -> KeyPair:
        """The authority under which the API server and its users have their certificates."""
        if self._ca is None:
            raise RuntimeError("the control plane was not started")
        return self._ca

    @property
    def server(self) -> str:
        return f"https://{ports.HOST}:{self.ports.apiserver}"

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(self._children.values())

    def health_urls(self) -> dict[str, str]:
        """component -> its health endpoint (etcd's is part of the API server's)."""
        at, host = self.ports, ports.HOST
        urls = {
            "etcd": f"{self.server}/readyz/etcd",
            APISERVER: f"{self.server}/readyz",
            "kube-controller-manager": f"https://{host}:{at.controller_manager}/healthz",
            "kwok": f"http://{host}:{at.kwok}/healthz",
            KUBE_SCHEDULER: f"https://{host}:{at.scheduler}/healthz",
        }
        return {name: url for name, url in urls.items() if name in self._children}

    def kubeconfig(self, user: str = rbac.ADMIN) -> Path:
        path = self.layout.kubeconfig(user)
        if not path.exists():
            known = ", ".join(user.name for user in rbac.USERS)
            raise UsageError(f"there is no user {user!r} on this cluster; there are {known}.")
        return path

    def api(self, user: str = rbac.ADMIN) -> Api:
        """Blocking calls as this user; see `cluster` for anything beyond setting up."""
        if user not in self._apis:
            self.kubeconfig(user)
            at = self.layout
            self._apis[user] = Api(
                self.server,
                ca=at.certificate("ca"),
                certificate=at.certificate(user),
                key=at.key(user),
            )
        return self._apis[user]

    def kubectl(
        self,
        *args: str,
        user: str = rbac.ADMIN,
        input: str | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as this user. The caller checks the exit code."""
        argv = [str(self.binaries.kubectl), f"--kubeconfig={self.kubeconfig(user)}", *args]
        return subprocess.run(argv, input=input, capture_output=True, text=True, timeout=timeout)

    def add_nodes(self, items: Iterable[Object], *, deadline: float = 60.0) -> None:
        """Create nodes, status included, and wait until all are Ready and can take pods."""
        fake_nodes.add(self.api(), items, deadline=deadline)

    # --- start and stop ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._start()
            except PortTaken:
                self.stop()
                if attempt == ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop everything, etcd last, so that no component logs its loss."""
        etcd = self._children.pop("etcd", None)
        stop_all(list(self._children.values()))
        if etcd is not None:
            etcd.stop()
        self._children.clear()
        for api in self._apis.values():
            api.close()
        self._apis.clear()

    def restart_apiserver(self, *, crash: bool = False) -> None:
        """End and start the API server on the same port and data, so that clients reconnect."""
        child = self._children[APISERVER]
        child.kill() if crash else child.stop()
        child.start()
        self._wait(APISERVER, lambda: self.api().ready())

    def start_kube_scheduler(self, config: Path | None = None) -> None:
        """Start the stock scheduler. A `config` names its own connection; see `kubeconfig`."""
        user = rbac.KUBE_SCHEDULER
        argv = flags.scheduler(self.layout, self.ports, user=user, config=config)
        self._launch(KUBE_SCHEDULER, argv)
        self._wait(KUBE_SCHEDULER, lambda: healthy(self.health_urls()[KUBE_SCHEDULER]))

    def stop_kube_scheduler(self) -> None:
        child = self._children.pop(KUBE_SCHEDULER, None)
        if child is not None:
            child.stop()

    # --- steps of the start ---

    def _start(self) -> None:
        at = self.layout
        at.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.rmtree(at.data, ignore_errors=True)
        self._ports = Ports(*ports.free(6))
        self._ca = key_files.make(at, server=self.server, now=self._now())
        shutil.copyfile(STAGES, at.stages)
        # The API server retries etcd, so both start at once.
        self._launch("etcd", flags.etcd(at, self.ports, unsafe_no_fsync=self._for_tests))
        self._launch(APISERVER, [*flags.apiserver(at, self.ports), *self._apiserver_flags])
        self._wait(APISERVER, lambda: self.api().ready(), also=("etcd",))
        self._set_up()
        manager, kwok = "kube-controller-manager", "kwok"
        self._launch(
            manager, flags.controller_manager(at, self.ports, user=rbac.CONTROLLER_MANAGER)
        )
        self._launch(kwok, flags.kwok(at, self.ports, user=rbac.KWOK))
        self._wait(kwok, lambda: healthy(self.health_urls()[kwok]))
        self._wait(manager, lambda: healthy(self.health_urls()[manager]))
        # The API server denies pods until the controller manager has created this account.
        self._wait(manager, lambda: self.has_default_account(rbac.TENANT_NAMESPACE))

    def _set_up(self) -> None:
        spaces = [item for item in rbac.development_objects() if item["kind"] == "Namespace"]
        rest = [item for item in rbac.development_objects() if item["kind"] != "Namespace"]
        self.api().each(self.api().apply, spaces)
        self.api().each(self.api().apply, rest)

    def has_default_account(self, namespace: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        with contextlib.suppress(CallFailed):
            self.api().call("GET", path)
            return True
        return False

    def _launch(self, name: str, argv: Sequence[str]) -> None:
        child = Child(name, [self.binaries.path(name), *argv], log=self.layout.log(name))
        child.log.unlink(missing_ok=True)
        child.start()
        self._children[name] = child

    def _wait(self, name: str, ready: Callable[[], bool], *, also: Sequence[str] = ()) -> None:
        await_ready(
            [self._children[each] for each in (*also, name)], ready, deadline=self._deadline
        )


def await_ready(
    children: Sequence[Child],
    ready: Callable[[], bool],
    *,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Poll until ready; `StartFailed`, with the tail of the log, when a child ends or time does."""
    end = clock() + deadline
    while not ready():
        for child in children:
            if not child.alive:
                raise _failure(child, f"ended with exit code {child.exit_code}")
        if clock() > end:
            raise _failure(children[-1], f"was not ready within {deadline:g} s")
        sleep(POLL)


def _failure(child: Child, event: str) -> StartFailed:
    log = child.tail()
    kind = PortTaken if "address already in use" in log else StartFailed
    return kind(f"{child.name} {event}. The end of {child.log}:\n{log}")


def healthy(url: str) -> bool:
    """Whether a health endpoint of this machine answers 200. The certificate is not verified."""
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            *address, timeout=5.0, context=context
        )
    else:
        connection = http.client.HTTPConnection(*address, timeout=5.0)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
