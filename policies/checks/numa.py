"""
Built-in check: a pod is larger than every known NUMA node.

    nodes --sizes_of--> sizes --NumaSizes.change--> largest --warning(pod)--> a sentence, or None

Only `single-numa` requires exactly one NUMA node: the other policies may use several. A size is the
capacity of an empty NUMA node, so a warning means that no node of the cluster can hold the pod, not
that the cluster is busy. GPUs on an unknown NUMA node count for every NUMA node of their host:
missing data causes no warning. The check denies nothing, because larger nodes may come. It is pure;
the caller watches the nodes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policies import quantity, vocabulary
from policies.hosts import node_object
from policies.json_fields import Json, mapping
from policies.pods import requests
from policies.pods.intent import Numa

_ONE_NODE: Final = "single-numa"


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Capacity of a NUMA node, or a pod's requests of one: CPU in thousandths, memory in bytes."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0

    def holds(self, other: "Size") -> bool:
        return self.cpu >= other.cpu and self.memory >= other.memory and self.gpus >= other.gpus


Sizes = frozenset[Size]


def sizes_of(node: Json) -> Sizes:
    """The sizes of a node's NUMA nodes; none where the node has no usable data about them."""
    metadata = mapping(node.get("metadata"))
    offered = _gpus(mapping(mapping(node.get("status")).get("allocatable")))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    topology = node_object.read(labels, annotations, gpus=offered)
    if topology is None:
        return frozenset()
    placed = Counter(gpu.zone for gpu in topology.gpus if gpu.zone is not None)
    unplaced = max(0, offered, len(topology.gpus)) - placed.total()
    return frozenset(
        Size(zone.cpu, zone.memory, placed[zone.id] + max(0, unplaced)) for zone in topology.zones
    )


class NumaSizes:
    """The largest sizes of a changing set of nodes. One thread writes, any thread reads."""

    def __init__(self) -> None:
        self._nodes: Counter[Size] = Counter()  # size -> nodes that have it
        self.largest: tuple[Size, ...] = ()

    def change(self, before: Sizes, after: Sizes) -> None:
        """A node had the sizes `before` and has the sizes `after`; a new or lost one has none."""
        lost = [size for size in before - after if self._nodes[size] <= 1]
        self._nodes.subtract(before - after)
        self._nodes.update(after - before)
        for size in lost:
            del self._nodes[size]
        if any(size in self.largest for size in lost):
            self.largest = largest(self._nodes)
        elif after - before:
            self.largest = largest((*self.largest, *after))


def largest(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """The sizes that no other one holds, largest first: the rest need no comparison."""
    maximal: list[Size] = []
    for size in sorted(set(sizes), reverse=True):
        if not any(other.holds(size) for other in maximal):
            maximal.append(size)
    return tuple(maximal)


def warning(pod: Json, numa: Numa, known: Sequence[Size]) -> str | None:
    """The warning for a pod that is larger than every known NUMA node, or None."""
    if numa.policy != _ONE_NODE or not known:
        return None
    try:
        request = _wanted(requests.effective({"spec": mapping(pod.get("spec"))}), numa)
    except requests.RequestError:
        return None  # the API server rejects such a pod with a message of its own
    if any(size.holds(request) for size in known):
        return None
    beyond = [
        f"{requested} on one NUMA node, the largest known has {most}"
        for requested, most in (
            _beyond("cpu", request.cpu, max(size.cpu for size in known)),
            _beyond("memory", request.memory, max(size.memory for size in known)),
            _beyond("gpu", request.gpus, max(size.gpus for size in known)),
        )
        if requested
    ]
    shortage = ", and ".join(beyond) or f"{_all(request)} on one NUMA node, no known one has all"
    return (
        f"requests {shortage}: with {vocabulary.NUMA_POLICY_ANNOTATION} {_ONE_NODE} it waits for a "
        "larger node; request less, or use restricted"
    )


def _wanted(amounts: Mapping[str, int], numa: Numa) -> Size:
    """The amounts that must sit together: all, unless the pod lists the resources itself."""
    named = numa.resources
    aligned = {name: count for name, count in amounts.items() if named is None or name in named}
    return Size(aligned.get("cpu", 0), aligned.get("memory", 0), requests.gpus(aligned))


def _beyond(resource: str, requested: int, most: int) -> tuple[str, str]:
    """The requested amount and the most that a NUMA node has; empty where that is enough."""
    if requested <= most:
        return "", ""
    return _with_unit(resource, requested), _amount(resource, most)


def _all(requested: Size) -> str:
    amounts = (("cpu", requested.cpu), ("memory", requested.memory), ("gpu", requested.gpus))
    return " and ".join(_with_unit(resource, count) for resource, count in amounts if count)


def _with_unit(resource: str, count: int) -> str:
    unit = {"cpu": " CPUs", "memory": " of memory", "gpu": " GPUs"}[resource]
    return f"{_amount(resource, count)}{unit}"


def _amount(resource: str, count: int) -> str:
    return quantity.binary(count) if resource == "memory" else quantity.show(resource, count)


def _gpus(allocatable: Json) -> int:
    """Whole GPUs that the node offers; an unreadable amount counts as 0."""
    total = 0
    for name in vocabulary.GPU_RESOURCES:
        try:
            total += quantity.units(allocatable.get(name, 0))
        except quantity.QuantityError:
            continue
    return total
