"""Nodes completed from other sources; which source reports a fact, and which sources disagree."""

from typing import Any

import orjson
import pytest

from policies import vocabulary
from policies.hosts import node_object
from policies.hosts.topology import Gpu, Topology, TopologyManager, Zone
from scheduler.cache.cache import Cache
from scheduler.hostinfo import provenance
from scheduler.hostinfo.inventory import HostInventory, fill, read_topology
from scheduler.hostinfo.provenance import Contradiction
from scheduler.model.assignment import Assignment, NumaShare
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plugins.dra.device_types import ResourceSlice
from tests.unit.scheduler.hostinfo.host_objects import (
    H100,
    TWO_ZONES,
    a_device,
    a_slice,
    a_topology,
    h100,
    nvidia_gpu,
)

Json = dict[str, Any]
MIB, GIB = 2**20, 2**30

# --- one node, all sources ---


def a_node(**labels: str) -> Json:
    document = {
        "nodes": [
            {"id": 0, "cpus": "0-31", "memory": "256Gi", "distances": [10, 20]},
            {"id": 1, "cpus": "32-63", "memory": "256Gi", "distances": [20, 10]},
        ],
        "gpus": [
            {"index": 0, "numa": 0, "pci": "0000:1b:00.0", "switch": "0000:16:00.0"},
            {"index": 1, "numa": 1, "pci": "0000:9d:00.0", "switch": "0000:98:00.0"},
        ],
    }
    annotation = {vocabulary.NUMA_TOPOLOGY_ANNOTATION: orjson.dumps(document).decode()}
    return {
        "metadata": {"name": "n", "labels": labels, "annotations": annotation},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "2"}},
    }


OWN = Topology(
    (
        Zone(0, 32_000, 256 * GIB, distances=((0, 10), (1, 20))),
        Zone(1, 32_000, 256 * GIB, distances=((0, 20), (1, 10))),
    ),
    (
        Gpu(0, 0, switch="0000:16:00.0", pci="0000:1b:00.0"),
        Gpu(1, 1, switch="0000:98:00.0", pci="0000:9d:00.0"),
    ),
)
# The driver's devices are numbered against the order of their PCI addresses.
PAIR = (
    nvidia_gpu(1, pci="0000:1b:00.0", root="pci0000:15"),
    nvidia_gpu(0, pci="0000:9d:00.0", root="pci0000:97"),
)
WHOLE = Topology(
    (
        Zone(
            0,
            30_000,
            265094635520,
            (("hugepages-1Gi", 4 * GIB),),
            distances=((0, 10), (1, 21)),
        ),
        Zone(1, 32_000, 256 * GIB, distances=((0, 21), (1, 10))),
    ),
    (
        h100(0, 0, minor=1, switch="0000:16:00.0", pci="0000:1b:00.0"),
        h100(1, 1, minor=0, switch="0000:98:00.0", pci="0000:9d:00.0"),
    ),
    manager=TopologyManager("single-numa-node", "pod"),
)
TOPOLOGY = a_topology(*TWO_ZONES, policy="single-numa-node", scope="pod")


def put_slices(cache: Cache, *objects: Json) -> None:
    for obj in objects:
        cache.snapshot.devices.store.put_slice(ResourceSlice.read(obj))


@pytest.mark.parametrize("node_first", [True, False], ids=["node first", "node last"])
def test_a_node_has_the_best_of_every_source(node_first: bool) -> None:
    changed_nodes = list[str]()
    cache = Cache(nodes_changed=changed_nodes.extend)
    node = Node.read(a_node())
    if node_first:
        cache.put_node(node)
    put_slices(cache, a_slice("gpu.nvidia.com", *PAIR))
    cache.hosts.put_topology(read_topology(TOPOLOGY))
    if not node_first:
        cache.put_node(node)
    found = cache.snapshot.table.nodes["n"]
    assert (found.topology, found.vram, changed_nodes) == (
        WHOLE,
        81559 * MIB,
        ["n", "n"] if node_first else [],
    )


def test_without_sources_the_node_has_its_own_facts() -> None:
    cache = Cache()
    cache.put_node(Node.read(a_node()))
    gone = a_slice("gpu.nvidia.com", *PAIR)
    put_slices(cache, gone)
    cache.hosts.put_topology(read_topology(TOPOLOGY))
    cache.snapshot.devices.store.drop_slice(ResourceSlice.read(gone))
    cache.hosts.drop_topology(read_topology(TOPOLOGY))
    found = cache.snapshot.table.nodes["n"]
    assert (found.topology, found.vram, cache.hosts.facts("n")) == (OWN, 0, [])


@pytest.mark.parametrize(
    ("objects", "devices"),
    [
        pytest.param(
            [
                a_slice("gpu.nvidia.com", PAIR[0], name="a", parts=2),
                a_slice("gpu.nvidia.com", PAIR[1], name="b", parts=2),
            ],
            ["gpu-1", "gpu-0"],
            id="a pool in two slices",
        ),
        pytest.param(
            [a_slice("gpu.nvidia.com", *PAIR, name="a", parts=2)],
            ["", ""],
            id="a pool of which a slice is missing is not believed",
        ),
        pytest.param(
            [
                a_slice("gpu.nvidia.com", *PAIR, name="a"),
                a_slice("gpu.nvidia.com", PAIR[0], name="b", generation=2),
            ],
            ["gpu-1", ""],
            id="the newest generation counts",
        ),
        pytest.param(
            [
                a_slice("gpu.nvidia.com", *PAIR, name="a"),
                a_slice("gpu.nvidia.com", *PAIR, name="b", generation=2, parts=2),
            ],
            ["", ""],
            id="the newest generation counts, complete or not",
        ),
        pytest.param(
            [a_slice("gpu.nvidia.com", *PAIR, node="m")],
            ["", ""],
            id="slices of another node",
        ),
    ],
)
def test_which_slices_count(objects: list[Json], devices: list[str]) -> None:
    cache = Cache()
    cache.put_node(Node.read(a_node()))
    put_slices(cache, *objects)
    topology = cache.snapshot.table.nodes["n"].topology
    assert topology is not None
    assert [gpu.device.rpartition("/")[2] for gpu in topology.gpus] == devices


def test_pods_keep_their_assignment_when_host_facts_change() -> None:
    cache = Cache()
    cache.put_node(Node.read(a_node()))
    held = Assignment((NumaShare(0, 4000, GIB),), (0,))
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "annotations": {vocabulary.NUMA_ASSIGNED_ANNOTATION: held.render()},
        },
        "spec": {
            "nodeName": "n",
            "containers": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "1"}},
                }
            ],
        },
        "status": {"phase": "Running"},
    }
    cache.put_pod(Pod.read(pod))
    put_slices(cache, a_slice("gpu.nvidia.com", *PAIR))
    cache.hosts.put_topology(read_topology(TOPOLOGY))
    fresh = Cache()
    put_slices(fresh, a_slice("gpu.nvidia.com", *PAIR))
    fresh.hosts.put_topology(read_topology(TOPOLOGY))
    fresh.put_pod(Pod.read(pod))
    fresh.put_node(Node.read(a_node()))
    layout = cache.snapshot.host_usage["n"]
    assert (layout.numa_nodes[0].cpu, layout.free_gpus) == (26_000, {1})
    assert layout.state() == fresh.snapshot.host_usage["n"].state()


def test_vram_by_the_model() -> None:
    node = Node(
        "n", gpus=3, topology=Topology((), (Gpu(0, 0, "A"), Gpu(1, 0, "B", 7), Gpu(2, None)))
    )
    filled = fill(node, lambda model: {"A": 40, "B": 80}[model])
    assert (filled.topology, filled.vram) == (
        Topology((), (Gpu(0, 0, "A", 40), Gpu(1, 0, "B", 7), Gpu(2, None))),
        40,
    )


def test_vram_of_models_in_policies() -> None:
    changed_nodes = list[str]()
    cache = Cache(nodes_changed=changed_nodes.extend)
    obj = a_node(**{vocabulary.GFD_PRODUCT_LABEL: H100})
    cache.put_node(Node.read(obj))
    cache.know_models(lambda model: 80 * GIB if model == H100 else 0)
    found = cache.snapshot.table.nodes["n"]
    assert found.topology is not None
    assert ([gpu.vram for gpu in found.topology.gpus], found.vram, changed_nodes) == (
        [80 * GIB, 80 * GIB],
        80 * GIB,
        ["n"],
    )


# --- where facts come from ---


def test_origins_and_contradictions() -> None:
    cache = Cache()
    put_slices(cache, a_slice("gpu.nvidia.com", *PAIR))
    cache.hosts.put_topology(read_topology(TOPOLOGY))
    labels = {
        vocabulary.GFD_PRODUCT_LABEL: H100,
        vocabulary.GFD_MEMORY_LABEL: "81920",
        vocabulary.gpu_numa_labels(1)[0]: "0",
        vocabulary.NUMA_NODE_COUNT_LABEL: "1",
        vocabulary.numa_node_label(0, "memory"): "249Gi",
    }
    obj = a_node(**labels)
    sources = [
        *cache.hosts.facts("n"),
        *node_object.sources(obj["metadata"]["labels"], obj["metadata"]["annotations"], gpus=2),
    ]
    nrt, driver = "NodeResourceTopology", "ResourceSlices of gpu.nvidia.com"
    origins = provenance.origins(sources)
    zone, gpu = provenance.zone(1), provenance.gpu(1)
    assert [
        origins[zone, "cpu"],
        origins[zone, "memory"],
        origins[gpu, "vram"],
        origins[gpu, "zone"],
    ] == [nrt, node_object.ANNOTATION, driver, node_object.ANNOTATION]
    assert provenance.contradictions(sources) == [
        Contradiction("host", "GPUs", ((driver, 2), (nrt, 4))),
        Contradiction(
            "host",
            "NUMA nodes",
            ((nrt, (0, 1)), (node_object.LABELS, (0,))),
        ),
        Contradiction(
            "NUMA node 0",
            "memories",
            ((nrt, 267242119168), (node_object.ANNOTATION, 256 * GIB)),
        ),
        Contradiction(
            "NUMA node 0",
            "distances",
            ((nrt, ((0, 10), (1, 21))), (node_object.ANNOTATION, ((0, 10), (1, 20)))),
        ),
        Contradiction(
            "NUMA node 1",
            "distances",
            ((nrt, ((0, 21), (1, 10))), (node_object.ANNOTATION, ((0, 20), (1, 10)))),
        ),
        Contradiction("GPU 1", "zone", ((node_object.ANNOTATION, 1), (node_object.LABELS, 0))),
    ]


def test_unchanged_facts_are_not_announced() -> None:
    cache, changed_nodes = Cache(), list[tuple[str, ...]]()
    hosts = HostInventory(
        cache.snapshot.devices.store, changed=lambda nodes: changed_nodes.append(tuple(nodes))
    )
    for version in ("1", "2"):
        obj = a_slice("gpu.nvidia.com", *PAIR)
        obj["metadata"]["resourceVersion"] = version
        put_slices(cache, obj)
        hosts.put_topology(read_topology(TOPOLOGY))
    put_slices(cache, a_slice("storage.example.com", a_device("disk")))
    assert changed_nodes == [("n",), ("n",)]
