"""
Host facts of a Node object, source by source, best first:

    annotation numa.kubenexus.io/topology    JSON, written by the labeler
    labels nvidia.com/gpu.*                  GPU feature discovery: model, memory in MiB, clique
    labels numa.kubenexus.io/node-<i>-*,
           gpu.kubenexus.io/*                written by the labeler or by hand

The annotation reads

    {"nodes": [{"id": 0, "cpus": "0-15,32-47", "memory": "256Gi", "distances": [10, 21],
                "hugepages": {"hugepages-2Mi": "1Gi"}, "bandwidth": 131072}, ...],
     "gpus":  [{"index": 0, "numa": 0, "pci": "0000:1b:00.0", "vendor": "nvidia",
                "model": "NVIDIA H100 80GB HBM3", "vram": "80Gi",
                "root": "pci0000:1a", "switch": "0000:1a:01.0", "island": "0"}, ...]}

where every field but `id` and `index` is optional. A label value cannot hold a comma, so CPU
lists in labels use `_` between ranges (`0-15_32-47`); the comma form is accepted in annotations of
the same name. Node feature discovery shows only that there are several NUMA nodes, or GPUs of some
vendor: enough to find a contradiction, see `discovered`.

A node without usable data has no topology (`read` gives None): it is never guessed. Unreadable
facts are left out and listed in `problems`. The scheduler tracks what is in use;
`policies.checks.numa` compares a pod with the NUMA nodes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from policies import bounds, quantity, vocabulary
from policies.hosts import merge
from policies.hosts.merge import MOST_GPUS, MOST_ZONES, HostFacts
from policies.hosts.topology import Topology, count_cpus, is_number
from policies.json_fields import Json

StringMap = Mapping[str, str]

ANNOTATION: Final = f"annotation {vocabulary.NUMA_TOPOLOGY_ANNOTATION}"
GFD: Final = "labels nvidia.com/gpu.*"
LABELS: Final = "labels numa.kubenexus.io/*, gpu.kubenexus.io/*"
NFD: Final = "labels feature.node.kubernetes.io/*"

_NOTHING_IN_ANNOTATION: Final = HostFacts(ANNOTATION)
_PREFIXES: Final = ("numa.kubenexus.io/", "gpu.kubenexus.io/", "nvidia.com/gpu.")
_MAKERS: Final = {"10de": "nvidia", "1002": "amd", "8086": "intel"}
# Values of the label for hosts whose GPUs reach each other directly.
_LINKED: Final = frozenset({"nvswitch", "nvlink"})


def read(labels: StringMap, annotations: StringMap, *, gpus: int) -> Topology | None:
    """The topology of a node that offers `gpus` whole GPUs, or None without data."""
    if not (
        vocabulary.NUMA_TOPOLOGY_ANNOTATION in annotations
        or vocabulary.NUMA_NODE_COUNT_LABEL in labels
        or vocabulary.NUMA_NODE_COUNT_LABEL in annotations
        or (gpus and not _all_gpu_keys(gpus).isdisjoint(labels))
    ):
        return None
    return _read(_ours(labels), _ours(annotations), gpus)


def _ours(values: StringMap) -> tuple[tuple[str, str], ...]:
    return tuple(item for item in values.items() if item[0].startswith(_PREFIXES))


# Cached: a node often changes without a change of these keys.
@lru_cache(maxsize=16384)
def _read(
    labels: tuple[tuple[str, str], ...], annotations: tuple[tuple[str, str], ...], gpus: int
) -> Topology | None:
    host_facts = sources(dict(labels), dict(annotations), gpus=gpus)
    if not any(source.zones or source.gpus for source in host_facts):
        return None
    return merge.merge(host_facts, gpus=gpus)


def vram(labels: StringMap, topology: Topology | None) -> int:
    """Bytes of the largest GPU of the host; 0: unknown."""
    size = max((gpu.vram for gpu in topology.gpus), default=0) if topology is not None else 0
    if not size and (text := labels.get(vocabulary.GFD_MEMORY_LABEL)):
        size = _size(text) * 2**20
    if size <= 0 and (text := labels.get(vocabulary.GPU_VRAM_LABEL)):
        size = _size(text)
    return max(0, size)


def sources(labels: StringMap, annotations: StringMap, *, gpus: int) -> list[HostFacts]:
    """The sources that count, best first."""
    return [
        annotated(annotations.get(vocabulary.NUMA_TOPOLOGY_ANNOTATION)),
        gpu_labels(labels),
        plain_labels(labels, annotations, gpus=gpus),
    ]


# --- the labeler's annotation ---


def annotated(text: str | None) -> HostFacts:
    if text is None:
        return _NOTHING_IN_ANNOTATION
    name = vocabulary.NUMA_TOPOLOGY_ANNOTATION
    if not bounds.JSON.holds(text):
        return HostFacts(ANNOTATION, problems=(f"{name}: {bounds.JSON.too_long(text)}",))
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return HostFacts(ANNOTATION, problems=(f"{name}: found {text[:40]!r}, want JSON",))
    document: Json = value if isinstance(value, dict) else {}
    problems: list[str] = []
    zones = dict(_annotated_zones(document, problems))
    return HostFacts(
        ANNOTATION,
        zones,
        lists_zones=True,
        gpus=dict(_annotated_gpus(document)),
        problems=tuple(problems),
    )


def _annotated_zones(document: Json, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = _rows(document, "nodes")
    ids = sorted(row["id"] for row in rows if _is_id(row.get("id")))
    for row in rows:
        if not _is_id(row.get("id")):
            problems.append(f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: a NUMA node without an id")
            continue
        facts = _amounts(row["id"], row.get("cpus"), row.get("memory"), problems)
        if facts is None:
            continue
        if pages := _pages(row.get("hugepages")):
            facts[merge.HUGEPAGES] = pages
        if _is_id(row.get("bandwidth")) and row["bandwidth"]:
            facts[merge.BANDWIDTH] = row["bandwidth"]
        far = row.get("distances")
        if isinstance(far, list) and len(far) == len(ids) and all(map(_is_id, far)):
            facts[merge.DISTANCES] = tuple(zip(ids, far, strict=True))
        yield row["id"], facts


def _annotated_gpus(document: Json) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = [row for row in _rows(document, "gpus") if _is_id(row.get("index"))]
    # Indices count per vendor: the GPUs of the vendor with the most here are the host's GPUs.
    makers = [text if isinstance(text := row.get("vendor", ""), str) else "" for row in rows]
    counts = Counter(makers)
    most = min(counts, key=lambda maker: (-counts[maker], maker), default="")
    for row, maker in zip(rows, makers, strict=True):
        if maker != most:
            continue
        facts: dict[str, Any] = {
            name: value
            for name in (
                merge.MODEL,
                merge.SWITCH,
                merge.ROOT,
                merge.PCI,
                merge.VENDOR,
            )
            if isinstance(value := row.get(name), str) and value
        }
        if _is_id(row.get("numa")):
            facts[merge.ZONE] = row["numa"]
        if isinstance(island := row.get("island"), (str, int)) and island != "":
            facts[merge.ISLAND] = str(island)
        if "vram" in row and (size := _size(row["vram"])) > 0:
            facts[merge.VRAM] = size
        yield row["index"], facts


def _pages(pages: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(pages, dict):
        return ()
    amounts = ((str(name), _size(value)) for name, value in pages.items())
    return tuple(sorted((name, size) for name, size in amounts if size > 0))


# --- GPU feature discovery ---


def gpu_labels(labels: StringMap) -> HostFacts:
    """GPU feature discovery describes all GPUs of the host at once."""
    each: dict[str, Any] = {}
    if model := labels.get(vocabulary.GFD_PRODUCT_LABEL):
        each[merge.MODEL] = model
    memory = labels.get(vocabulary.GFD_MEMORY_LABEL)
    if memory is not None and (size := _size(memory)) > 0:
        each[merge.VRAM] = size * 2**20
    if clique := labels.get(vocabulary.GPU_CLIQUE_LABEL):
        each[merge.ISLAND] = clique
    replicas = labels.get(vocabulary.GFD_REPLICAS_LABEL, "")
    shared = is_number(replicas) and int(replicas) > 1
    return HostFacts(GFD, each_gpu=each, host={"shared": True} if shared else {})


# --- node feature discovery ---


def discovered(labels: StringMap) -> HostFacts:
    """`memory-numa`, and `pci-[class_]maker.present` as labels of display controllers."""
    host: dict[str, Any] = {}
    if labels.get("feature.node.kubernetes.io/memory-numa") == "true":
        host["several NUMA nodes"] = True
    makers = {
        _MAKERS[maker]
        for key, value in labels.items()
        if value == "true" and (maker := _pci_maker(key)) in _MAKERS
    }
    if makers:
        host["GPU makers"] = tuple(sorted(makers))
    return HostFacts(NFD, host=host)


def _pci_maker(key: str) -> str:
    head, _, tail = key.partition("feature.node.kubernetes.io/pci-")
    if head or not tail.endswith(".present"):
        return ""
    parts = tail.removesuffix(".present").split("_")
    kind, maker = parts if len(parts) == 2 else ("03", parts[0])
    # Display controllers and accelerators; makers of processors have many other devices.
    return maker if kind.startswith(("03", "12")) else ""


# --- plain labels ---


def plain_labels(labels: StringMap, annotations: StringMap, *, gpus: int) -> HostFacts:
    facts = {**labels, **annotations} if annotations else labels
    problems: list[str] = []
    zones = dict(_labelled_zones(facts, problems))
    each: dict[str, Any] = {}
    if model := labels.get(vocabulary.GPU_MODEL_LABEL):
        each[merge.MODEL] = model
    memory = labels.get(vocabulary.GPU_VRAM_LABEL)
    if memory is not None and (size := _size(memory)) > 0:
        each[merge.VRAM] = size
    if (link := labels.get(vocabulary.GPU_TOPOLOGY_LABEL, "").lower()) in _LINKED:
        each[merge.ISLAND] = link
    return HostFacts(
        LABELS,
        zones,
        lists_zones=True,
        gpus=_places(facts, gpus),
        each_gpu=each,
        problems=tuple(problems),
    )


def _labelled_zones(facts: StringMap, problems: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    count = facts.get(vocabulary.NUMA_NODE_COUNT_LABEL, "")
    if not is_number(count):
        return
    zones = range(min(int(count), MOST_ZONES))
    for index in zones:
        keys = _keys(index)
        cpus, memory = facts.get(keys["cpus"]), facts.get(keys["memory"])
        if cpus is None and memory is None:
            problems.append(
                f"{vocabulary.NUMA_NODE_COUNT_LABEL} is {count}, node {index} is missing"
            )
            continue
        zone = _amounts(index, cpus, memory, problems)
        if zone is None:
            continue
        if is_number(bandwidth := facts.get(keys["bandwidth"], ""), digits=9) and int(bandwidth):
            zone[merge.BANDWIDTH] = int(bandwidth)
        far = tuple(
            (other, int(text))
            for other in zones
            if is_number(text := facts.get(_distance_key(index, other), ""))
        )
        if far:
            zone[merge.DISTANCES] = far
        yield index, zone


@lru_cache(maxsize=256)
def _keys(index: int) -> StringMap:
    facts = ("cpus", "memory", "bandwidth")
    return {fact: vocabulary.numa_node_label(index, fact) for fact in facts}


@lru_cache(maxsize=4096)
def _distance_key(node: int, other: int) -> str:
    return vocabulary.numa_node_label(node, f"distance-{other}")


@lru_cache(maxsize=1024)
def _gpu_keys(index: int) -> tuple[str, str]:
    return vocabulary.gpu_numa_labels(index)


@lru_cache(maxsize=256)
def _all_gpu_keys(gpus: int) -> frozenset[str]:
    return frozenset(key for index in range(min(gpus, MOST_GPUS)) for key in _gpu_keys(index))


def _places(facts: StringMap, gpus: int) -> dict[int, dict[str, Any]]:
    """Indices come from labels alone: without labels the kubelet chooses."""
    places: dict[int, dict[str, Any]] = {}
    named = False
    for index in range(min(gpus, MOST_GPUS)):
        key, alias = _gpu_keys(index)
        text = facts.get(key) or facts.get(alias)
        named = named or text is not None
        places[index] = {merge.ZONE: int(text)} if text and is_number(text) else {}
    # A partly labelled host has GPUs too: they exist, their place is unknown.
    return places if named else {}


# --- values ---


def _amounts(
    index: int, cpus: object, memory: object, problems: list[str]
) -> dict[str, Any] | None:
    """A memory-only or CPU-only NUMA node is real: absent fields are unknown."""
    facts: dict[str, Any] = {}
    try:
        if isinstance(cpus, str):
            facts[merge.ALL_CPU] = count_cpus(cpus) * 1000 if cpus else 0
        if memory is not None:
            facts[merge.ALL_MEMORY] = quantity.units(memory)
    except ValueError as exc:
        problems.append(f"NUMA node {index}: {exc}")
        return None
    return facts


def _size(value: object) -> int:
    """Bytes or a number; any other text counts as 0."""
    try:
        return quantity.units(value)
    except quantity.QuantityError:
        return 0


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _rows(document: Json, name: str) -> list[Json]:
    rows = document.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
