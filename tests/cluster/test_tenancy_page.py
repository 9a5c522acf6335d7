"""
What the page about tenancy shows of commands is what they say, with the objects that it shows.

Ages, how long a pod has waited, and how many nodes others have left behind may differ, nothing else.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from kubenexus.dev.stack import Stack
from policies import vocabulary
from tests import pages
from tests.cluster.conftest import Kubectl
from tests.cluster.node_pool import Json, until
from tests.cluster.tenant_env import TENANT_POLICIES
from tests.cluster.waiting import eventually

pytestmark = pytest.mark.cluster

PAGE = "docs/tenancy.md"
NODES = ("gpu-0", "gpu-1")
GPUS = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
USAGE = {
    "used": {"cpu": "64", "nvidia.com/gpu": "8", "pods": "8"},
    "share": "0.250",
    "at": "2026-01-01T00:00:00Z",
}
PASSING = re.compile(
    r"\b([0-9]+(ms|[smhd]))+\b|tried [0-9]+ times?"
    r"|0/[0-9]+ |[0-9]+ (?=node\(s\) didn't match)|[0-9]+ nodes?  (?=node\(s\) didn't match)"
)


def shown(command: str) -> list[str]:
    """What the page says that the command prints."""
    [block] = [
        block
        for block in pages.blocks("console")
        if block.page == PAGE and block.text.startswith(f"$ {command}\n")
    ]
    return plain(block.text.partition("\n")[2])


def plain(text: str) -> list[str]:
    """Columns are as wide as their widest cell, ages included."""
    return [re.sub(r"  +", "  ", PASSING.sub("_", line)).rstrip() for line in text.splitlines()]


def objects(kind: str) -> list[Json]:
    found = (block.documents() for block in pages.blocks("yaml") if block.page == PAGE)
    return [item for documents in found for item in documents if item["kind"] == kind]


def a_node(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": "gpu"}},
        "status": {"capacity": GPUS, "allocatable": GPUS},
    }


class Places:
    """The namespaces of the page under names of this test alone, and its nodes."""

    def __init__(self, plane: ControlPlane, stack: Stack, kubectl: Kubectl, own_name: str) -> None:
        self.plane, self.stack, self._kubectl = plane, stack, kubectl
        self.names = {"team-a": f"{own_name}-page", "shop": f"{own_name}-shop"}
        api = plane.api()
        for name, tenant in (("team-a", "vision"), ("shop", "shop")):
            labels = {vocabulary.TENANT_LABEL: tenant, vocabulary.TIER_LABEL: "gold"}
            about = {"name": self.names[name], "labels": labels}
            api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        for name in self.names.values():
            eventually(partial(plane.has_default_account, name), "an account")
        plane.add_nodes([a_node(name) for name in NODES])

    def close(self) -> None:
        for name in self.names.values():
            self.plane.api().call("DELETE", f"/api/v1/namespaces/{name}")
        for name in NODES:
            self.plane.api().call("DELETE", f"/api/v1/nodes/{name}")

    def apply(self, *items: Json) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        done = self._kubectl("apply", "-f", "-", input=self._here(text))
        assert done.returncode == 0, done.stderr

    def says(self, command: str) -> list[str]:
        """What the command prints, with the names of the page."""
        program, *words = self._here(command).split()
        if program == "kubectl":
            done = self._kubectl(*words)
        else:
            options = {
                "why": f"--url={self.stack.scheduler_url}",
                "node": f"--kubeconfig={self.plane.kubeconfig()}",
            }
            done = subprocess.run(
                [*self_exec.COMMAND, *words, options[words[0]]],
                env=self_exec.environment(os.environ),
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        said = done.stdout
        for name, mine in self.names.items():
            said = said.replace(mine, name)
        return plain(said)

    def _here(self, text: str) -> str:
        for name, mine in self.names.items():
            text = re.sub(rf"\b{name}\b", mine, text)
        return text


@pytest.fixture
def places(
    control_plane: ControlPlane, stack: Stack, kubectl: Kubectl, namespace: str
) -> Iterator[Places]:
    places = Places(control_plane, stack, kubectl, namespace)
    yield places
    places.close()


def test_what_tenants_use(stack: Stack, control_plane: ControlPlane, kubectl: Kubectl) -> None:
    [policy] = objects("TenantPolicy")
    done = kubectl("apply", "-f", "-", input=json.dumps(policy))
    assert done.returncode == 0, done.stderr
    api, path = control_plane.api(), f"{TENANT_POLICIES}/{policy['metadata']['name']}"
    patch = {"status": {"usage": USAGE}}
    api.call("PATCH", f"{path}/status", patch, content_type="application/merge-patch+json")
    command = "kubectl get tenantpolicies"
    want = shown(command)
    found = until(lambda: plain(kubectl(*command.split()[1:]).stdout), lambda lines: lines == want)
    api.call("DELETE", path)
    assert found == want


def test_capacity_reserved_for_members(places: Places) -> None:
    """The name is made from the leader's uid, and the end from the time at which it was placed."""
    [driver] = [pod for pod in objects("Pod") if pod["metadata"]["name"] == "etl-driver"]
    places.apply(driver)
    label = f"app.kubernetes.io/managed-by={vocabulary.SCHEDULER_NAME}"
    command = f"kubectl get resourcereservations -n team-a -l {label}"

    def own_words(lines: list[str]) -> list[str]:
        return [re.sub(r"etl-[0-9a-f]{8}|[-0-9]{10}T[:0-9]{8}Z", "_", line) for line in lines]

    want = own_words(shown(command))
    found = until(lambda: own_words(places.says(command)), lambda lines: lines == want)
    assert found == want


def test_capacity_reserved_for_a_tenant(places: Places) -> None:
    places.apply(*objects("ResourceReservation"))
    command = "kubectl get resourcereservations -n team-a"
    want = shown(command)
    assert until(lambda: places.says(command), lambda lines: lines == want) == want
    described = "kubenexus node describe gpu-1"
    assert places.says(described) == shown(described)
    gpus = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    about = {"name": "web", "namespace": "shop"}
    spec = {
        "schedulerName": vocabulary.SCHEDULER_NAME,
        "nodeSelector": {"pool": "gpu"},
        "containers": [gpus],
    }
    places.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    command = "kubenexus why pod/web -n shop"
    want = shown(command)
    assert until(lambda: places.says(command), lambda lines: lines == want) == want
