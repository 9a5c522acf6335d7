"""
The programs of a release as processes of this machine: the webhook with the arguments, the rights
and the certificate of its pods, the hooks with theirs, and somebody who makes pods all the time.
"""

import itertools
import os
import threading
from collections.abc import Sequence

from kubenexus.dev import ports
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.own import COMMAND, environment
from kubenexus.dev.plane import await_ready, healthy
from kubenexus.dev.processes import Child
from tests.cluster.chart_rig import FULL, NAMESPACE, Json, Rig, run


class Creating(threading.Thread):
    """Makes and deletes pods, one after the other, until stopped; remembers every failure."""

    def __init__(self, rig: Rig, name: str = "created") -> None:
        super().__init__(name=name, daemon=True)
        self._api, self._over = rig.plane.api(), threading.Event()
        self.made, self.failures = 0, list[str]()

    def run(self) -> None:
        where = "/api/v1/namespaces/default/pods"
        for number in itertools.count():
            if self._over.wait(0.02):
                return
            try:
                self._api.call("POST", where, a_pod(f"{self.name}-{number}"))
                self.made += 1
                self._api.call("DELETE", f"{where}/{self.name}-{number}?gracePeriodSeconds=0")
            except (CallFailed, OSError) as exc:
                self.failures.append(str(exc))

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(60)


def a_pod(name: str, *gates: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "containers": [
                {
                    "name": "main",
                    "image": "example",
                    "resources": {
                        "requests": {"cpu": "1m", "memory": "1Mi"},
                        "limits": {"cpu": "1m", "memory": "1Mi"},
                    },
                }
            ],
        },
    }


def serve(rig: Rig, port: int) -> Child:
    """The webhook with the arguments, the rights and the certificate of its pods."""
    pod = rig.get("deployment", f"{FULL}-webhook", "--namespace", NAMESPACE)["spec"]["template"]
    files = rig.secret(f"{FULL}-webhook-tls")
    (metrics,) = ports.free(1)
    own = {
        "--cert-file=/tls/tls.crt": f"--cert-file={files['tls.crt']}",
        "--key-file=/tls/tls.key": f"--key-file={files['tls.key']}",
        "--port=8443": f"--port={port}",
        "--metrics-port=9443": f"--metrics-port={metrics}",
    }
    (container,) = pod["spec"]["containers"]
    arguments = [own.get(word, word) for word in container["args"]]
    assert not set(own) & set(arguments)
    child = Child(
        "webhook",
        [*COMMAND, *arguments, f"--kubeconfig={rig.account('webhook')}", f"--host={ports.HOST}"],
        log=rig.folder / "webhook.log",
        env=environment(os.environ),
    )
    child.start()
    url = f"https://{ports.HOST}:{port}/readyz"
    await_ready([child], lambda: healthy(url), deadline=60)
    return child


def register(rig: Rig, port: int, *values: str, seconds: int = 60) -> None:
    """What the hook after an installation, upgrade or rollback does, with the hook's rights."""
    rig.hook_rights("register", *values)
    known = rig.get("configmap", f"{FULL}-registration", "--namespace", NAMESPACE)
    path = rig.folder / "configurations.yaml"
    path.write_text(known["data"]["configurations.yaml"])
    done = run(
        "install",
        "register",
        f"--kubeconfig={rig.account('register')}",
        f"--configurations={path}",
        f"--ca-file={rig.secret(f'{FULL}-webhook-tls')['ca.crt']}",
        f"--url=https://localhost:{port}/readyz",
        f"--server-name={FULL}-webhook.{NAMESPACE}.svc",
        f"--timeout={seconds}",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def probe(rig: Rig, *, seconds: int = 30) -> tuple[int, str]:
    kubeconfig = rig.account("register")
    done = run("install", "probe", f"--kubeconfig={kubeconfig}", f"--timeout={seconds}")
    return done.returncode, done.stderr


def registered(rig: Rig) -> list[Json]:
    found: Sequence[Json] = rig.get(
        "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    )["items"]
    return [one for one in found if one["metadata"]["name"] == f"{FULL}-webhook"]
