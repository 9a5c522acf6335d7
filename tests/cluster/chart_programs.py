"""
The programs of a release as processes of this machine, each with the arguments, the files and the
rights that its pod has, and a client that makes pods all the time.
"""

import contextlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import await_ready, healthy
from kubenexus.dev.process import ports
from kubenexus.dev.process.child import Child
from kubenexus.dev.process.self_exec import COMMAND, environment
from policies.engine import loader
from tests.cluster.chart_environment import FULL, NAMESPACE, ChartEnv, Done, Json, run

MARK: Final = "example.com/round"
"""A label that a policy of the test writes, to see which replica admitted a pod."""

# Ports that several processes of one machine cannot share.
_PORTS: Final = ("--port=8443", "--metrics-port=9443", "--port=10259")


class PodCreator(threading.Thread):
    """Makes and deletes pods, one after the other, until stopped; remembers every failure."""

    def __init__(self, chart_env: ChartEnv, name: str = "created", *, pause: float = 0.02) -> None:
        super().__init__(name=name, daemon=True)
        self._pause = pause
        self._api, self._over = chart_env.plane.api(), threading.Event()
        self.made, self.failures = 0, list[str]()
        self.marks: Counter[str] = Counter()  # value of MARK -> pods that had it

    def run(self) -> None:
        where = "/api/v1/namespaces/default/pods"
        for number in itertools.count():
            if self._over.wait(self._pause):
                return
            try:
                pod = self._api.call("POST", where, a_pod(f"{self.name}-{number}"))
                self.made += 1
                self.marks[(pod["metadata"].get("labels") or {}).get(MARK, "")] += 1
                self._api.call("DELETE", f"{where}/{self.name}-{number}?gracePeriodSeconds=0")
            except (CallFailed, OSError) as exc:
                self.failures.append(f"{datetime.now(UTC):%T.%f} {exc}")

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(60)


@contextlib.contextmanager
def creating(
    chart_env: ChartEnv, name: str, *, count: int, pause: float
) -> Iterator[list[PodCreator]]:
    """Several who make pods meanwhile; that one could not be made is the end of the test."""
    found = [PodCreator(chart_env, f"{name}-{number}", pause=pause) for number in range(count)]
    for one in found:
        one.start()
    try:
        yield found
    finally:
        for one in found:
            one.stop()
    failures = [failure for one in found for failure in one.failures]
    assert not failures, failures[:10]
    assert all(one.made > 0 for one in found)


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


# --- What a kubelet makes of a pod. ---


def pod_of(chart_env: ChartEnv, kind: str, component: str) -> Json:
    """What the pods of a Deployment, DaemonSet or CronJob of the release are like."""
    found = chart_env.get(kind, f"{FULL}-{component}", "--namespace", NAMESPACE)["spec"]
    if kind == "cronjob":
        found = found["jobTemplate"]["spec"]
    spec: Json = found["template"]["spec"]
    return spec


def hook_of(chart_env: ChartEnv, component: str, *values: str) -> Json:
    """What the pod of a hook is like; Helm has its Job only while it runs."""
    (found,) = [
        one["spec"]["template"]["spec"]
        for one in chart_env.template(*values)
        if (one["kind"], one["metadata"]["name"]) == ("Job", f"{FULL}-{component}")
    ]
    spec: Json = found
    return spec


def account_of(spec: Json) -> str:
    return str(spec["serviceAccountName"]).removeprefix(f"{FULL}-")


def arguments(
    chart_env: ChartEnv, spec: Json, container: Json, *, others: Mapping[str, str] | None = None
) -> list[str]:
    """The container's arguments, with what is elsewhere on this machine; `others` wins."""
    moved = dict(_mounted(chart_env, spec, container))
    moved["/etc/kubenexus/library"] = str(loader.LIBRARY)
    taken = (word for word in _PORTS if word in container["args"])
    own = {word: f"{word.partition('=')[0]}={ports.free(1)[0]}" for word in taken}
    own |= others or {}
    return [
        there
        for word in container["args"]
        for there in _reached(own.get(word) or _at_home(word, moved))
    ]


def _mounted(chart_env: ChartEnv, spec: Json, container: Json) -> Iterator[tuple[str, str]]:
    """Where the container sees a volume -> where its files are here."""
    volumes = {one["name"]: one for one in spec.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume = volumes[mount["name"]]
        for kind, key in (("secret", "secretName"), ("configMap", "name")):
            if kind in volume:
                yield mount["mountPath"], str(chart_env.files(kind.lower(), volume[kind][key]))


def _at_home(word: str, moved: Mapping[str, str]) -> str:
    option, equals, value = word.partition("=")
    for path, here in moved.items():
        if value == path or value.startswith(f"{path}/"):
            return f"{option}={here}{value.removeprefix(path)}"
    return option + equals + value


def _reached(word: str) -> Iterator[str]:
    """The webhook's Service is `localhost` here, under its own name."""
    name = f"{FULL}-webhook.{NAMESPACE}.svc"
    yield word.replace(f"https://{name}:", "https://localhost:")
    if f"https://{name}:" in word:
        yield f"--server-name={name}"


def done(chart_env: ChartEnv, spec: Json, container: Json, *more: str) -> Done:
    """A container that ends, run to its end."""
    words = arguments(chart_env, spec, container)
    kubeconfig = chart_env.account(account_of(spec))
    return run(*words, f"--kubeconfig={kubeconfig}", *more, timeout=120)


def started(
    chart_env: ChartEnv, spec: Json, *, name: str, own: Mapping[str, str] | None = None
) -> Child:
    """A container that runs until the test stops it."""
    (container,) = spec["containers"]
    child = Child(
        name,
        [
            *COMMAND,
            *arguments(chart_env, spec, container, others=own),
            f"--kubeconfig={chart_env.account(account_of(spec))}",
            f"--host={ports.HOST}",
        ],
        log=chart_env.folder / f"{name}.log",
        env=environment(os.environ),
    )
    child.start()
    return child


# --- The programs. ---


def serve(chart_env: ChartEnv, port: int, *, name: str = "webhook") -> Child:
    """A replica of the webhook, as the Deployment has it now."""
    spec = pod_of(chart_env, "deployment", "webhook")
    child = started(chart_env, spec, name=name, own={"--port=8443": f"--port={port}"})
    url = f"https://{ports.HOST}:{port}/readyz"
    await_ready([child], lambda: healthy(url), deadline=60)
    return child


def hook(chart_env: ChartEnv, component: str, *values: str, more: Sequence[str] = ()) -> Done:
    """What a hook does, with the hook's rights; `more` are further arguments."""
    spec = hook_of(chart_env, component, *values)
    chart_env.hook_rights(account_of(spec), *values)
    (container,) = spec["containers"]
    return done(chart_env, spec, container, *more)


def register(chart_env: ChartEnv, *values: str) -> None:
    """What the hook after an installation, upgrade or rollback does."""
    found = hook(chart_env, "register", *values)
    assert found.returncode == 0, found.stderr


def probe(chart_env: ChartEnv, *values: str, seconds: int = 30) -> tuple[int, str]:
    found = hook(chart_env, "probe", *values, more=[f"--timeout={seconds}"])
    return found.returncode, found.stderr


def registered(chart_env: ChartEnv) -> list[Json]:
    found: Sequence[Json] = chart_env.get(
        "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    )["items"]
    return [one for one in found if one["metadata"]["name"] == f"{FULL}-webhook"]
