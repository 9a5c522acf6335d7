"""
Merges the facts that several sources give about a host into one topology.

    source A ──reader──▶ HostFacts ─┐
    source B ──reader──▶ HostFacts ─┼─ aligned ─▶ merge ─▶ Topology
    source C ──reader──▶ HostFacts ─┘

The best source comes first and wins fact by fact: a fact that it lacks comes from the next one.
Which NUMA nodes and GPUs exist is a fact too: the best source that lists them all decides. GPUs
have an index; sources with PCI addresses get the same indices through those.

Usable amounts (`cpu`, `memory`) win over totals (`cpus`, `memories`): the kernel reports totals,
kubelets and drivers report what pods may use. Huge pages do not count as memory.

Not here: readers of sources (`node_object`, and `scheduler.hostinfo`), and which sources disagree
(`scheduler.hostinfo.provenance`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policies.hosts.topology import Gpu, Topology, Zone

MOST_ZONES: Final = 64
MOST_GPUS: Final = 64
MOST_NUMBER: Final = 2**16
"""Above every number of a NUMA node or a GPU, and above every distance: others do not exist."""
MOST_BANDWIDTH: Final = 2**31
MOST_AMOUNT: Final = 2**55 - 1
"""Of CPU, memory, huge pages and VRAM; a larger amount counts as this one."""

# Names of facts. Zones:
CPU, ALL_CPU, MEMORY, ALL_MEMORY = "cpu", "cpus", "memory", "memories"
HUGEPAGES, BANDWIDTH, DISTANCES = "hugepages", "bandwidth", "distances"
# GPUs; the last three only help to report and to match:
ZONE, MODEL, VRAM, SWITCH, ROOT, ISLAND = "zone", "model", "vram", "switch", "root", "island"
DEVICE, PCI, UUID, VENDOR = "device", "pci", "uuid", "vendor"
# The host as a whole:
MANAGER = "manager"

Facts = Mapping[str, Any]  # name of a fact -> its value
_NO_FACTS: Final[Facts] = {}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of one source about one host. Unknown facts are absent."""

    source: str
    zones: Mapping[int, Facts] = field(default_factory=dict)
    """NUMA node -> facts"""
    lists_zones: bool = False
    """There are no other NUMA nodes."""
    gpus: Mapping[int, Facts] = field(default_factory=dict)
    """GPU index -> facts"""
    each_gpu: Facts = field(default_factory=dict)
    """Facts about every GPU of the host."""
    gpu_counts: Mapping[int, int] = field(default_factory=dict)
    """NUMA node -> GPUs on it, where they are counted and not named."""
    host: Facts = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.zones or self.gpus or self.gpu_counts or self.host or self.each_gpu)


def merge(facts: Sequence[HostFacts], *, gpus: int) -> Topology | None:
    """The host that offers `gpus` whole GPUs; None when nothing is known of its inside."""
    sources = aligned(facts)
    zones = tuple(_zone(id_, _of(id_, sources)) for id_ in zone_ids(sources))
    known = frozenset(zone.id for zone in zones)
    rows = tuple(_gpu(index, facts, known) for index, facts in gpu_facts(sources, gpus))
    manager = next((source.host[MANAGER] for source in sources if MANAGER in source.host), None)
    if not (zones or rows or manager):
        return None
    problems = tuple(text for source in sources for text in source.problems)
    return Topology(zones, rows, problems, manager)


def aligned(sources: Sequence[HostFacts]) -> Sequence[HostFacts]:
    """The same, each GPU under one index: that of the last source with PCI addresses."""
    with_pci = [source for source in sources if any(PCI in facts for facts in source.gpus.values())]
    if len(with_pci) < 2:
        return sources
    index = {facts[PCI]: at for at, facts in with_pci[-1].gpus.items() if PCI in facts}
    return [
        _renumbered(source, index) if any(source is other for other in with_pci) else source
        for source in sources
    ]


def _renumbered(source: HostFacts, index: Mapping[str, int]) -> HostFacts:
    moved = {index.get(facts.get(PCI, ""), at): facts for at, facts in source.gpus.items()}
    # Two under one index would lose a GPU: then the source keeps its own count.
    return replace(source, gpus=moved) if len(moved) == len(source.gpus) else source


# --- NUMA nodes ---


def zone_ids(sources: Iterable[HostFacts]) -> tuple[int, ...]:
    """Those of the best source that lists all; without one, those with known amounts."""
    ids: set[int] = set()
    for source in sources:
        numbers = {id_ for id_ in source.zones if id_ < MOST_NUMBER}
        if source.lists_zones and numbers:
            return tuple(sorted(numbers))[:MOST_ZONES]
        ids |= numbers
    return tuple(sorted(ids))[:MOST_ZONES]


def _of(id_: int, sources: Sequence[HostFacts]) -> Facts:
    facts: dict[str, Any] = {}
    for source in reversed(sources):
        facts.update(source.zones.get(id_, _NO_FACTS))
    return facts


def _zone(id_: int, facts: Facts) -> Zone:
    pages = facts.get(HUGEPAGES, ())
    memory = facts.get(MEMORY)
    if memory is None:
        memory = max(0, facts.get(ALL_MEMORY, 0) - sum(size for _, size in pages))
    return Zone(
        id_,
        _capped(facts.get(CPU, facts.get(ALL_CPU, 0))),
        _capped(memory),
        tuple((name, _capped(size)) for name, size in pages),
        min(facts.get(BANDWIDTH, 0), MOST_BANDWIDTH),
        tuple((other, min(far, MOST_NUMBER)) for other, far in facts.get(DISTANCES, ())),
    )


def _capped(amount: int) -> int:
    return min(max(amount, 0), MOST_AMOUNT)


# --- GPUs ---


def gpu_facts(sources: Sequence[HostFacts], offered: int) -> list[tuple[int, Facts]]:
    """(index, facts) of every GPU; none where no source lists one: the kubelet chooses."""
    if any(source.host.get("shared") for source in sources):
        return []
    listed = [source.gpus.keys() for source in sources if source.gpus]
    if not listed:
        return _counted(sources, offered)
    each: dict[str, Any] = {}
    for source in reversed(sources):
        each.update(source.each_gpu)
    rows: list[tuple[int, Facts]] = []
    for index in _indices(listed, offered):
        facts = dict(each)
        for source in reversed(sources):
            facts.update(source.gpus.get(index, _NO_FACTS))
        rows.append((index, facts))
    return rows


def _indices(listed: Sequence[Iterable[int]], offered: int) -> list[int]:
    """Those of the best source; more while the host offers more, from other sources or numbered."""
    indices = set(listed[0])
    if len(indices) < offered:
        others = (
            index for source in listed[1:] for index in sorted(source) if index not in indices
        )
        numbered = (index for index in range(MOST_GPUS) if index not in indices)
        for more in (others, numbered):
            for index in more:
                if len(indices) >= offered:
                    break
                indices.add(index)
    return sorted(index for index in indices if index < MOST_NUMBER)[:MOST_GPUS]


def _counted(sources: Sequence[HostFacts], offered: int) -> list[tuple[int, Facts]]:
    """Counted, not named: numbered in the order of the NUMA nodes, if all are counted."""
    for source in sources:
        if source.gpu_counts and sum(source.gpu_counts.values()) == offered <= MOST_GPUS:
            places = [zone for zone, n in sorted(source.gpu_counts.items()) for _ in range(n)]
            each: dict[str, Any] = {}
            for other in reversed(sources):
                each.update(other.each_gpu)
            return [(index, {**each, ZONE: zone}) for index, zone in enumerate(places)]
    return []


def _gpu(index: int, facts: Facts, known: frozenset[int]) -> Gpu:
    get = facts.get
    zone = get(ZONE)
    return Gpu(
        index,
        zone if zone in known or not known else None,
        get(MODEL, ""),
        _capped(get(VRAM, 0)),
        get(SWITCH) or get(ROOT, ""),
        get(ISLAND, ""),
        get(DEVICE, ""),
        get(PCI, ""),
    )


def facts_of(topology: Topology) -> HostFacts:
    """A topology as the facts of one source, to be merged with better ones."""
    return HostFacts(
        "node",
        {zone.id: dict(_zone_facts(zone)) for zone in topology.zones},
        lists_zones=True,
        gpus={gpu.index: dict(_gpu_facts(gpu)) for gpu in topology.gpus},
        host={MANAGER: topology.manager} if topology.manager else {},
        problems=topology.problems,
    )


def _zone_facts(zone: Zone) -> Iterable[tuple[str, Any]]:
    yield CPU, zone.cpu
    yield MEMORY, zone.memory
    for name, value in (
        (HUGEPAGES, zone.hugepages),
        (BANDWIDTH, zone.bandwidth),
        (DISTANCES, zone.distances),
    ):
        if value:
            yield name, value


def _gpu_facts(gpu: Gpu) -> Iterable[tuple[str, Any]]:
    if gpu.zone is not None:
        yield ZONE, gpu.zone
    for name, value in (
        (MODEL, gpu.model),
        (VRAM, gpu.vram),
        # The kernel calls a root complex pci0000:10, and a bridge by its address.
        (ROOT if gpu.switch.startswith("pci") else SWITCH, gpu.switch),
        (ISLAND, gpu.island),
        (DEVICE, gpu.device),
        (PCI, gpu.pci),
    ):
        if value:
            yield name, value
