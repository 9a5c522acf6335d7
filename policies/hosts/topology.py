"""
The inside of a host as values: NUMA nodes, GPUs, and the Topology Manager of its kubelet.

`node_object` reads them from a Node, `merge` merges several sources. The scheduler keeps track of
what is in use.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from policies import bounds

_MOST_CPUS: Final = bounds.MOST_CPUS


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: CPU in thousandths, memory in bytes."""

    id: int
    cpu: int
    memory: int
    hugepages: tuple[tuple[str, int], ...] = ()
    """(resource name, bytes), sorted."""
    bandwidth: int = 0
    """Memory bandwidth in MB/s; 0: unknown."""
    distances: tuple[tuple[int, int], ...] = ()
    """(id of a NUMA node, distance), sorted; empty: unknown."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU by its index on the host; `zone` None: its NUMA node is unknown."""

    index: int
    zone: int | None
    model: str = ""
    vram: int = 0
    """Bytes; 0: unknown."""
    switch: str = ""
    """Its PCIe switch or root complex."""
    island: str = ""
    """Its NVLink domain: GPUs of one host that name the same one reach each other directly."""
    device: str = ""
    """Its name in the ResourceSlices, `driver/pool/device`."""
    pci: str = ""
    """Its PCI address, `0000:1b:00.0`."""


@dataclass(frozen=True, slots=True)
class TopologyManager:
    """The kubelet's Topology Manager, as the host reports it."""

    policy: str
    """`none`, `best-effort`, `restricted`, `single-numa-node`"""
    scope: str = "container"
    """`container`, `pod`"""


@dataclass(frozen=True, slots=True)
class Topology:
    """The NUMA nodes in the order of their ids, and the GPUs by index; either may be unknown."""

    zones: tuple[Zone, ...]
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[str, ...] = ()
    manager: TopologyManager | None = None


def count_cpus(text: str) -> int:
    """How many CPUs a list such as `0-15,32-47` or `0-15_32-47` names."""
    if not bounds.CPU_LIST.holds(text):
        raise ValueError(bounds.CPU_LIST.too_long(text))
    return _count_cpus(text)


@lru_cache(maxsize=4096)
def _count_cpus(text: str) -> int:
    ranges: list[tuple[int, int]] = []
    for part in text.replace("_", ",").split(","):
        first, dash, last = part.strip().partition("-")
        if not (is_number(first) and (not dash or is_number(last))):
            raise ValueError(f"found {text[:40]!r}, want a CPU list such as 0-15_32-47")
        low, high = int(first), int(last or first)
        if high < low or high >= _MOST_CPUS:
            raise ValueError(f"found {text[:40]!r}, want rising ranges below {_MOST_CPUS}")
        ranges.append((low, high))
    count, end = 0, -1
    for low, high in sorted(ranges):
        count += max(0, high - max(low - 1, end))
        end = max(end, high)
    return count


def is_number(text: str, *, digits: int = 4) -> bool:
    """A whole number of at most so many digits, without a sign."""
    return text.isascii() and text.isdigit() and len(text) <= digits
