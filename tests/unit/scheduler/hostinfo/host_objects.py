"""Objects of other makers' software in the formats that it really writes: slices, topologies."""

from typing import Any

from policies.hosts.topology import Gpu

Json = dict[str, Any]
H100 = "NVIDIA-H100-80GB-HBM3"


def a_slice(
    driver: str,
    *devices: Json,
    node: str = "n",
    name: str = "",
    pool: str = "",
    generation: int = 1,
    parts: int = 1,
) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-{driver}-x7k2p"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {
                "name": pool or node,
                "generation": generation,
                "resourceSliceCount": parts,
            },
            "devices": list(devices),
        },
    }


def a_device(
    name: str, attributes: dict[str, Any] | None = None, capacity: dict[str, str] | None = None
) -> Json:
    """Attributes by their value: whole numbers, words, truths, and lists of words."""
    return {
        "name": name,
        "attributes": {key: {_kind(v): v} for key, v in (attributes or {}).items()},
        "capacity": {key: {"value": value} for key, value in (capacity or {}).items()},
    }


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "strings"
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"


def nvidia_gpu(minor: int, *, pci: str, root: str, **more: Any) -> Json:
    return a_device(
        f"gpu-{minor}",
        {
            "addressingMode": "HMM",
            "architecture": "Hopper",
            "brand": "Nvidia",
            "productName": "NVIDIA H100 80GB HBM3",
            "resource.kubernetes.io/pciBusID": pci,
            "resource.kubernetes.io/pcieRoot": root,
            "type": "gpu",
            "uuid": f"GPU-{minor}",
            **more,
        },
        {"memory": "81559Mi"},
    )


def amd_gpu(name: str, *, pci: str, numa: int, root: str) -> Json:
    return a_device(
        name,
        {
            "cardIndex": 56,
            "family": "AI",
            "numaNode": numa,
            "partitionProfile": "spx_nps1",
            "pciAddr": pci,
            "productName": "AMD_Instinct_MI300X_OAM",
            "resource.kubernetes.io/pcieRoot": root,
            "type": "amdgpu",
        },
        {"computeUnits": "304", "memory": "196592Mi"},
    )


def cpus_of_a_numa_node(numa: int, count: int, *roots: str) -> Json:
    """The CPU driver in its grouped mode."""
    return a_device(
        f"cpudevnuma{numa:03d}",
        {
            "dra.cpu/numCPUs": count,
            "dra.cpu/numaNodeID": numa,
            "dra.cpu/smtEnabled": True,
            "dra.net/numaNode": numa,
            "resource.kubernetes.io/numaNode": numa,
            "resource.kubernetes.io/pcieRoot": list(roots),
        },
        {"dra.cpu/cpu": str(count)},
    )


def a_cpu(number: int, numa: int) -> Json:
    """The CPU driver in its individual mode."""
    return a_device(
        f"cpudev{number:03d}",
        {"dra.cpu/cpuID": number, "dra.cpu/numaNodeID": numa, "dra.net/numaNode": numa},
    )


def memory(numa: int, size: str, *, page: str = "4k") -> Json:
    return a_device(
        f"memory-{page}-{numa}",
        {
            "dra.memory/numaNode": numa,
            "dra.memory/pageSize": page,
            "dra.memory/hugeTLB": page != "4k",
        },
        {"size": size},
    )


def a_topology(
    *zones: Json, name: str = "n", policy: str = "", scope: str = "", old: str = ""
) -> Json:
    attributes = [("topologyManagerPolicy", policy), ("topologyManagerScope", scope)]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "topologyPolicies": [old] if old else [],
        "attributes": [{"name": key, "value": value} for key, value in attributes if value],
        "zones": list(zones),
    }


def a_zone(name: str, costs: dict[str, int] | None = None, **resources: str) -> Json:
    """`cpu="32/30/10"`: capacity, allocatable, available; `__` stands for `/`, `_` for `-`."""
    rows = []
    for key, amounts in resources.items():
        capacity, allocatable, available = amounts.split("/")
        rows.append(
            {
                "name": key.replace("__", "/")
                .replace("_", "-")
                .replace("nvidia-com", "nvidia.com"),
                "capacity": capacity,
                "allocatable": allocatable,
                "available": available,
            }
        )
    found: Json = {"name": name, "type": "Node", "resources": rows}
    if costs:
        found["costs"] = [{"name": other, "value": value} for other, value in costs.items()]
    return found


TWO_ZONES = (
    a_zone(
        "node-0",
        {"node-0": 10, "node-1": 21},
        cpu="32/30/1",
        memory="267242119168/265094635520/0",
        hugepages_2Mi="0/0/0",
        hugepages_1Gi="4294967296/4294967296/0",
        nvidia_com__gpu="2/2/0",
    ),
    a_zone("node-1", {"node-0": 21, "node-1": 10}, cpu="32/32/1", nvidia_com__gpu="2/2/2"),
)


def h100(index: int, zone: int | None = None, **more: Any) -> Gpu:
    """What `nvidia_gpu` is read as."""
    device = f"gpu.nvidia.com/n/gpu-{more.pop('minor', index)}"
    return Gpu(index, zone, H100, 81559 * 2**20, device=device, **more)
