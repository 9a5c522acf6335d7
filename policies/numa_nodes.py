"""
The inside of a node as its labels and annotations tell it: NUMA nodes and GPUs.

Sources, best first and for each fact: the labeler's JSON annotation, then plain labels. A label
value cannot hold a comma, so CPU lists in labels use `_` between ranges (`0-15_32-47`); the comma
form is accepted in annotations of the same name. The JSON annotation reads

    {"nodes": [{"id": 0, "cpus": "0-15,32-47", "memory": "256Gi"}, ...],
     "gpus":  [{"index": 0, "numa": 0}, ...]}

A node without usable data has no topology (`read` gives None): it is never guessed. Facts that
cannot be read are left out and named in `problems`. What is *taken* is not here: the scheduler
keeps those books, and whether a pod is too large for any NUMA node is a question for `numa_rules`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from policies import quantity, vocabulary

Json = Mapping[str, Any]

_MOST_ZONES: Final = 64
_MOST_CPUS: Final = 4096
_MOST_GPUS: Final = 64


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: CPU in thousandths, memory in bytes."""

    id: int
    cpu: int
    memory: int
    hugepages: tuple[tuple[str, int], ...] = ()
    """(resource name, bytes), sorted."""
    bandwidth: int = 0
    """Memory bandwidth in MB/s; 0: nobody said."""
    distances: tuple[tuple[int, int], ...] = ()
    """(id of a NUMA node, distance), sorted; empty: nobody said."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU by its index on the host; `zone` None: nobody said where it sits."""

    index: int
    zone: int | None
    model: str = ""
    vram: int = 0
    """Bytes; 0: nobody said."""
    switch: str = ""
    """The PCIe switch or root that it hangs on."""
    island: str = ""
    """Its NVLink domain: GPUs of one host that name the same one reach each other directly."""
    device: str = ""
    """Its name in the ResourceSlices, `driver/pool/device`."""


@dataclass(frozen=True, slots=True)
class Manager:
    """The kubelet's Topology Manager, as the host reports it."""

    policy: str
    """`none`, `best-effort`, `restricted`, `single-numa-node`"""
    scope: str = "container"
    """`container`, `pod`"""


@dataclass(frozen=True, slots=True)
class Topology:
    """The NUMA nodes, at least one, in the order of their ids, and the GPUs by index."""

    zones: tuple[Zone, ...]
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[str, ...] = ()
    manager: Manager | None = None


def read(
    labels: Mapping[str, str], annotations: Mapping[str, str], *, gpus: int
) -> Topology | None:
    """The topology of a node that offers `gpus` whole GPUs, or None without NUMA data."""
    problems: list[str] = []
    document = _document(annotations, problems)
    facts = {**labels, **annotations}
    zones = _zones_of_document(document, problems) or _zones_of_labels(facts, problems)
    if not zones:
        return None
    known = {zone.id for zone in zones}
    places = _gpus_of_document(document) or _gpus_of_labels(facts, gpus)
    rows = tuple(
        Gpu(index, places[index] if places.get(index) in known else None)
        for index in sorted(places.keys())[:_MOST_GPUS]
    )
    return Topology(zones, rows, tuple(problems))


def count_cpus(text: str) -> int:
    """How many CPUs a list such as `0-15,32-47` or `0-15_32-47` names."""
    cpus: set[int] = set()
    for part in text.replace("_", ",").split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_number(first) and (not dash or _is_number(last))):
            raise ValueError(f"found {text[:40]!r}, want a CPU list such as 0-15_32-47")
        low, high = int(first), int(last or first)
        if high < low or high >= _MOST_CPUS:
            raise ValueError(f"found {text[:40]!r}, want rising ranges below {_MOST_CPUS}")
        cpus.update(range(low, high + 1))
    return len(cpus)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _document(annotations: Mapping[str, str], problems: list[str]) -> Json:
    text = annotations.get(vocabulary.NUMA_TOPOLOGY_ANNOTATION)
    if text is None:
        return {}
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        problems.append(f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: found {text[:40]!r}, want JSON")
        return {}
    return found if isinstance(found, dict) else {}


def _zones_of_document(document: Json, problems: list[str]) -> tuple[Zone, ...]:
    rows = document.get("nodes")
    zones: dict[int, Zone] = {}
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or not isinstance(row.get("id"), int):
            problems.append(f"{vocabulary.NUMA_TOPOLOGY_ANNOTATION}: a NUMA node without an id")
            continue
        zone = _zone(row["id"], row.get("cpus"), row.get("memory"), problems)
        if zone is not None:
            zones[zone.id] = zone
    return tuple(zones[id_] for id_ in sorted(zones))


def _zones_of_labels(facts: Mapping[str, str], problems: list[str]) -> tuple[Zone, ...]:
    count = facts.get(vocabulary.NUMA_NODE_COUNT_LABEL, "")
    if not _is_number(count):
        return ()
    zones: list[Zone] = []
    for index in range(min(int(count), _MOST_ZONES)):
        cpus = facts.get(vocabulary.numa_node_label(index, "cpus"))
        memory = facts.get(vocabulary.numa_node_label(index, "memory"))
        if cpus is None and memory is None:
            problems.append(f"{vocabulary.NUMA_NODE_COUNT_LABEL} says {count}, node {index} unsaid")
            continue
        zone = _zone(index, cpus, memory, problems)
        if zone is not None:
            zones.append(zone)
    return tuple(zones)


def _zone(index: int, cpus: object, memory: object, problems: list[str]) -> Zone | None:
    """A memory-only or CPU-only NUMA node is real: an absent fact counts as nothing."""
    try:
        cpu = count_cpus(cpus) * 1000 if isinstance(cpus, str) and cpus else 0
        size = 0 if memory is None else quantity.units(memory)
    except ValueError as exc:
        problems.append(f"NUMA node {index}: {exc}")
        return None
    return Zone(index, cpu, size)


def _gpus_of_document(document: Json) -> dict[int, int | None]:
    rows = document.get("gpus")
    places: dict[int, int | None] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("index"), int):
            zone = row.get("numa")
            places[row["index"]] = zone if isinstance(zone, int) else None
    return places


def _gpus_of_labels(facts: Mapping[str, str], gpus: int) -> dict[int, int | None]:
    """Indices come from labels alone: a node that says nothing leaves the choice to its kubelet."""
    places: dict[int, int | None] = {}
    for index in range(min(gpus, _MOST_GPUS)):
        found = [facts[key] for key in vocabulary.gpu_numa_labels(index) if key in facts]
        if found:
            places[index] = int(found[0]) if _is_number(found[0]) else None
    # A partly labelled host has GPUs too: they exist, their place is unknown.
    return {index: places.get(index) for index in range(gpus)} if places else {}
