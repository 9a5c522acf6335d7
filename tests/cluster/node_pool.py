"""Nodes of one test's own, the pods on them, and scheduler processes to start and to kill."""

import os
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from kubenexus.dev.api import Api
from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane, await_ready, healthy
from kubenexus.dev.process import ports, self_exec
from kubenexus.dev.process.child import Child
from policies import vocabulary

T = TypeVar("T")
Json = dict[str, Any]


def until(read: Callable[[], T], want: Callable[[T], bool], seconds: float = 30.0) -> T:
    """Poll until the state is as wanted; the last state found, for the assertion to show."""
    end = time.monotonic() + seconds
    while not want(found := read()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


class NodePool:
    """Nodes for one test alone: labelled and tainted with its namespace, taken away afterwards."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self._nodes: list[str] = []

    @property
    def api(self) -> Api:
        return self.plane.api()

    def add_node(self, name: str, *, cpu: str = "4", labels: dict[str, str] | None = None) -> str:
        full = f"{self.namespace}-{name}"
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
        self.plane.add_nodes(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": full,
                        "labels": {"node-pool": self.namespace, **(labels or {})},
                    },
                    "spec": {"taints": [{"key": "node-pool", "effect": "NoSchedule"}]},
                    "status": {"capacity": amounts, "allocatable": amounts},
                }
            ]
        )
        self._nodes.append(full)
        return full

    def lose_node(self, name: str) -> None:
        """As if an administrator had taken it out of the cluster."""
        self.api.call("DELETE", f"/api/v1/nodes/{name}")
        self._nodes.remove(name)

    def close(self) -> None:
        for name in self._nodes:
            self.api.call("DELETE", f"/api/v1/nodes/{name}")

    def pod(
        self,
        name: str,
        *,
        cpu: str = "1",
        gang: tuple[str, int] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        labels = {}
        if gang is not None:
            labels = {
                vocabulary.GANG_NAME_LABEL: gang[0],
                vocabulary.GANG_MIN_AVAILABLE_LABEL: str(gang[1]),
            }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": labels,
                "annotations": annotations or {},
            },
            "spec": {
                "schedulerName": vocabulary.SCHEDULER_NAME,
                "nodeSelector": {"node-pool": self.namespace},
                "tolerations": [{"key": "node-pool", "operator": "Exists"}],
                "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
                ],
                **spec,
            },
        }

    def create(self, *pods: Json) -> None:
        """Create each, however long the API server takes to come back."""
        for pod in pods:
            self._create(pod)

    def _create(self, pod: Json) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self.api.call("POST", f"/api/v1/namespaces/{self.namespace}/pods", pod)
                return
            except CallFailed as exc:
                if exc.status == 409:
                    return
                if exc.status < 500 or time.monotonic() > end:
                    raise
            except OSError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def post(self, collection: str, obj: Json) -> None:
        """Any object of the namespace; `collection` is such as `apis/batch/v1/jobs`."""
        root, _, plural = collection.rpartition("/")
        self.api.call("POST", f"/{root}/namespaces/{self.namespace}/{plural}", obj)

    def pods(self) -> list[Json]:
        found = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")
        rows: list[Json] = found["items"]
        return rows

    def nodes_of_pods(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in self.pods()}

    def all_bound(self, count: int, seconds: float = 60.0) -> dict[str, str]:
        return until(
            self.nodes_of_pods,
            lambda nodes: len(nodes) == count and all(nodes.values()),
            seconds,
        )

    def events(self, reason: str) -> list[tuple[str, str, str]]:
        """(pod, type, note), sorted."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        rows = self.api.call("GET", path)["items"]
        return sorted(
            (row["regarding"]["name"], row["type"], row["note"])
            for row in rows
            if row["reason"] == reason
        )

    def condition(self, name: str) -> tuple[str, str, str]:
        """(status, reason, message) of PodScheduled."""
        pod = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        for row in pod["status"].get("conditions", []):
            if row["type"] == "PodScheduled":
                return row["status"], row.get("reason", ""), row.get("message", "")
        return "", "", ""


class Replica:
    """One scheduler process of its own name, which it leads by unless it is alone."""

    def __init__(self, plane: ControlPlane, name: str, log: Path, *, alone: bool = False) -> None:
        (port,) = ports.free(1)
        self.name, self.url = name, f"http://{ports.HOST}:{port}"
        self.child = Child(
            log.stem,
            [
                *self_exec.COMMAND,
                "scheduler",
                f"--kubeconfig={plane.kubeconfig(vocabulary.SCHEDULER_NAME)}",
                f"--host={ports.HOST}",
                f"--port={port}",
                f"--scheduler-name={name}",
                *([] if alone else ["--leader-elect"]),
            ],
            log=log,
            env=self_exec.environment(os.environ),
        )

    def start(self) -> None:
        self.child.start()
        await_ready([self.child], lambda: healthy(f"{self.url}/readyz"), deadline=60.0)

    def stop(self) -> None:
        self.child.stop()

    def kill(self) -> None:
        """As a crash would, without a word."""
        self.child.kill()

    def figure(self, name: str) -> float:
        """One figure without labels, of this process's own metrics."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5.0) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split(" ")[1])
        raise AssertionError(f"{self.name} has no figure {name}")

    @property
    def leads(self) -> bool:
        return self.figure("kubenexus_scheduler_leader") == 1.0
