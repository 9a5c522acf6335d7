"""
Topology and usage of a node as one JSON object. Pure.

    objects ──the scheduler's readers──▶ sources ──merge──▶ topology ──charge pods──▶ used, free

Amounts are Kubernetes quantities. Each fact has its source beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kubenexus.node.fetch import NodeObjects
from policies import quantity, vocabulary
from policies.hosts import merge, node_object
from policies.hosts.merge import HostFacts
from policies.hosts.topology import Gpu, Topology, Zone
from policies.json_fields import JsonDict
from scheduler.cache.snapshot import Snapshot
from scheduler.errors import ModelError
from scheduler.hostinfo import provenance
from scheduler.hostinfo.inventory import HostInventory, read_topology
from scheduler.hostinfo.provenance import Contradiction, Origins
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from scheduler.plugins.dra.device_types import ResourceSlice
from scheduler.plugins.dra.store import DeviceStore
from scheduler.plugins.numa.host_usage import HostUsage

FABRIC: Final = (
    ("type", vocabulary.FABRIC_TYPE_LABEL),
    ("id", vocabulary.FABRIC_ID_LABEL),
    ("rack", vocabulary.RACK_LABEL),
    ("clique", vocabulary.GPU_CLIQUE_LABEL),
    ("zone", vocabulary.ZONE_LABEL),
    ("zone", vocabulary.AZ_LABEL),
    ("region", vocabulary.REGION_LABEL),
)
_ZONE_FACTS: Final = (
    merge.CPU,
    merge.MEMORY,
    merge.HUGEPAGES,
    merge.BANDWIDTH,
    merge.DISTANCES,
)
_GPU_FACTS: Final = (
    merge.ZONE,
    merge.MODEL,
    merge.VRAM,
    merge.SWITCH,
    merge.ISLAND,
    merge.PCI,
    merge.DEVICE,
)


def describe(objects: NodeObjects) -> JsonDict:
    """Raises `ModelError` for a node that the scheduler cannot read either."""
    plain = Node.read(objects.node)
    devices = DeviceStore()
    hosts = HostInventory(devices, changed=lambda nodes: None)
    for obj in objects.slices:
        devices.put_slice(ResourceSlice.read(obj))
    if objects.topology is not None:
        hosts.put_topology(read_topology(objects.topology))
    node = hosts.complete(plain)
    labels, annotations = _texts(objects.node, "labels"), _texts(objects.node, "annotations")
    sources = [
        *hosts.facts(node.name),
        *node_object.sources(labels, annotations, gpus=plain.gpus),
        node_object.discovered(labels),
    ]
    topology = node.topology or Topology(())
    pods, unread = _pods(objects.pods)
    layout = Snapshot.of([node], ((pod, node.name) for pod in pods)).host_usage.get(node.name)
    origins = provenance.origins(sources)
    return {
        "node": node.name,
        "numa": [_zone(zone, layout, origins) for zone in topology.zones],
        "gpus": [_gpu(gpu, layout, origins, pods) for gpu in topology.gpus],
        "gpus_offered": plain.gpus,
        "manager": _manager(topology, origins),
        "fabric": list(_fabric(labels)),
        "pods": [_holding(pod) for pod in pods if pod.assignment],
        "elsewhere": _floating(layout, pods),
        "reserved": list(_reserved(objects.reservations, node.name)),
        "contradictions": [
            *(
                _contradiction(contradiction)
                for contradiction in provenance.contradictions(sources)
            ),
            *_more_contradictions(labels, sources, topology, plain),
        ],
        "problems": [*_problems(sources, devices), *unread, *objects.unread],
    }


def _reserved(objects: Sequence[JsonDict], node: str) -> Iterator[JsonDict]:
    """Capacity of the node that is or will be reserved, and the tenant or pod group it is for."""
    for obj in objects:
        about, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        places = [place for place in status.get("places") or () if place.get("node") == node]
        if not places:
            continue
        group = spec.get("podGroup")
        yield {
            "reservation": f"{about['namespace']}/{about['name']}",
            "for": f"pod group {group['name']}" if group else f"tenant {spec['tenant']}",
            "places": len(places),
            "each": dict((group or spec).get("resources") or {}),
            "from": spec.get("from") if status.get("phase") == "Pending" else None,
            "until": spec["until"],
        }


# --- the host ---


def _zone(zone: Zone, layout: HostUsage | None, origins: Origins) -> JsonDict:
    free = layout.numa_nodes[zone.id] if layout is not None else None
    return {
        "id": zone.id,
        "cpu": quantity.show("cpu", zone.cpu),
        "memory": quantity.binary(zone.memory),
        "hugepages": [
            {
                "name": name,
                "size": quantity.binary(size),
                "free": quantity.binary(free.hugepages.get(name, 0) if free else size),
            }
            for name, size in zone.hugepages
        ],
        "bandwidth": zone.bandwidth or None,
        "distances": {str(other): far for other, far in zone.distances},
        "free": {
            "cpu": quantity.show("cpu", free.cpu if free else zone.cpu),
            "memory": quantity.binary(free.memory if free else zone.memory),
        },
        "isolated": bool(free and free.isolated),
        "sources": _sources(provenance.zone(zone.id), _ZONE_FACTS, origins),
    }


def _gpu(gpu: Gpu, layout: HostUsage | None, origins: Origins, pods: Sequence[Pod]) -> JsonDict:
    holders = [str(pod.key) for pod in pods if pod.assignment and gpu.index in pod.assignment.gpus]
    return {
        "index": gpu.index,
        "numa": gpu.zone,
        "model": gpu.model,
        "vram": quantity.binary(gpu.vram) if gpu.vram else "",
        "switch": gpu.switch,
        "island": gpu.island,
        "pci": gpu.pci,
        "device": gpu.device,
        "free": layout is None or gpu.index in layout.free_gpus,
        "pods": holders,
        "sources": _sources(provenance.gpu(gpu.index), _GPU_FACTS, origins),
    }


def _sources(subject: str, facts: Sequence[str], origins: Origins) -> dict[str, str]:
    return {fact: origins[subject, fact] for fact in facts if (subject, fact) in origins}


def _manager(topology: Topology, origins: Origins) -> JsonDict | None:
    if topology.manager is None:
        return None
    return {
        "policy": topology.manager.policy,
        "scope": topology.manager.scope,
        "source": origins[provenance.HOST, merge.MANAGER],
    }


def _fabric(labels: Mapping[str, str]) -> Iterator[JsonDict]:
    listed: set[str] = set()
    for fact, key in FABRIC:
        if key in labels and fact not in listed:
            listed.add(fact)
            yield {"fact": fact, "value": labels[key], "source": f"label {key}"}


# --- pods ---


def _pods(objects: Sequence[JsonDict]) -> tuple[list[Pod], list[str]]:
    """Pods that are not finished, by name; and messages about those that cannot be read."""
    pods: list[Pod] = []
    unread: list[str] = []
    for obj in objects:
        try:
            pod = Pod.read(obj)
        except ModelError as exc:
            unread.append(str(exc))
            continue
        if not pod.finished:
            pods.append(pod)
    return sorted(pods, key=lambda pod: pod.key), unread


def _holding(pod: Pod) -> JsonDict:
    assignment = pod.assignment
    return {
        "pod": str(pod.key),
        "numa": [
            {
                "id": share.zone,
                "cpu": quantity.show("cpu", share.cpu),
                "memory": quantity.binary(share.memory),
            }
            for share in (assignment.shares if assignment else ())
        ],
        "gpus": list(assignment.gpus) if assignment else [],
        "isolated": bool(assignment and assignment.isolated),
    }


def _floating(layout: HostUsage | None, pods: Sequence[Pod]) -> JsonDict | None:
    """Usage of pods without a known NUMA node."""
    if layout is None:
        return None
    amounts = (layout.floating_cpu, layout.floating_memory, layout.floating_gpus)
    if not any(amounts):
        return None
    return {
        "pods": sum(1 for pod in pods if not pod.assignment),
        "cpu": quantity.show("cpu", layout.floating_cpu),
        "memory": quantity.binary(layout.floating_memory),
        "gpus": layout.floating_gpus,
    }


# --- contradictions ---


def _contradiction(contradiction: Contradiction) -> JsonDict:
    return {
        "subject": contradiction.subject,
        "fact": NAMES.get(contradiction.fact, contradiction.fact),
        "values": [
            {"source": source, "value": shown(contradiction.fact, value)}
            for source, value in contradiction.values
        ],
    }


def _more_contradictions(
    labels: Mapping[str, str], sources: Sequence[HostFacts], topology: Topology, node: Node
) -> Iterator[JsonDict]:
    """Contradictions between labels of one meaning, counts of GPUs, and discovery."""
    zone, az = labels.get(vocabulary.ZONE_LABEL), labels.get(vocabulary.AZ_LABEL)
    if zone and az and zone != az:
        yield _pair("zone", vocabulary.ZONE_LABEL, zone, vocabulary.AZ_LABEL, az)
    counts = [
        (f"label {key}", int(labels[key]))
        for key in (vocabulary.GFD_COUNT_LABEL, vocabulary.GPU_COUNT_LABEL)
        if labels.get(key, "").isdigit()
    ]
    if topology.gpus:
        counts.insert(0, ("the sources above", len(topology.gpus)))
    counts.insert(0, ("the node's allocatable", node.gpus))
    if len({count for _, count in counts}) > 1 and len(counts) > 1:
        yield _row(provenance.HOST, "GPUs", counts)
    if len(topology.zones) == 1 and any("several NUMA nodes" in source.host for source in sources):
        yield _row(
            provenance.HOST,
            "NUMA nodes",
            [("the sources above", 1), (node_object.NFD, "more than one")],
        )


def _pair(fact: str, first: str, value: str, other: str, other_value: str) -> JsonDict:
    return _row("fabric", fact, [(f"label {first}", value), (f"label {other}", other_value)])


def _row(subject: str, fact: str, values: Sequence[tuple[str, object]]) -> JsonDict:
    return {
        "subject": subject,
        "fact": fact,
        "values": [{"source": source, "value": str(value)} for source, value in values],
    }


def _problems(sources: Sequence[HostFacts], devices: DeviceStore) -> Iterator[str]:
    for source in sources:
        yield from source.problems
    for pool in (devices.pools[key] for key in sorted(devices.pools)):
        if not pool.complete:
            yield (
                f"pool {pool} is ignored: generation {pool.slices[0].generation} has "
                f"{len(pool.slices)} of {pool.slices[0].count} slices"
            )
        elif pool.duplicate:
            yield f"pool {pool} is ignored: two of its devices are called {pool.duplicate}"
    if any(source.host.get("shared") for source in sources):
        yield f"GPUs are shared ({vocabulary.GFD_REPLICAS_LABEL}): they are not assigned by index"


# --- values ---

NAMES: Final = {
    merge.CPU: "usable CPUs",
    merge.ALL_CPU: "CPUs",
    merge.MEMORY: "usable memory",
    merge.ALL_MEMORY: "memory",
    merge.ZONE: "NUMA node",
    merge.VRAM: "VRAM",
    merge.ROOT: "PCIe root",
    merge.PCI: "PCI address",
    merge.VENDOR: "vendor",
    merge.MANAGER: "Topology Manager",
}


def shown(fact: str, value: Any) -> str:
    if fact in (merge.CPU, merge.ALL_CPU):
        return quantity.show("cpu", value)
    if fact in (merge.MEMORY, merge.ALL_MEMORY, merge.VRAM):
        return quantity.binary(value)
    if fact == merge.HUGEPAGES:
        return ", ".join(f"{name} {quantity.binary(size)}" for name, size in value)
    if fact == merge.DISTANCES:
        return ", ".join(f"{other}:{far}" for other, far in value)
    if fact == merge.MANAGER:
        return f"{value.policy}, scope {value.scope}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


def _texts(obj: JsonDict, field: str) -> dict[str, str]:
    texts = (obj.get("metadata") or {}).get(field) or {}
    return {str(key): str(value) for key, value in texts.items()}
