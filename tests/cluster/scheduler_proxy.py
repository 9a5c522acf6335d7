"""Two schedulers behind a proxy that spoils what they write, one of which leads."""

import http.client
import json
import os
import signal
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child, stop_all
from policies import vocabulary
from tests.cluster.gang_proxy import ENDED
from tests.cluster.waiting import eventually

STEP: Final = "kubenexus_scheduler_preemption_total"
KEPT: Final = "kubenexus_scheduler_reserved_units"


def start_proxy(plane: ControlPlane, folder: Path, port: int, *options: str) -> Child:
    """The proxy before the API server, with the scheduler's own rights; once it answers."""
    at, user = plane.layout, vocabulary.SCHEDULER_NAME
    argv = [
        *self_exec.COMMAND[:2],
        "-m",
        "tests.cluster.gang_proxy",
        f"--upstream={plane.server}",
        f"--ca={at.certificate('ca')}",
        f"--cert={at.certificate(user)}",
        f"--key={at.key(user)}",
        f"--port={port}",
        *options,
    ]
    child = Child("proxy", argv, log=folder / "proxy.log", env=self_exec.environment(os.environ))
    child.start()
    url = f"http://{ports.HOST}:{port}/__spoiled"
    await_ready([child], lambda: healthy(url), deadline=30.0)
    return child


class SchedulerPair:
    """`name` is that of the schedulers, and of their lease."""

    def __init__(self, plane: ControlPlane, name: str, folder: Path, *, seed: int) -> None:
        self.plane, self.name, self._folder = plane, name, folder
        self._port, *at = ports.free(3)
        self._proxy = start_proxy(plane, folder, self._port, f"--seed={seed}", "--share=0")
        self._urls = [f"http://{ports.HOST}:{port}" for port in at]
        self._schedulers = [self._scheduler(number, port) for number, port in enumerate(at)]
        for one in self._schedulers:
            one.start()
        self.ready()

    def _scheduler(self, number: int, port: int) -> Child:
        config, server = self._folder / "proxied.kubeconfig", f"http://{ports.HOST}:{self._port}"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
        config.write_text(json.dumps(document))
        argv = [
            *self_exec.COMMAND,
            "scheduler",
            f"--kubeconfig={config}",
            f"--host={ports.HOST}",
            f"--port={port}",
            f"--scheduler-name={self.name}",
            "--leader-elect",
        ]
        log = self._folder / f"scheduler-{number}.log"
        return Child(f"scheduler {number}", argv, log=log, env=self_exec.environment(os.environ))

    def stop(self) -> None:
        stop_all([*self._schedulers, self._proxy], grace=5.0)

    def ready(self) -> None:
        """Both know the cluster, and one leads."""
        for child, url in zip(self._schedulers, self._urls, strict=True):
            await_ready([child], partial(healthy, f"{url}/readyz"), deadline=60.0)
        eventually(self.leader, "a scheduler leads")

    # --- what the proxy does ---

    def arm(self, **faults: Any) -> None:
        self._proxied("POST", "/__arm", json.dumps(faults))

    def spoiled(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self._proxied("GET", "/__spoiled"))
        return found

    def _proxied(self, method: str, path: str, body: str | None = None) -> bytes:
        connection = http.client.HTTPConnection(ports.HOST, self._port, timeout=10.0)
        try:
            connection.request(method, path, body)
            return connection.getresponse().read()
        finally:
            connection.close()

    # --- the leader, and its end ---

    def leader(self) -> Child | None:
        for child, url in zip(self._schedulers, self._urls, strict=True):
            if child.alive and self._figures(url).get("kubenexus_scheduler_leader") == 1.0:
                return child
        return None

    def end_leader_at(self, write: str, *, nth: int, before: bool, graceful: bool = False) -> None:
        """`graceful`: with SIGTERM, as when a deployment is rolled."""
        leader = eventually(self.leader, "a scheduler leads")
        self.arm(
            end=leader.pid,
            signal=int(signal.SIGTERM if graceful else signal.SIGKILL),
            at=write,
            nth=nth,
            before=before,
        )

    def succeed(self, ended: int) -> None:
        """Once so many were ended: the lease is deleted at once instead of running out, the other
        leads, and a new one stands by."""
        eventually(lambda: self.spoiled().get(ENDED, 0) >= ended, "the leader meets its write")
        gone = eventually(lambda: next((o for o in self._schedulers if not o.alive), None), "ended")
        path = f"/apis/coordination.k8s.io/v1/namespaces/{vocabulary.SYSTEM_NAMESPACE}/leases"
        try:
            lease = self.plane.api().call("GET", f"{path}/{self.name}")
            if str(lease["spec"].get("holderIdentity", "")).endswith(f"{gone.pid}"):
                self.plane.api().call("DELETE", f"{path}/{self.name}")
        except CallFailed as error:
            if error.status != 404:
                raise
        gone.start()

    # --- what they say of themselves ---

    def steps(self) -> dict[str, float]:
        """What the leader has counted of preemption; and what it keeps, as `kept`."""
        for child, url in zip(self._schedulers, self._urls, strict=True):
            found = self._figures(url) if child.alive else {}
            if found.get("kubenexus_scheduler_leader") == 1.0:
                begins = f'{STEP}{{step="'
                steps = {
                    name.removeprefix(begins).removesuffix('"}'): value
                    for name, value in found.items()
                    if name.startswith(begins)
                }
                return {**steps, "kept": found[KEPT]}
        return {}

    def _figures(self, url: str) -> dict[str, float]:
        """Empty: it does not answer."""
        try:
            with urllib.request.urlopen(f"{url}/metrics", timeout=5.0) as answer:
                lines = answer.read().decode().splitlines()
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            return {}
        rows = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in rows}
