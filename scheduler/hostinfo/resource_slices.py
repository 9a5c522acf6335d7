"""
DRA ResourceSlices as facts about the hosts of their devices. Pure.

    the slices of a node's pools ──▶ Said, one for each driver

`scheduler.plugins.dra.store` decides which slices count: those that name their node, of the newest
generation of their pool, when all of its slices are there. Drivers choose their attribute names, so
the last part of a qualified name decides (`gpu.amd.com/numaNode`, `dra.cpu/numaNodeID`, `numa`);
the standard's own (`resource.kubernetes.io/…`) goes before the driver's, and that before others.

A device is a GPU when its `type` says so, or its driver has no types and its name says so: MIG and
other parts of a GPU are no GPUs of their own. A GPU that tells its PCIe root and no NUMA node sits
where every other device on that root sits, if one of them tells.

Whether a device is free, and what a claim may select, is not asked here.
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

Told = Mapping[str, Any]  # last part of an attribute's name, in lower case -> value
Sizes = Mapping[str, int]  # the same of capacities


@dataclass(frozen=True, slots=True)
class _SliceDevice:
    """What one device tells of its host."""

    name: str
    zone: int | None = None
    roots: tuple[str, ...] = ()
    gpu: Mapping[str, Any] | None = None
    """Its facts; None: it is no GPU."""
    index: int | None = None
    minor: int | None = None
    cpu: int = 0
    """Thousandths."""
    memory: int = 0
    pages: tuple[str, int] | None = None


def said(slices: Iterable[ResourceSlice]) -> list[HostFacts]:
    """What these slices of one node say, by driver."""
    drivers: dict[str, list[_SliceDevice]] = {}
    for one in sorted(slices, key=lambda one: (one.pool, one.name)):
        drivers.setdefault(one.pool[0], []).extend(_part(device) for device in one.devices)
    homes = _homes(part for parts in drivers.values() for part in parts)
    answers = (_driver(name, parts, homes) for name, parts in drivers.items())
    return [answer for answer in answers if answer]


def _driver(driver: str, parts: Sequence[_SliceDevice], homes: Mapping[str, int]) -> HostFacts:
    gpus = [(part, part.gpu) for part in parts if part.gpu is not None]
    order = _numbered([part for part, _ in gpus])
    return HostFacts(
        f"ResourceSlices of {driver}",
        zones=_amounts(parts),
        gpus={
            index: {**facts, **_home(part, homes)}
            for index, (part, facts) in zip(order, gpus, strict=True)
        },
    )


def _home(part: _SliceDevice, homes: Mapping[str, int]) -> dict[str, Any]:
    zone = part.zone
    if zone is None and part.roots:
        zone = homes.get(part.roots[0])
    return {} if zone is None else {merge.ZONE: zone}


def _homes(parts: Iterable[_SliceDevice]) -> dict[str, int]:
    """PCIe root -> NUMA node, where all devices that tell both agree."""
    places: dict[str, set[int]] = {}
    for part in parts:
        if part.zone is not None:
            for root in part.roots:
                places.setdefault(root, set()).add(part.zone)
    return {root: zones.pop() for root, zones in places.items() if len(zones) == 1}


def _numbered(gpus: Sequence[_SliceDevice]) -> list[int]:
    """Indices as told; else in the order of PCI addresses, as the makers' own tools count."""
    addresses = [(gpu.gpu or {}).get(merge.PCI, "") for gpu in gpus]
    order = sorted(addresses)
    for count in (
        [gpu.index for gpu in gpus],
        [order.index(address) if address else None for address in addresses],
        [gpu.minor for gpu in gpus],
        [_trailing(gpu.name) for gpu in gpus],
    ):
        told = [index for index in count if index is not None]
        if len(set(told)) == len(gpus):
            return told
    return list(range(len(gpus)))


def _trailing(name: str) -> int | None:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else None


def _amounts(parts: Iterable[_SliceDevice]) -> dict[int, dict[str, Any]]:
    """CPUs, memory and huge pages that drivers offer on each NUMA node."""
    zones: dict[int, dict[str, Any]] = {}
    pages: dict[int, dict[str, int]] = {}
    for part in parts:
        if part.zone is None:
            continue
        for name, amount in ((merge.CPU, part.cpu), (merge.MEMORY, part.memory)):
            if amount:
                facts = zones.setdefault(part.zone, {})
                facts[name] = facts.get(name, 0) + amount
        if part.pages:
            here, (name, size) = pages.setdefault(part.zone, {}), part.pages
            here[name] = here.get(name, 0) + size
    for zone, found in pages.items():
        zones.setdefault(zone, {})[merge.HUGEPAGES] = tuple(sorted(found.items()))
    return zones


# --- one device ---


def _part(device: Device) -> _SliceDevice:
    driver, _, name = device.id
    told, sizes = _attributes(device), _capacity(device)
    roots = _roots(told.get("pcieroot"))
    zone = _number(_first(told, _NUMA))
    if _is_gpu(driver, told):
        return _SliceDevice(
            name,
            zone,
            roots,
            gpu={**_gpu_facts(told, sizes, roots, driver), merge.DEVICE: str(device.id)},
            index=_number(told.get("index")),
            minor=_number(told.get("minor")),
        )
    if "cpu" in driver:
        count = 1 if "cpuid" in told else sizes.get("cpu") or _number(told.get("numcpus")) or 0
        return _SliceDevice(name, zone, roots, cpu=count * 1000)
    if "memory" in driver:
        return _memory(name, zone, roots, told, sizes)
    return _SliceDevice(name, zone, roots)


def _memory(
    name: str, zone: int | None, roots: tuple[str, ...], told: Told, sizes: Sizes
) -> _SliceDevice:
    size = sizes.get("size") or sizes.get("memory") or 0
    if told.get("hugetlb") is not True:
        return _SliceDevice(name, zone, roots, memory=size)
    page = _PAGES.get(str(told.get("pagesize") or "").lower())
    return _SliceDevice(name, zone, roots, pages=(page, size) if page and size else None)


def _is_gpu(driver: str, told: Told) -> bool:
    kind = told.get("type")
    if isinstance(kind, str) and kind:
        return kind.lower().endswith("gpu")
    return "gpu" in driver


def _gpu_facts(told: Told, sizes: Sizes, roots: tuple[str, ...], driver: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        # Labels cannot hold spaces: the name is brought to the form that labels have.
        merge.MODEL: _text(_first(told, _MODEL)).replace(" ", "-"),
        merge.VRAM: _vram(told, sizes),
        merge.SWITCH: _text(_first(told, _SWITCH)),
        merge.ROOT: roots[0] if len(roots) == 1 else "",
        merge.ISLAND: _text(_first(told, _ISLAND)),
        merge.PCI: _address(_text(_first(told, _PCI))),
        merge.UUID: _text(told.get("uuid")),
        merge.VENDOR: next((m for m in ("nvidia", "amd", "intel") if m in driver), ""),
    }
    return {name: value for name, value in facts.items() if value}


def _vram(told: Told, sizes: Sizes) -> int:
    for name in _MEMORY:
        if size := sizes.get(name) or _quantity(told.get(name)):
            return size
    return 0


def _address(text: str) -> str:
    """As the kernel writes it: a driver may write the domain with eight digits."""
    domain, colon, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if colon and rest.count(":") == 1 else text.lower()


# --- attributes and capacities ---


def _attributes(device: Device) -> Told:
    """Better families of names win."""

    def rank(domain: str) -> int:
        return 2 if domain == STANDARD else 1 if domain == device.id.driver else 0

    rows = [(*name.rpartition("/")[::2], found.value) for name, found in device.attributes]
    rows.sort(key=lambda row: rank(row[0]))  # stable: names are in order already
    return {name.lower(): value for _, name, value in rows}


def _capacity(device: Device) -> Sizes:
    return {name.rpartition("/")[2].lower(): _quantity(text) for name, text in device.capacity}


def _quantity(value: object) -> int:
    try:
        return max(0, quantity.units(value))
    except quantity.QuantityError:
        return 0


def _first(told: Told, names: Iterable[str]) -> object:
    return next((told[name] for name in names if told.get(name) is not None), None)


def _number(value: object) -> int | None:
    """A list of one number is that number; below zero, the kernel does not know."""
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
    found = value if isinstance(value, tuple) else (value,)
    return tuple(sorted(root for root in found if isinstance(root, str) and root))
