"""ResourceSlices and NodeResourceTopologies in real formats, read."""

from typing import Any

import pytest

from policies.hosts.merge import merge
from policies.hosts.topology import Gpu, Topology, TopologyManager, Zone
from scheduler.hostinfo import node_resource_topology, resource_slices
from scheduler.plugins.dra.device_types import ResourceSlice
from tests.unit.scheduler.hostinfo.host_objects import (
    TWO_ZONES,
    a_cpu,
    a_device,
    a_slice,
    a_topology,
    a_zone,
    amd_gpu,
    cpus_of_a_numa_node,
    h100,
    memory,
    nvidia_gpu,
)

Json = dict[str, Any]
MIB, GIB = 2**20, 2**30


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [
                a_slice(
                    "gpu.nvidia.com",
                    nvidia_gpu(1, pci="0000:1b:00.0", root="pci0000:15"),
                    nvidia_gpu(0, pci="0000:3d:00.0", root="pci0000:37"),
                )
            ],
            Topology(
                (),
                (
                    h100(0, minor=1, pci="0000:1b:00.0", switch="pci0000:15"),
                    h100(1, minor=0, pci="0000:3d:00.0", switch="pci0000:37"),
                ),
            ),
            id="NVIDIA's GPUs count by PCI address, as nvidia-smi does",
        ),
        pytest.param(
            [
                a_slice(
                    "gpu.nvidia.com",
                    a_device("gpu-0", {"index": 1, "minor": 0, "uuid": "GPU-a", "type": "gpu"}),
                    a_device("gpu-1", {"index": 0, "minor": 1, "uuid": "GPU-b", "type": "gpu"}),
                    a_device("gpu-0-mig-9-4-4", {"type": "mig", "parentUUID": "GPU-a"}),
                )
            ],
            Topology(
                (),
                (
                    Gpu(0, None, device="gpu.nvidia.com/n/gpu-1"),
                    Gpu(1, None, device="gpu.nvidia.com/n/gpu-0"),
                ),
            ),
            id="an index of the driver; parts of GPUs are no GPUs",
        ),
        pytest.param(
            [
                a_slice(
                    "gpu.nvidia.com",
                    a_device(
                        "gpu-3",
                        {"gpu.nvidia.com/nvlinkDomain": 0, "gpu.nvidia.com/model": "H100"},
                        {"gpu.nvidia.com/vram": "80Gi"},
                    ),
                )
            ],
            Topology(
                (), (Gpu(3, None, "H100", 80 * GIB, island="0", device="gpu.nvidia.com/n/gpu-3"),)
            ),
            id="qualified names; a number in the name where nothing else tells the index",
        ),
        pytest.param(
            [
                a_slice(
                    "gpu.amd.com",
                    amd_gpu("gpu-56-184", pci="0003:00:04.0", numa=1, root="pci0003:00"),
                    amd_gpu("gpu-48-176", pci="0002:00:04.0", numa=0, root="pci0002:00"),
                )
            ],
            Topology(
                (),
                tuple(
                    Gpu(
                        index,
                        index,
                        "AMD_Instinct_MI300X_OAM",
                        196592 * MIB,
                        f"pci000{index + 2}:00",
                        device=f"gpu.amd.com/n/{name}",
                        pci=f"000{index + 2}:00:04.0",
                    )
                    for index, name in enumerate(("gpu-48-176", "gpu-56-184"))
                ),
            ),
            id="AMD's GPUs report their NUMA nodes",
        ),
        pytest.param(
            [
                a_slice("dra.cpu", *(a_cpu(n, n // 2) for n in range(4))),
                a_slice(
                    "dra.memory",
                    memory(0, "1000"),
                    memory(0, "4194304", page="2m"),
                    memory(1, "1Gi", page="1g"),
                ),
            ],
            Topology(
                (
                    Zone(0, 2000, 1000, (("hugepages-2Mi", 4194304),)),
                    Zone(1, 2000, 0, (("hugepages-1Gi", GIB),)),
                )
            ),
            id="CPUs one by one, memory and huge pages",
        ),
        pytest.param(
            [
                a_slice(
                    "dra.cpu",
                    cpus_of_a_numa_node(0, 31, "pci0000:15", "pci0000:37"),
                    cpus_of_a_numa_node(1, 32, "pci0000:97"),
                ),
                a_slice("dra.net", a_device("eth1", {"dra.net/numaNode": 1, "dra.net/rdma": True})),
                a_slice(
                    "gpu.nvidia.com",
                    nvidia_gpu(0, pci="00000000:1B:00.0", root="pci0000:15"),
                    nvidia_gpu(1, pci="00000000:9D:00.0", root="pci0000:97"),
                    nvidia_gpu(2, pci="00000000:DD:00.0", root="pci0000:d0", numa=-1),
                ),
            ],
            Topology(
                (Zone(0, 31_000, 0), Zone(1, 32_000, 0)),
                (
                    h100(0, 0, pci="0000:1b:00.0", switch="pci0000:15"),
                    h100(1, 1, pci="0000:9d:00.0", switch="pci0000:97"),
                    h100(2, pci="0000:dd:00.0", switch="pci0000:d0"),
                ),
            ),
            id="a GPU sits where the CPUs of its PCIe root are",
        ),
        pytest.param(
            [
                a_slice(
                    "gpu.example.com",
                    a_device(
                        "a",
                        {
                            "resource.kubernetes.io/numaNode": 1,
                            "gpu.example.com/numaNode": 0,
                            "gpu.example.com/numa": 2,
                            "other/numaNode": 7,
                        },
                    ),
                )
            ],
            Topology((), (Gpu(0, 1, device="gpu.example.com/n/a"),)),
            id="the standard's name precedes the driver's, and that precedes others",
        ),
        pytest.param(
            [
                a_slice(
                    "dra.net",
                    a_device("eth0", {"numaNode": 0, "resource.kubernetes.io/pcieRoot": "pci0"}),
                    a_device("eth1", {"numaNode": 1, "resource.kubernetes.io/pcieRoot": "pci0"}),
                ),
                a_slice(
                    "gpu.example.com",
                    a_device("a", {"resource.kubernetes.io/pcieRoot": "pci0"}),
                ),
            ],
            Topology((), (Gpu(0, None, switch="pci0", device="gpu.example.com/n/a"),)),
            id="devices of one PCIe root that disagree say nothing about the others",
        ),
    ],
)
def test_slices(objects: list[Json], want: Topology) -> None:
    assert merge(resource_slices.host_facts(map(ResourceSlice.read, objects)), gpus=0) == want


@pytest.mark.parametrize(
    ("obj", "gpus", "want"),
    [
        pytest.param(
            a_topology(*TWO_ZONES, policy="single-numa-node", scope="pod"),
            0,
            Topology(
                (
                    Zone(
                        0,
                        30_000,
                        265094635520,
                        (("hugepages-1Gi", 4 * GIB),),
                        distances=((0, 10), (1, 21)),
                    ),
                    Zone(1, 32_000, 0, distances=((0, 21), (1, 10))),
                ),
                manager=TopologyManager("single-numa-node", "pod"),
            ),
            id="zones with costs; what pods may have counts, not what was last seen free",
        ),
        pytest.param(
            a_topology(TWO_ZONES[1], old="RestrictedPodLevel"),
            2,
            Topology(
                (Zone(1, 32_000, 0, distances=((1, 10),)),),
                (Gpu(0, 1), Gpu(1, 1)),
                manager=TopologyManager("restricted", "pod"),
            ),
            id="GPUs that are counted; a policy in the older form",
        ),
        pytest.param(
            a_topology(
                {"name": "socket", "type": "Node"},
                {"name": "gpu-0", "type": "GPU"},
                a_zone("node-0", cpu="much/1/1"),
                old="SingleNUMANodeContainerLevel",
            ),
            0,
            Topology(
                (Zone(0, 0, 0),),
                problems=(
                    "NodeResourceTopology: zone 'socket' names no NUMA node",
                    "NodeResourceTopology: zone node-0, cpu: found 'much', want a quantity such as "
                    "500m, 2, 1.5Gi or 80G",
                ),
                manager=TopologyManager("single-numa-node", "container"),
            ),
            id="what cannot be read is named",
        ),
        pytest.param(
            a_topology(policy="best-effort", old="None"),
            0,
            Topology((), manager=TopologyManager("best-effort", "container")),
            id="attributes before the older form; container is the default",
        ),
        pytest.param(a_topology(old="Whatever"), 0, None, id="an unknown policy is ignored"),
    ],
)
def test_topologies(obj: Json, gpus: int, want: Topology | None) -> None:
    assert merge([node_resource_topology.read(obj)], gpus=gpus) == want
