"""
DRA ResourceSlices as host facts. Pure.

    the slices of a node's pools ──▶ HostFacts, one per driver

`plugins.dra.store` decides which slices count: those that name their node, of the newest generation
of their pool, when all of its slices exist. Drivers choose their attribute names, so the last part
of a qualified name decides (`gpu.amd.com/numaNode`, `dra.cpu/numaNodeID`, `numa`). The standard
domain (`resource.kubernetes.io/…`) takes precedence over the driver's, and that over others.

A device is a GPU by its `type`, or by its driver's name where the driver has no types: MIG and
other parts of a GPU are no GPUs. A GPU with a PCIe root and no NUMA node gets the NUMA node of the
other devices on that root, where these agree.

Not here: whether a device is free, and what a claim may select.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policies import quantity
from policies.hosts import merge
from policies.hosts.merge import HostFacts
from scheduler.plugins.dra.device_types import Device, ResourceSlice

STANDARD: Final = "resource.kubernetes.io"

_NUMA: Final = ("numanode", "numa", "numanodeid")
_PCI: Final = ("pcibusid", "pciebusid", "pciaddress", "pciaddr")
_SWITCH: Final = ("pcieswitch", "pciswitch")
_MODEL: Final = ("productname", "model", "product")
_ISLAND: Final = ("nvlinkdomain", "nvlinkdomainid", "nvlinkclique", "cliqueid", "xgmihiveid")
_MEMORY: Final = ("memory", "vram")
_PAGES: Final = {"2m": "hugepages-2Mi", "1g": "hugepages-1Gi", "64k": "hugepages-64Ki"}

Attributes = Mapping[str, Any]  # last part of an attribute's name, in lower case -> value
Sizes = Mapping[str, int]  # the same of capacities


@dataclass(frozen=True, slots=True)
class _SliceDevice:
    """The host facts of one device."""

    name: str
    zone: int | None = None
    roots: tuple[str, ...] = ()
    gpu: Mapping[str, Any] | None = None
    """The facts of a GPU; None: the device is not a GPU."""
    index: int | None = None
    minor: int | None = None
    cpu: int = 0
    """Thousandths."""
    memory: int = 0
    pages: tuple[str, int] | None = None


def host_facts(slices: Iterable[ResourceSlice]) -> list[HostFacts]:
    """The facts of one node's slices, by driver."""
    drivers: dict[str, list[_SliceDevice]] = {}
    for item in sorted(slices, key=lambda item: (item.pool, item.name)):
        drivers.setdefault(item.pool[0], []).extend(map(_read_device, item.devices))
    root_zones = _root_zones(device for devices in drivers.values() for device in devices)
    facts = (_driver(name, devices, root_zones) for name, devices in drivers.items())
    return [item for item in facts if item]


def _driver(
    driver: str, devices: Sequence[_SliceDevice], root_zones: Mapping[str, int]
) -> HostFacts:
    gpus = [(device, device.gpu) for device in devices if device.gpu is not None]
    order = _numbered([device for device, _ in gpus])
    return HostFacts(
        f"ResourceSlices of {driver}",
        zones=_amounts(devices),
        gpus={
            index: {**facts, **_zone(device, root_zones)}
            for index, (device, facts) in zip(order, gpus, strict=True)
        },
    )


def _zone(device: _SliceDevice, root_zones: Mapping[str, int]) -> dict[str, Any]:
    zone = device.zone
    if zone is None and device.roots:
        zone = root_zones.get(device.roots[0])
    return {} if zone is None else {merge.ZONE: zone}


def _root_zones(devices: Iterable[_SliceDevice]) -> dict[str, int]:
    """PCIe root -> NUMA node, where all devices with both agree."""
    zones_of: dict[str, set[int]] = {}
    for device in devices:
        if device.zone is not None:
            for root in device.roots:
                zones_of.setdefault(root, set()).add(device.zone)
    return {root: zones.pop() for root, zones in zones_of.items() if len(zones) == 1}


def _numbered(gpus: Sequence[_SliceDevice]) -> list[int]:
    """The drivers' indices; else the order of PCI addresses, as in the vendors' tools."""
    addresses = [(gpu.gpu or {}).get(merge.PCI, "") for gpu in gpus]
    order = sorted(addresses)
    for count in (
        [gpu.index for gpu in gpus],
        [order.index(address) if address else None for address in addresses],
        [gpu.minor for gpu in gpus],
        [_trailing(gpu.name) for gpu in gpus],
    ):
        indices = [index for index in count if index is not None]
        if len(set(indices)) == len(gpus):
            return indices
    return list(range(len(gpus)))


def _trailing(name: str) -> int | None:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else None


def _amounts(devices: Iterable[_SliceDevice]) -> dict[int, dict[str, Any]]:
    """CPUs, memory and huge pages that drivers offer on each NUMA node."""
    zones: dict[int, dict[str, Any]] = {}
    pages: dict[int, dict[str, int]] = {}
    for device in devices:
        if device.zone is None:
            continue
        for name, amount in ((merge.CPU, device.cpu), (merge.MEMORY, device.memory)):
            if amount:
                facts = zones.setdefault(device.zone, {})
                facts[name] = facts.get(name, 0) + amount
        if device.pages:
            name, size = device.pages
            sizes = pages.setdefault(device.zone, {})
            sizes[name] = sizes.get(name, 0) + size
    for zone, sizes in pages.items():
        zones.setdefault(zone, {})[merge.HUGEPAGES] = tuple(sorted(sizes.items()))
    return zones


# --- one device ---


def _read_device(device: Device) -> _SliceDevice:
    driver, _, name = device.id
    attributes, sizes = _attributes(device), _capacity(device)
    roots = _roots(attributes.get("pcieroot"))
    zone = _number(_first(attributes, _NUMA))
    if _is_gpu(driver, attributes):
        return _SliceDevice(
            name,
            zone,
            roots,
            gpu={**_gpu_facts(attributes, sizes, roots, driver), merge.DEVICE: str(device.id)},
            index=_number(attributes.get("index")),
            minor=_number(attributes.get("minor")),
        )
    if "cpu" in driver:
        count = (
            1
            if "cpuid" in attributes
            else sizes.get("cpu") or _number(attributes.get("numcpus")) or 0
        )
        return _SliceDevice(name, zone, roots, cpu=count * 1000)
    if "memory" in driver:
        return _memory(name, zone, roots, attributes, sizes)
    return _SliceDevice(name, zone, roots)


def _memory(
    name: str, zone: int | None, roots: tuple[str, ...], attributes: Attributes, sizes: Sizes
) -> _SliceDevice:
    size = sizes.get("size") or sizes.get("memory") or 0
    if attributes.get("hugetlb") is not True:
        return _SliceDevice(name, zone, roots, memory=size)
    page = _PAGES.get(str(attributes.get("pagesize") or "").lower())
    return _SliceDevice(name, zone, roots, pages=(page, size) if page and size else None)


def _is_gpu(driver: str, attributes: Attributes) -> bool:
    kind = attributes.get("type")
    if isinstance(kind, str) and kind:
        return kind.lower().endswith("gpu")
    return "gpu" in driver


def _gpu_facts(
    attributes: Attributes, sizes: Sizes, roots: tuple[str, ...], driver: str
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        # Labels cannot hold spaces: the model gets the form that it has in a label.
        merge.MODEL: _text(_first(attributes, _MODEL)).replace(" ", "-"),
        merge.VRAM: _vram(attributes, sizes),
        merge.SWITCH: _text(_first(attributes, _SWITCH)),
        merge.ROOT: roots[0] if len(roots) == 1 else "",
        merge.ISLAND: _text(_first(attributes, _ISLAND)),
        merge.PCI: _address(_text(_first(attributes, _PCI))),
        merge.UUID: _text(attributes.get("uuid")),
        merge.VENDOR: next((m for m in ("nvidia", "amd", "intel") if m in driver), ""),
    }
    return {name: value for name, value in facts.items() if value}


def _vram(attributes: Attributes, sizes: Sizes) -> int:
    for name in _MEMORY:
        if size := sizes.get(name) or _quantity(attributes.get(name)):
            return size
    return 0


def _address(text: str) -> str:
    """In the kernel's form; some drivers write the domain with eight digits."""
    domain, colon, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if colon and rest.count(":") == 1 else text.lower()


# --- attributes and capacities ---


def _attributes(device: Device) -> Attributes:
    """Names in the standard domain win, then those in the driver's."""

    def rank(domain: str) -> int:
        return 2 if domain == STANDARD else 1 if domain == device.id.driver else 0

    rows = [(*name.rpartition("/")[::2], attribute.value) for name, attribute in device.attributes]
    rows.sort(key=lambda row: rank(row[0]))  # stable: the names are sorted already
    return {name.lower(): value for _, name, value in rows}


def _capacity(device: Device) -> Sizes:
    return {name.rpartition("/")[2].lower(): _quantity(text) for name, text in device.capacity}


def _quantity(value: object) -> int:
    try:
        return max(0, quantity.units(value))
    except quantity.QuantityError:
        return 0


def _first(attributes: Attributes, names: Iterable[str]) -> object:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _number(value: object) -> int | None:
    """A list of one number counts as that number; below zero the kernel does not know it."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None


def _text(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _roots(value: object) -> tuple[str, ...]:
    roots = value if isinstance(value, tuple) else (value,)
    return tuple(sorted(root for root in roots if isinstance(root, str) and root))
