"""Trees as the kernel shows them under /sys, made file by file with the kernel's own formats."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Device:
    """A PCI device; `path` is where its link leads, below /sys/devices."""

    address: str
    vendor: str
    kind: str
    numa: int
    path: str
    files: tuple[tuple[str, str], ...] = ()
    """More of its files: (name, text)."""


def tree(
    root: Path,
    *,
    cpus: list[str],
    memory: list[int],
    distances: list[str] | None = None,
    online: str | None = None,
    bandwidth: list[int] | None = None,
    devices: list[Device] | None = None,
    hugepages: list[dict[str, int]] | None = None,
) -> Path:
    """`cpus` and `memory` (kB) one each for every NUMA node; huge pages by the kernel's names."""
    for number, (cpulist, size) in enumerate(zip(cpus, memory, strict=True)):
        place = root / f"devices/system/node/node{number}"
        put(place / "cpulist", f"{cpulist}\n")
        put(
            place / "meminfo",
            f"Node {number} MemTotal:{size:>15} kB\nNode {number} MemFree: 1 kB\n",
        )
        if distances:
            put(place / "distance", f"{distances[number]}\n")
        for name, count in (hugepages[number] if hugepages else {}).items():
            put(place / "hugepages" / name / "nr_hugepages", f"{count}\n")
        if bandwidth:
            put(place / "access0/initiators/read_bandwidth", f"{bandwidth[number]}\n")
    put(root / "devices/system/node/online", f"0-{len(cpus) - 1}\n")
    put(root / "devices/system/node/has_cpu", "0\n")
    if online is not None:
        put(root / "devices/system/cpu/online", f"{online}\n")
    (root / "bus/pci/devices").mkdir(parents=True)
    for device in devices or ():
        place = root / "devices" / device.path
        put(place / "vendor", f"{device.vendor}\n")
        put(place / "class", f"{device.kind}\n")
        put(place / "numa_node", f"{device.numa}\n")
        for name, text in device.files:
            put(place / name, f"{text}\n")
        (root / "bus/pci/devices" / device.address).symlink_to(place)
    return root


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def eight_gpus() -> list[Device]:
    """Two sockets; on each two switches with two GPUs behind ports of their own, and a NIC."""
    found: list[Device] = []
    for number in range(8):
        socket, switch = number // 4, number // 2
        root, top, port = f"{0x10 + 0x40 * switch:02x}", f"{0x11 + 0x40 * switch:02x}", number % 2
        bus = f"{0x13 + 0x40 * switch + port:02x}"
        address = f"0000:{bus}:00.0"
        path = f"pci0000:{root}/0000:{root}:01.0/0000:{top}:00.0/0000:12:{port:02x}.0/{address}"
        found.append(Device(address, "0x10de", "0x030200", socket, path))
    nic = Device("0000:15:00.0", "0x15b3", "0x020000", 0, "pci0000:10/0000:15:00.0")
    screen = Device("0000:03:00.0", "0x1a03", "0x030000", -1, "pci0000:00/0000:03:00.0")
    return [*found, nic, screen]
