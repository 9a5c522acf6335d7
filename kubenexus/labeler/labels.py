"""
NUMA nodes and GPUs of a host as an annotation and as labels of `policies.vocabulary`. Pure.

The annotation holds everything. Labels hold what fits a label: CPU lists are joined by `_` because
a label value cannot hold a comma, and a list longer than a label may be is left to the annotation.
"""

from typing import Any, Final

import orjson

from kubenexus.labeler.sysfs import Gpu, Host, Numa
from policies import vocabulary

LONGEST_LABEL: Final = 63
_OURS: Final = (vocabulary.numa_node_label(0, "").partition("node-0")[0], "gpu.kubenexus.io/gpu")


def annotations(host: Host) -> dict[str, str]:
    document = {
        "nodes": [_numa(node) for node in host.numa],
        "gpus": [_gpu(gpu) for gpu in host.gpus],
    }
    return {vocabulary.NUMA_TOPOLOGY_ANNOTATION: orjson.dumps(document).decode()}


def labels(host: Host) -> dict[str, str]:
    values = {vocabulary.NUMA_NODE_COUNT_LABEL: str(len(host.numa))}
    for node in host.numa:
        cpus = ranges(node.cpus, "_")
        if cpus and len(cpus) <= LONGEST_LABEL:
            values[vocabulary.numa_node_label(node.id, "cpus")] = cpus
        values[vocabulary.numa_node_label(node.id, "memory")] = str(node.memory)
        if node.bandwidth is not None:
            values[vocabulary.numa_node_label(node.id, "bandwidth")] = str(node.bandwidth)
        for other, distance in zip(host.numa, node.distances, strict=False):
            values[vocabulary.numa_node_label(node.id, f"distance-{other.id}")] = str(distance)
    for gpu in _countable(host):
        if gpu.numa is not None:
            values[vocabulary.gpu_numa_labels(gpu.index)[0]] = str(gpu.numa)
    return values


def is_ours(key: str) -> bool:
    """Whether the labeler writes this label, and so removes it when it is stale.

    Admins set the bandwidth where firmware does not report it: such a label stays.
    """
    if key.endswith("-bandwidth"):
        return False
    return key.startswith(_OURS[0] + "node-") or (
        key.startswith(_OURS[1]) and key.endswith("-numa")
    )


def ranges(cpus: tuple[int, ...], between: str) -> str:
    """Rising numbers as ranges: `0-15,32-47`."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return between.join(f"{low}-{high}" if high > low else str(low) for low, high in spans)


def _countable(host: Host) -> tuple[Gpu, ...]:
    """Labels number the GPUs of one vendor: the one with most GPUs on this host."""
    vendors = [gpu.vendor for gpu in host.gpus]
    most = min(set(vendors), key=lambda vendor: (-vendors.count(vendor), vendor), default="")
    return tuple(gpu for gpu in host.gpus if gpu.vendor == most)


def _numa(node: Numa) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": node.id,
        "cpus": ranges(node.cpus, ","),
        "memory": node.memory,
        "distances": list(node.distances),
    }
    if node.hugepages:
        document["hugepages"] = dict(node.hugepages)
    return document if node.bandwidth is None else {**document, "bandwidth": node.bandwidth}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    document: dict[str, Any] = {"index": gpu.index, "vendor": gpu.vendor, "pci": gpu.address}
    if gpu.numa is not None:
        document["numa"] = gpu.numa
    more = {
        "root": gpu.root,
        "switch": gpu.switch,
        "model": gpu.model,
        "vram": gpu.vram,
        "island": gpu.island,
    }
    return {**document, **{name: value for name, value in more.items() if value}}
