"""
The guides' examples about NUMA nodes, GPUs and VRAM on a real API server, and a scheduler killed
while it places.

The table is `tests/data/hardware-examples.yaml`: what is asserted is what the pods say, their node,
and the NUMA nodes and GPUs that the Binding wrote on them; of those that wait, the whole message.
"""

import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.stack import SCHEDULER, Stack
from policies import vocabulary
from tests.cluster.node_pool import until
from tests.unit.scheduler.plugins.numa.instances import Host, Instance, Member, Zone
from tests.unit.scheduler.plugins.numa.invariants import Row, faults

pytestmark = pytest.mark.cluster

Json = dict[str, Any]

TABLE = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "hardware-examples.yaml").read_text(encoding="utf-8")
)
ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"
GPU = "nvidia.com/gpu"
DRIVER = "gpu.nvidia.com"
RESOURCES = "apis/resource.k8s.io/v1"
PATIENCE = 30.0

_numbers = itertools.count(1)


class Site:
    """A namespace with nodes of its own."""

    def __init__(self, plane: ControlPlane, tier: str | None) -> None:
        self.plane, self.name = plane, f"hardware-{next(_numbers)}"
        self.nodes: list[str] = []
        self._made: list[str] = []
        labels = {vocabulary.TIER_LABEL: tier} if tier else {}
        metadata = {"name": self.name, "labels": labels}
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        assert until(lambda: plane.has_default_account(self.name), bool, 120.0)

    @property
    def api(self) -> Any:
        return self.plane.api()

    def add(self, hosts: Mapping[str, str]) -> None:
        rows = [self._node(name, TABLE["hosts"][kind]) for name, kind in hosts.items()]
        self.nodes += [row["metadata"]["name"] for row in rows]
        self.plane.add_nodes(rows)

    def _node(self, name: str, kind: Json) -> Json:
        amounts = {"pods": "110", **kind["allocatable"]}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{self.name}-{name}",
                "labels": {"site": self.name, **kind.get("labels", {})},
                "annotations": kind.get("annotations", {}),
            },
            "spec": {"taints": [{"key": "site", "effect": "NoSchedule"}]},
            "status": {"capacity": amounts, "allocatable": amounts},
        }

    def claimable(self, row: Json) -> None:
        """The devices of the row's nodes, a class of them, and templates of claims."""
        if "devices" not in row:
            return
        for name, kind in row["devices"].items():
            self._make("resourceslices", self._slice(f"{self.name}-{name}", kind))
        rule = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        body = {"metadata": {"name": self.name}, "spec": {"selectors": [rule]}}
        self._make("deviceclasses", body)
        for name, requests in row.get("claims", {}).items():
            rows = [
                {"name": f"gpus-{index}", "exactly": self._device_request(requested)}
                for index, requested in enumerate(requests)
            ]
            spec = {"spec": {"devices": {"requests": rows}}}
            path = f"/{RESOURCES}/namespaces/{self.name}/resourceclaimtemplates"
            self.api.call("POST", path, {"metadata": {"name": name}, "spec": spec})

    def _make(self, plural: str, obj: Json) -> None:
        self.api.call("POST", f"/{RESOURCES}/{plural}", obj)
        self._made.append(f"/{RESOURCES}/{plural}/{obj['metadata']['name']}")

    def _slice(self, node: str, kind: Json) -> Json:
        devices = [
            {
                "name": f"gpu-{index}",
                "attributes": {
                    "model": {"string": kind["model"]},
                    "index": {"int": index},
                    "numaNode": {"int": zone},
                },
                "capacity": {"memory": {"value": kind["memory"]}},
            }
            for index, zone in enumerate(kind["numa"])
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}

    def _device_request(self, requested: Json) -> Json:
        request: Json = {
            "deviceClassName": self.name,
            "allocationMode": "ExactCount",
            "count": requested["count"],
        }
        if "memory" in requested:
            size = (
                f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{requested["memory"]}"))'
            )
            request["selectors"] = [{"cel": {"expression": f"{size} >= 0"}}]
        return request

    def close(self) -> None:
        for path in self._made:
            self.api.call("DELETE", path)
        self.api.call("DELETE", f"/api/v1/namespaces/{self.name}")
        for name in self.nodes:
            self.api.call("DELETE", f"/api/v1/nodes/{name}")

    # --- workloads ---

    def apply(self, step: Json) -> None:
        for name, requested in step.get("pods", {}).items():
            pod = {"apiVersion": "v1", "kind": "Pod", **self.template(requested)}
            pod["metadata"] |= {"name": name, "namespace": self.name}
            self.api.call("POST", f"/api/v1/namespaces/{self.name}/pods", pod)
        for name, requested in step.get("jobs", {}).items():
            count = requested["parallelism"]
            template = self.template(requested, restartPolicy="Never")
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": self.name},
                "spec": {"parallelism": count, "completions": count, "template": template},
            }
            self.api.call("POST", f"/apis/batch/v1/namespaces/{self.name}/jobs", job)

    def template(self, requested: Json, **spec: Any) -> Json:
        amounts = {"cpu": str(requested["cpu"]), "memory": requested["memory"]}
        gpus = {GPU: str(requested["gpus"])} if "gpus" in requested else {}
        resources: Json = {
            "requests": {**amounts, **gpus},
            "limits": {**(amounts if requested.get("limits") else {}), **gpus},
        }
        if "claim" in requested:
            resources["claims"] = [{"name": "gpus"}]
            spec["resourceClaims"] = [
                {"name": "gpus", "resourceClaimTemplateName": requested["claim"]}
            ]
        return {
            "metadata": {
                "labels": requested.get("labels", {}),
                "annotations": requested.get("notes", {}),
            },
            "spec": {
                "schedulerName": vocabulary.SCHEDULER_NAME,
                "nodeSelector": {"site": self.name, **requested.get("selector", {})},
                "tolerations": [{"key": "site", "operator": "Exists"}],
                "containers": [{"name": "main", "image": "i", "resources": resources}],
                **spec,
            },
        }

    # --- what became of them ---

    def pods(self) -> list[Json]:
        rows: list[Json] = self.api.call("GET", f"/api/v1/namespaces/{self.name}/pods")["items"]
        return rows

    def places(self, names: Mapping[str, object]) -> dict[str, list[str]]:
        """For each name the places of the pods that have it or begin with it, sorted."""
        claims = self.claims()
        pods = [(pod["metadata"]["name"], self._place(pod, claims)) for pod in self.pods()]
        return {
            name: sorted(place for pod, place in pods if f"{pod}-".startswith(f"{name}-"))
            for name in names
        }

    def claims(self) -> dict[str, list[str]]:
        """Claim -> the names of its devices."""
        found = self.api.call("GET", f"/{RESOURCES}/namespaces/{self.name}/resourceclaims")
        return {
            row["metadata"]["name"]: [
                device["device"]
                for device in row.get("status", {})
                .get("allocation", {})
                .get("devices", {})
                .get("results", [])
            ]
            for row in found["items"]
        }

    def _place(self, pod: Json, claims: Mapping[str, list[str]]) -> str:
        node = pod["spec"].get("nodeName", "")
        if not node:
            return _condition_text(pod)
        words = [node.removeprefix(f"{self.name}-")]
        body = assigned(pod)
        for key in ("numa", "gpus"):
            if body.get(key):
                words += [key, ",".join(map(str, body[key]))]
        held = pod["status"].get("resourceClaimStatuses", [])
        if devices := sorted(name for row in held for name in claims[row["resourceClaimName"]]):
            words += ["devices", ",".join(devices)]
        return " ".join([*words, "alone"] if body.get("isolated") else words)

    def rows(self) -> list[Row]:
        """(pod, node, annotation) of those that have a node."""
        key = vocabulary.NUMA_ASSIGNED_ANNOTATION
        return [
            (about["name"], pod["spec"]["nodeName"], about.get("annotations", {}).get(key, ""))
            for pod in self.pods()
            for about in [pod["metadata"]]
            if pod["spec"].get("nodeName")
        ]

    def bound(self) -> int:
        return len(self.rows())

    def wanted(self, want: Mapping[str, Any]) -> dict[str, list[str]]:
        return {name: self._wanted(name, places) for name, places in want.items()}

    def _wanted(self, name: str, places: Any) -> list[str]:
        if isinstance(places, list):
            return sorted(map(str, places))
        if isinstance(places, str):
            return [places]
        pods = [pod for pod in self.pods() if f"{pod['metadata']['name']}-".startswith(f"{name}-")]
        return [self._waiting(places)] * max(1, len(pods))

    def _waiting(self, requested: Json) -> str:
        """The whole message: of the row's own nodes, of all others, and of the gang."""
        total = len(self.api.call("GET", "/api/v1/nodes")["items"])
        others = total - len(self.nodes)
        said = [requested["sentence"]] if "sentence" in requested else []
        if "pending" in requested:
            said = sorted([*requested["pending"], f"{others} {ELSEWHERE}"])
        text = f"0/{total} nodes are available: {', '.join(said)}." if said else ""
        return f"{text} {requested.get('gang', '')}".strip()


def _condition_text(pod: Json) -> str:
    for row in pod["status"].get("conditions", []):
        if row["type"] == "PodScheduled":
            return str(row.get("message", ""))
    return ""


def assigned(pod: Json) -> Json:
    text = pod["metadata"].get("annotations", {}).get(vocabulary.NUMA_ASSIGNED_ANNOTATION)
    body: Json = json.loads(text) if text else {}
    return body


@pytest.fixture
def site(
    control_plane: ControlPlane, stack: Stack, request: pytest.FixtureRequest
) -> Iterator[Site]:
    row = getattr(request, "param", {})
    site = Site(control_plane, row.get("tier"))
    site.add(row.get("hosts", {}))
    site.claimable(row)
    yield site
    site.close()


@pytest.mark.parametrize(
    ("site", "row"),
    [pytest.param(row, row, id=row["id"]) for row in TABLE["rows"]],
    indirect=["site"],
)
def test_an_example_is_placed_as_documented(site: Site, row: Json) -> None:
    for step in row["steps"]:
        site.apply(step)
        want = step["want"]
        found, wanted = until(
            partial(_both, site, want), lambda both: both[0] == both[1], seconds=PATIENCE
        )
        assert found == wanted


def _both(site: Site, want: Mapping[str, Any]) -> tuple[object, object]:
    return site.places(want), site.wanted(want)


# --- a crash in the middle ---

ZONE = Zone(cpu=32, memory=128, gpus=2)
KINDS = {
    "single": Member("", cpu=16, memory=32, gpus=1, policy="single-numa"),
    "alone": Member("", cpu=8, memory=16, policy="isolated"),
    "plain": Member("", cpu=2, memory=4),
    "gang": Member("", cpu=16, memory=64, gpus=2, policy="single-numa"),
}


def request_of(member: Member, gang: str) -> Json:
    requested: Json = {"cpu": member.cpu, "memory": f"{member.memory}Gi", "notes": {}}
    if member.gpus:
        requested["gpus"] = member.gpus
    requested["notes"][vocabulary.NUMA_POLICY_ANNOTATION] = member.policy
    if gang:
        requested["labels"] = {
            vocabulary.GANG_NAME_LABEL: gang,
            vocabulary.GANG_MIN_AVAILABLE_LABEL: "4",
        }
        requested["notes"][vocabulary.GANG_NUMA_SPREAD_ANNOTATION] = "isolated"
    return requested


def test_a_scheduler_killed_while_it_places_gives_nothing_twice(site: Site, stack: Stack) -> None:
    # As many NUMA nodes as pods: every pod fits, in every order.
    order = ["single", "gang", "alone", "single", "gang", "plain"] * 4
    site.add({f"n{index}": "training" for index in range(len(order) // 2)})
    pods = {}
    for index, kind in enumerate(order):
        gang = f"g{sum(1 for one in order[:index] if one == 'gang') // 4}" if kind == "gang" else ""
        pods[f"{kind}-{index:02}"] = (replace(KINDS[kind], name=f"{kind}-{index:02}"), gang)
    step = {"pods": {name: request_of(member, gang) for name, (member, gang) in pods.items()}}
    creating = threading.Thread(target=site.apply, args=(step,))
    creating.start()
    until(site.bound, lambda found: found >= 6, PATIENCE)
    stack.child(SCHEDULER).kill()
    at_the_crash = site.bound()
    stack.child(SCHEDULER).start()
    stack.wait(SCHEDULER)
    creating.join()
    bound = until(site.bound, lambda found: found == len(pods), 60.0)
    rows = site.rows()
    hosts = tuple(Host(name, (ZONE, ZONE)) for name in site.nodes)
    members = tuple(member for member, _ in pods.values())
    found = faults(Instance(hosts, (), members, need=len(pods)), rows)
    for name in {gang for _, gang in pods.values() if gang}:
        mine = tuple(member for member, gang in pods.values() if gang == name)
        theirs = [row for row in rows if row[0] in {member.name for member in mine}]
        found += faults(Instance(hosts, (), mine, need=4, spread="isolated"), theirs)
    assert (bound, found) == (len(pods), [])
    assert 0 < at_the_crash < len(pods)
