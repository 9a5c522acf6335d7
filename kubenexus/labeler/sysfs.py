"""
NUMA nodes and GPUs of a host, as the kernel shows them under /sys. Reads files, decides nothing.

    devices/system/node/node<i>/{cpulist,meminfo,distance}      NUMA nodes, some without CPUs
    devices/system/node/node<i>/access0/initiators/read_bandwidth   where firmware reports it, MiB/s
    devices/system/node/node<i>/hugepages/hugepages-<n>kB/nr_hugepages
    devices/system/cpu/online                                   offline CPUs do not count
    bus/pci/devices/<address>/{vendor,class,numa_node}          GPUs, by vendor and class
                             {product_name,mem_info_vram_total,xgmi_hive_info/xgmi_hive_id}
                                                                AMD's driver: model, VRAM, island
    /proc/driver/nvidia/gpus/<address>/information              NVIDIA's driver: model

A GPU's index is its place among the GPUs of its vendor in the order of PCI addresses, which is how
the vendors' own tools count. Its `root` is the PCIe root complex, its `switch` the bridge above it:
GPUs under one switch reach each other without passing the CPU. What cannot be read is left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies import quantity

ROOT: Final = Path("/sys")
PROC: Final = Path("/proc")

NVIDIA, AMD, INTEL = "0x10de", "0x1002", "0x8086"
VENDORS: Final = {NVIDIA: "nvidia", AMD: "amd", INTEL: "intel"}
# Display controllers without (3D, other) and with a screen, and processing accelerators.
_CLASSES: Final = ("0x0302", "0x0380", "0x0300", "0x1200")
_SCREEN: Final = "0x0300"
_NODE: Final = re.compile(r"node(\d+)")
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MEMORY: Final = re.compile(r"MemTotal:\s+(\d+) kB")
_PAGES: Final = re.compile(r"hugepages-(\d+)kB")
_MODEL: Final = re.compile(r"^Model:\s*(\S.*)$", re.MULTILINE)


class SysfsError(Exception):
    """The tree has no NUMA node; the message names the path."""


@dataclass(frozen=True, slots=True)
class Numa:
    """One NUMA node; `distances` in the order of all NUMA nodes' ids."""

    id: int
    cpus: tuple[int, ...]
    memory: int
    distances: tuple[int, ...] = ()
    bandwidth: int | None = None
    hugepages: tuple[tuple[str, int], ...] = ()
    """(resource name, bytes), sorted, without sizes that have no pages."""


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    vendor: str
    address: str
    numa: int | None
    root: str = ""
    switch: str = ""
    model: str = ""
    vram: int = 0
    island: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    numa: tuple[Numa, ...]
    gpus: tuple[Gpu, ...] = ()


def read(root: Path = ROOT, proc: Path = PROC) -> Host:
    nodes = tuple(sorted(_nodes(root), key=lambda node: node.id))
    if not nodes:
        raise SysfsError(
            f"no NUMA node under {root / 'devices/system/node'}: is the host's /sys mounted there?"
        )
    return Host(nodes, tuple(_gpus(root, proc, {node.id for node in nodes})))


# --- NUMA nodes ---


def _nodes(root: Path) -> Iterator[Numa]:
    online = cpu_list(_text(root / "devices/system/cpu/online"))
    folder = root / "devices/system/node"
    for place in folder.iterdir() if folder.is_dir() else ():
        name = _NODE.fullmatch(place.name)
        if name is None:
            continue
        cpus = cpu_list(_text(place / "cpulist"))
        memory = _MEMORY.search(_text(place / "meminfo"))
        yield Numa(
            id=int(name[1]),
            cpus=tuple(cpu for cpu in cpus if cpu in online) if online else cpus,
            memory=int(memory[1]) * 1024 if memory else 0,
            distances=tuple(int(word) for word in _text(place / "distance").split()),
            bandwidth=_whole(_text(place / "access0/initiators/read_bandwidth")),
            hugepages=tuple(sorted(_hugepages(place / "hugepages"))),
        )


def _hugepages(folder: Path) -> Iterator[tuple[str, int]]:
    for place in folder.iterdir() if folder.is_dir() else ():
        size = _PAGES.fullmatch(place.name)
        count = _whole(_text(place / "nr_hugepages"))
        if size is not None and count:
            page = int(size[1]) * 1024
            yield f"hugepages-{quantity.binary(page)}", page * count


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as `0-15,32-47`; empty for a NUMA node without any."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


# --- GPUs ---


def _gpus(root: Path, proc: Path, known: set[int]) -> Iterator[Gpu]:
    folder = root / "bus/pci/devices"
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    count = dict.fromkeys(VENDORS.values(), 0)
    for place in places:
        vendor = VENDORS.get(_text(place / "vendor").strip())
        if vendor is None or not _is_gpu(place, vendor):
            continue
        numa = _whole(_text(place / "numa_node"))
        if numa is None and len(known) == 1:
            numa = next(iter(known))  # firmware reports -1 on a host with one NUMA node
        top, switch = _above(place)
        yield Gpu(
            count[vendor],
            vendor,
            place.name,
            numa if numa in known else None,
            top,
            switch,
            model=_model(place, proc),
            vram=_whole(_text(place / "mem_info_vram_total")) or 0,
            island=_island(_text(place / "xgmi_hive_info/xgmi_hive_id").strip()),
        )
        count[vendor] += 1


def _model(place: Path, proc: Path) -> str:
    """As the drivers call it, in the form that labels can hold."""
    match = _MODEL.search(_text(proc / "driver/nvidia/gpus" / place.name / "information"))
    return "-".join((match[1] if match else _text(place / "product_name")).split())


def _island(hive: str) -> str:
    """A hive without an id connects no GPUs."""
    return "" if hive in ("", "0") else f"xgmi-{hive}"


def _is_gpu(place: Path, vendor: str) -> bool:
    """Integrated graphics (Intel, with a screen) is no GPU that pods request."""
    kind = _text(place / "class").strip()
    return kind.startswith(_CLASSES) and not (vendor == "intel" and kind.startswith(_SCREEN))


def _above(place: Path) -> tuple[str, str]:
    """(root complex, bridge above the device), from where the device's link leads."""
    parts = place.resolve().parts
    roots = [number for number, part in enumerate(parts) if part.startswith("pci")]
    if not roots:
        return "", ""
    bridges = [part for part in parts[roots[-1] + 1 : -1] if _ADDRESS.fullmatch(part)]
    # The last bridge is the port that the device is plugged into; the one above it is shared.
    return parts[roots[-1]], bridges[-2] if len(bridges) > 1 else ""


# --- files ---


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _whole(text: str) -> int | None:
    """A number that is not negative: sysfs has -1 for unknown."""
    text = text.strip()
    return int(text) if text.isdigit() else None
