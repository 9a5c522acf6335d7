"""
Whether a pod is larger than every single NUMA node that is known.

    nodes --sizes_of--> sizes --Known.change--> largest --warning(pod)--> a sentence, or None

Only `single-numa` asks for exactly one NUMA node: the other policies may take several. A size is
what an empty NUMA node has, so a warning says that a pod cannot be placed on the cluster as it
stands, never that it is busy. GPUs whose place nobody knows count for every NUMA node of their
host: a pod is not warned about for want of data. Nothing is refused here, because larger nodes
may come. Pure; the watch that tells about nodes is somebody else's.
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
    """What one NUMA node has, or what a pod wants of one: CPU in thousandths, memory in bytes."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0

    def holds(self, other: "Size") -> bool:
        return self.cpu >= other.cpu and self.memory >= other.memory and self.gpus >= other.gpus


Sizes = frozenset[Size]


def sizes_of(node: Json) -> Sizes:
    """The sizes of a node's NUMA nodes; none where the node tells nothing usable of them."""
    about = mapping(node.get("metadata"))
    offered = _gpus(mapping(mapping(node.get("status")).get("allocatable")))
    labels, annotations = mapping(about.get("labels")), mapping(about.get("annotations"))
    found = node_object.read(labels, annotations, gpus=offered)
    if found is None:
        return frozenset()
    placed = Counter(gpu.zone for gpu in found.gpus if gpu.zone is not None)
    loose = max(0, offered, len(found.gpus)) - placed.total()
    return frozenset(
        Size(zone.cpu, zone.memory, placed[zone.id] + max(0, loose)) for zone in found.zones
    )


class NumaSizes:
    """The largest sizes of a changing set of nodes. One thread tells, any thread reads."""

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
    """The sizes that no other one holds, largest first: what fits in none of them fits nowhere."""
    kept: list[Size] = []
    for size in sorted(set(sizes), reverse=True):
        if not any(other.holds(size) for other in kept):
            kept.append(size)
    return tuple(kept)


def warning(pod: Json, numa: Numa, known: Sequence[Size]) -> str | None:
    """What to tell the author of a pod that is larger than every known NUMA node."""
    if numa.policy != _ONE_NODE or not known:
        return None
    try:
        want = _wanted(requests.effective({"spec": mapping(pod.get("spec"))}), numa)
    except requests.RequestError:
        return None  # the API server refuses such a pod, with its own words
    if any(size.holds(want) for size in known):
        return None
    beyond = [
        f"{said} on one NUMA node, the largest known has {most}"
        for said, most in (
            _beyond("cpu", want.cpu, max(size.cpu for size in known)),
            _beyond("memory", want.memory, max(size.memory for size in known)),
            _beyond("gpu", want.gpus, max(size.gpus for size in known)),
        )
        if said
    ]
    asked = ", and for ".join(beyond) or f"{_together(want)} on one NUMA node, no known one has all"
    return (
        f"asks for {asked}: with {vocabulary.NUMA_POLICY_ANNOTATION} {_ONE_NODE} it waits for a "
        "larger node; ask for less, or for restricted"
    )


def _wanted(amounts: Mapping[str, int], numa: Numa) -> Size:
    """The amounts that must sit together: all, unless the pod lists the resources itself."""
    named = numa.resources
    aligned = {name: count for name, count in amounts.items() if named is None or name in named}
    return Size(aligned.get("cpu", 0), aligned.get("memory", 0), requests.gpus(aligned))


def _beyond(resource: str, want: int, most: int) -> tuple[str, str]:
    """How much is asked for and how much there is at most; nothing where that is enough."""
    if want <= most:
        return "", ""
    return _said(resource, want), _amount(resource, most)


def _together(want: Size) -> str:
    amounts = (("cpu", want.cpu), ("memory", want.memory), ("gpu", want.gpus))
    return " and ".join(_said(resource, count) for resource, count in amounts if count)


def _said(resource: str, count: int) -> str:
    unit = {"cpu": " CPUs", "memory": " of memory", "gpu": " GPUs"}[resource]
    return f"{_amount(resource, count)}{unit}"


def _amount(resource: str, count: int) -> str:
    return quantity.binary(count) if resource == "memory" else quantity.show(resource, count)


def _gpus(allocatable: Json) -> int:
    """Whole GPUs that the node offers; an amount that is none counts as unsaid."""
    total = 0
    for name in vocabulary.GPU_RESOURCES:
        try:
            total += quantity.units(allocatable.get(name, 0))
        except quantity.QuantityError:
            continue
    return total
