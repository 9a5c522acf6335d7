"""
A node known by a driver's slices and an exporter's topology: placed on by it, and described.

The scheduler runs alone, without the webhook: what it reads here stands on no Node object.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from kubenexus.dev.errors import CallFailed
from kubenexus.dev.plane.control_plane import ControlPlane
from kubenexus.dev.process import self_exec
from policies import vocabulary
from tests.cluster.node_pool import NodePool, Replica, until
from tests.cluster.waiting import eventually
from tests.unit.scheduler.hostinfo.host_objects import a_slice, a_topology, a_zone, nvidia_gpu

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
CRD = Path(__file__).parent / "crds/others/noderesourcetopologies.topology.node.k8s.io.yaml"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
SCHEDULER = "reads-hosts"


def is_served(plane: ControlPlane) -> bool:
    try:
        return bool(plane.api().call("GET", TOPOLOGIES))
    except CallFailed:
        return False


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> Iterator[None]:
    api = control_plane.api()
    api.apply(yaml.safe_load(CRD.read_text()))
    eventually(lambda: is_served(control_plane), "the kind is served")
    yield
    api.call("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD.stem}")


@pytest.fixture(scope="module")
def replica(
    control_plane: ControlPlane, served: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    log = tmp_path_factory.mktemp("hosts") / "scheduler.log"
    one = Replica(control_plane, SCHEDULER, log, alone=True)
    one.start()
    yield one
    one.stop()


@pytest.fixture
def node_pool(control_plane: ControlPlane, namespace: str) -> Iterator[NodePool]:
    node_pool = NodePool(control_plane, namespace)
    yield node_pool
    for pod in node_pool.nodes_of_pods():
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        node_pool.api.call("DELETE", f"{path}?gracePeriodSeconds=0")
    node_pool.close()


def describe(plane: ControlPlane, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*self_exec.COMMAND, "node", "describe", *args, f"--kubeconfig={plane.kubeconfig()}"],
        env=self_exec.environment(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
    )


def a_host(node_pool: NodePool, name: str) -> str:
    """A node with two GPUs that says nothing of its inside."""
    full = f"{node_pool.namespace}-{name}"
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "2"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": full, "labels": {"node-pool": node_pool.namespace}},
        "spec": {"taints": [{"key": "node-pool", "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    node_pool.plane.add_nodes([node])
    return full


def a_strict_pod(node_pool: NodePool, name: str) -> Json:
    pod = node_pool.pod(
        name,
        annotations={vocabulary.NUMA_POLICY_ANNOTATION: "single-numa"},
        schedulerName=SCHEDULER,
    )
    amounts = {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "1"}
    pod["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return pod


def what_others_say(node: str) -> tuple[tuple[str, Json], ...]:
    """A small NUMA node 0 and a large NUMA node 1, each with a GPU."""
    return (
        (
            SLICES,
            a_slice(
                "gpu.nvidia.com",
                nvidia_gpu(0, pci="0000:1b:00.0", root="pci0000:15", numa=0),
                nvidia_gpu(1, pci="0000:9d:00.0", root="pci0000:97", numa=1),
                node=node,
            ),
        ),
        (
            TOPOLOGIES,
            a_topology(
                a_zone("node-0", {"node-0": 10, "node-1": 21}, cpu="4/2/2", memory="8Gi/7Gi/7Gi"),
                a_zone("node-1", {"node-0": 21, "node-1": 10}, cpu="8/6/6", memory="8Gi/8Gi/8Gi"),
                name=node,
                policy="single-numa-node",
                scope="container",
            ),
        ),
    )


TEXT = """\
node {node}: 2 NUMA nodes, 2 GPUs; Topology Manager single-numa-node, scope container [1]

NUMA node 0: 2 CPUs [1] (2 free), memory 7Gi [1] (7Gi free)
  distance 10 to 0, 21 to 1 [1]
  GPU 0 [2]: NVIDIA-H100-80GB-HBM3 [2], 81559Mi [2], switch pci0000:15 [2], free

NUMA node 1: 6 CPUs [1] (2 free), memory 8Gi [1] (7Gi free)
  distance 21 to 0, 10 to 1 [1]
  GPU 1 [2]: NVIDIA-H100-80GB-HBM3 [2], 81559Mi [2], switch pci0000:97 [2], used by {pod}

In use
  {pod}: NUMA node 1: 4 CPUs, 1Gi; GPU 1

Sources
  [1] NodeResourceTopology
  [2] ResourceSlices of gpu.nvidia.com
"""


def test_a_host_that_others_report(replica: Replica, node_pool: NodePool) -> None:
    node = a_host(node_pool, "a")
    node_pool.create(a_strict_pod(node_pool, "p"))
    before = until(lambda: node_pool.condition("p"), lambda found: bool(found[1]))
    assert vocabulary.NO_NUMA_TOPOLOGY in before[2]
    for collection, obj in what_others_say(node):
        node_pool.api.call("POST", collection, obj)
    assert node_pool.all_bound(1) == {"p": node}
    (pod,) = node_pool.pods()
    assigned = orjson.loads(pod["metadata"]["annotations"][vocabulary.NUMA_ASSIGNED_ANNOTATION])
    assert (assigned["numa"], assigned["gpus"]) == ([1], [1])
    done = describe(node_pool.plane, node)
    assert done.stdout == TEXT.format(node=node, pod=f"{node_pool.namespace}/p"), done.stderr
    for collection, obj in what_others_say(node):
        node_pool.api.call("DELETE", f"{collection}/{obj['metadata']['name']}")
    node_pool.api.call("DELETE", f"/api/v1/nodes/{node}")


def test_a_node_of_which_nothing_is_known_and_one_that_is_not_there(node_pool: NodePool) -> None:
    node = node_pool.add_node("plain")
    known, absent = describe(node_pool.plane, node, "--json"), describe(node_pool.plane, "nobody")
    assert (orjson.loads(known.stdout)["numa"], absent.returncode, absent.stderr) == (
        [],
        2,
        "kubenexus: there is no node 'nobody'; see `kubectl get nodes`\n",
    )
