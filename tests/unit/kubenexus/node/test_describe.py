"""`kubenexus node describe`: what is printed about a host, whole."""

from typing import Any

import orjson
import pytest

from kubenexus.node import render
from kubenexus.node.describe import describe
from kubenexus.node.fetch import NodeObjects
from policies import vocabulary
from scheduler.model.assignment import Assignment, NumaShare
from tests.unit.scheduler.hostinfo.host_objects import (
    a_device,
    a_slice,
    a_topology,
    a_zone,
    amd_gpu,
    nvidia_gpu,
)

Json = dict[str, Any]
GIB = 2**30


def a_reservation(name: str, spec: Json, *nodes: str, phase: str = "Active") -> Json:
    return {
        "metadata": {"namespace": "ns", "name": name},
        "spec": {**spec, "until": "2030-01-01T00:00:00Z"},
        "status": {"phase": phase, "places": [{"node": node} for node in nodes]},
    }


def a_node(
    labels: dict[str, str] | None = None,
    document: Json | None = None,
    *,
    gpus: int = 0,
    **annotations: str,
) -> Json:
    if document is not None:
        annotations[vocabulary.NUMA_TOPOLOGY_ANNOTATION] = orjson.dumps(document).decode()
    allocatable = {
        "cpu": "64",
        "memory": "512Gi",
        **({"nvidia.com/gpu": str(gpus)} if gpus else {}),
    }
    return {
        "metadata": {"name": "n", "labels": labels or {}, "annotations": annotations},
        "status": {"allocatable": allocatable},
    }


def a_pod(name: str, assigned: Assignment | None = None, **requests: str) -> Json:
    words = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in requests.items()}
    annotations = {vocabulary.NUMA_ASSIGNED_ANNOTATION: assigned.render()} if assigned else {}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": words}}]},
        "status": {"phase": "Succeeded" if name == "done" else "Running"},
    }


TWO_SOCKETS = {
    "nodes": [
        {
            "id": 0,
            "cpus": "0-31",
            "memory": "256Gi",
            "distances": [10, 20],
            "hugepages": {"hugepages-2Mi": "1Gi"},
        },
        {"id": 1, "cpus": "32-63", "memory": "256Gi", "distances": [20, 10], "bandwidth": 131072},
    ],
    "gpus": [
        {"index": 0, "numa": 0, "pci": "0000:1b:00.0", "switch": "0000:16:00.0"},
        {"index": 1, "numa": 1, "pci": "0000:9d:00.0", "switch": "0000:98:00.0"},
    ],
}

WHOLE = NodeObjects(
    a_node(
        {
            vocabulary.GFD_PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3",
            vocabulary.GFD_COUNT_LABEL: "2",
            vocabulary.GPU_CLIQUE_LABEL: "7b968a6d.1",
            vocabulary.FABRIC_TYPE_LABEL: "nvswitch",
            vocabulary.ZONE_LABEL: "a",
            vocabulary.AZ_LABEL: "b",
            vocabulary.gpu_numa_labels(1)[0]: "0",
        },
        TWO_SOCKETS,
        gpus=2,
    ),
    slices=(
        a_slice(
            "gpu.nvidia.com",
            nvidia_gpu(0, pci="0000:1b:00.0", root="pci0000:15"),
            nvidia_gpu(1, pci="0000:9d:00.0", root="pci0000:97"),
        ),
        a_slice("dra.net", a_device("eth0"), generation=3, parts=2),
    ),
    topology=a_topology(
        a_zone("node-0", {"node-0": 10, "node-1": 20}, cpu="32/30/1", memory="256Gi/250Gi/1Gi"),
        a_zone("node-1", {"node-0": 20, "node-1": 10}, cpu="32/32/1", memory="256Gi/256Gi/1Gi"),
        policy="single-numa-node",
        scope="pod",
    ),
    pods=(
        a_pod(
            "train",
            Assignment((NumaShare(0, 4000, 16 * GIB),), (0,)),
            cpu="4",
            memory="16Gi",
            gpu="1",
        ),
        a_pod("daemon", cpu="500m", memory="1Gi"),
        a_pod("done", Assignment((NumaShare(1, 4000, 0),)), cpu="4"),
    ),
    unread=("pods not read: 403",),
)
WHOLE_TEXT = """\
node n: 2 NUMA nodes, 2 GPUs; Topology Manager single-numa-node, scope pod [1]

NUMA node 0: 30 CPUs [1] (26 free), memory 250Gi [1] (234Gi free)
  hugepages-2Mi 1Gi [2] (1Gi free)
  distance 10 to 0, 20 to 1 [1]
  GPU 0 [2]: NVIDIA-H100-80GB-HBM3 [3], 81559Mi [3], switch 0000:16:00.0 [2], \
island 7b968a6d.1 [4], used by ns/train

NUMA node 1: 32 CPUs [1] (32 free), memory 256Gi [1] (256Gi free)
  bandwidth 131072 MB/s [2]
  distance 20 to 0, 10 to 1 [1]
  GPU 1 [2]: NVIDIA-H100-80GB-HBM3 [3], 81559Mi [3], switch 0000:98:00.0 [2], \
island 7b968a6d.1 [4], free

Fabric
  type nvswitch [5]
  clique 7b968a6d.1 [6]
  zone a [7]

In use
  ns/train: NUMA node 0: 4 CPUs, 16Gi; GPU 0
  NUMA node unknown, charged to every NUMA node: 500m CPUs, 1Gi

Contradictions (the first is used)
  GPU 1, NUMA node: annotation numa.kubenexus.io/topology: 1; \
labels numa.kubenexus.io/*, gpu.kubenexus.io/*: 0
  fabric, zone: label topology.kubernetes.io/zone: a; label network.kubenexus.io/az: b

Problems
  pool dra.net/n is ignored: generation 3 has 1 of 2 slices
  pods not read: 403

Sources
  [1] NodeResourceTopology
  [2] annotation numa.kubenexus.io/topology
  [3] ResourceSlices of gpu.nvidia.com
  [4] labels nvidia.com/gpu.*
  [5] label network.kubenexus.io/fabric-type
  [6] label nvidia.com/gpu.clique
  [7] label topology.kubernetes.io/zone
"""
BARE_TEXT = """\
node n: no NUMA node known, no GPU

Its NUMA nodes and GPUs are unknown. Run `kubenexus labeler` on it (the chart's \
labeler.enabled=true does so on every node), or label it by hand.
"""
RESERVED_TEXT = f"""\
{BARE_TEXT}
Reserved
  2 x cpu 2 for pod group spark until 2030-01-01T00:00:00Z (ns/spark)
  the whole node for tenant a until 2030-01-01T00:00:00Z (ns/team)
  1 x cpu 4 for tenant b from 2029-01-01T00:00:00Z until 2030-01-01T00:00:00Z (ns/next)
"""
GPUS_TEXT = """\
node n: no NUMA node known, 1 GPU

GPUs
  GPU 0 [1]: AMD_Instinct_MI300X_OAM [1], 196592Mi [1], switch pci0003:00 [1], free

Contradictions (the first is used)
  host, GPUs: the node's allocatable: 0; the sources above: 1

Sources
  [1] ResourceSlices of gpu.amd.com
"""
DISCOVERED_TEXT = """\
node n: 1 NUMA node, no GPU

NUMA node 0: 1 CPUs [1] (1 free), memory 1Gi [1] (-1Gi free), used by an isolated pod

In use
  ns/hpc: NUMA node 0: 0 CPUs, 2Gi; isolated

Contradictions (the first is used)
  host, NUMA nodes: the sources above: 1; labels feature.node.kubernetes.io/*: more than one

Problems
  numa.kubenexus.io/node-count is 2, node 1 is missing

Sources
  [1] labels numa.kubenexus.io/*, gpu.kubenexus.io/*
"""


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(WHOLE, WHOLE_TEXT, id="every fact that can be reported"),
        pytest.param(NodeObjects(a_node()), BARE_TEXT, id="nothing is known, and what to do"),
        pytest.param(
            NodeObjects(
                a_node(),
                slices=(
                    a_slice(
                        "gpu.amd.com", amd_gpu("g", pci="0003:00:04.0", numa=1, root="pci0003:00")
                    ),
                ),
            ),
            GPUS_TEXT,
            id="GPUs alone",
        ),
        pytest.param(
            NodeObjects(
                a_node(),
                reservations=(
                    a_reservation(
                        "spark",
                        {"podGroup": {"name": "spark", "resources": {"cpu": "2"}}},
                        "n",
                        "n",
                    ),
                    a_reservation("team", {"tenant": "a", "nodes": ["n"]}, "n"),
                    a_reservation(
                        "next",
                        {"tenant": "b", "resources": {"cpu": "4"}, "from": "2029-01-01T00:00:00Z"},
                        "n",
                        phase="Pending",
                    ),
                    a_reservation("far", {"tenant": "b", "nodes": ["other"]}, "other"),
                ),
            ),
            RESERVED_TEXT,
            id="reserved capacity on it",
        ),
        pytest.param(
            NodeObjects(
                a_node(
                    {
                        vocabulary.NUMA_NODE_COUNT_LABEL: "2",
                        vocabulary.numa_node_label(0, "cpus"): "0",
                        vocabulary.numa_node_label(0, "memory"): "1Gi",
                        "feature.node.kubernetes.io/memory-numa": "true",
                    }
                ),
                pods=(
                    a_pod(
                        "hpc", Assignment((NumaShare(0, 0, 2 * GIB),), isolated=True), memory="2Gi"
                    ),
                ),
            ),
            DISCOVERED_TEXT,
            id="an isolated pod that holds more than there is, and discovery that knows better",
        ),
    ],
)
def test_texts(found: NodeObjects, want: str) -> None:
    assert "\n".join(render.lines(describe(found))) + "\n" == want


def test_the_answer_is_json() -> None:
    answer = orjson.loads(orjson.dumps(describe(WHOLE)))
    assert (answer["numa"][0]["sources"], answer["gpus"][1]["pods"], answer["manager"]) == (
        {
            "cpu": "NodeResourceTopology",
            "memory": "NodeResourceTopology",
            "hugepages": "annotation numa.kubenexus.io/topology",
            "distances": "NodeResourceTopology",
        },
        [],
        {"policy": "single-numa-node", "scope": "pod", "source": "NodeResourceTopology"},
    )


def test_keys_of_gpus_and_contradictions() -> None:
    got = describe(WHOLE)
    zone = next(row for row in got["contradictions"] if row["fact"] == "zone")
    assert ([gpu["pods"] for gpu in got["gpus"]], zone) == (
        [["ns/train"], []],
        {
            "subject": "fabric",
            "fact": "zone",
            "values": [
                {"source": f"label {vocabulary.ZONE_LABEL}", "value": "a"},
                {"source": f"label {vocabulary.AZ_LABEL}", "value": "b"},
            ],
        },
    )
