"""
The order in which the allocator tries the devices of a host, so that NVLink islands stay whole.

Devices are grouped by NVLink island, within it by PCIe root, within that by NUMA node. Of several
groups with enough free devices for the pod:

    an exact fit  ──before──  a group that is partly used  ──before──  an unused group

and among equals the one with the fewest devices left. Where no group is large enough, the largest
comes first. The device's name is the last key. The order is only a preference: the search takes the
first devices that constraints and selectors allow.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from scheduler.plugins.dra.device_types import Device

ZONE_NAMES: Final = ("numaNode", "numa")
SWITCH_NAMES: Final = ("pcieRoot", "pcieSwitch")
ISLAND_NAMES: Final = ("nvlinkDomain", "nvLinkDomain", "nvlink", "island", "cliqueId", "clique")


class DevicePosition(NamedTuple):
    """NUMA node, PCIe root and NVLink island of a device; unknown parts are empty."""

    zone: int | None = None
    switch: str = ""
    island: str = ""


def position_of(device: Device) -> DevicePosition:
    """From the device's attributes, of any domain."""
    attributes = {
        name.rpartition("/")[2]: attribute.value
        for name, attribute in device.attributes
        if attribute.kind in ("int", "string")
    }
    zone = _first(attributes, ZONE_NAMES)
    return DevicePosition(
        zone if isinstance(zone, int) else None,
        str(_first(attributes, SWITCH_NAMES) or ""),
        str(_first(attributes, ISLAND_NAMES) or ""),
    )


def _first(attributes: dict[str, object], names: Sequence[str]) -> object:
    return next((attributes[name] for name in names if name in attributes), None)


class OrderedDevice(NamedTuple):
    """A device with its position; `number` is its index on the host."""

    number: int
    device: Device
    position: DevicePosition


Level = Callable[[DevicePosition], object]

_LEVELS: Final[tuple[Level, ...]] = (
    lambda position: position.island,
    lambda position: position.switch,
    lambda position: "" if position.zone is None else position.zone,
)


def ordered(
    items: Sequence[OrderedDevice], free: Collection[int], needed: int
) -> list[OrderedDevice]:
    """All devices, the best first; `free` has the numbers of the available ones."""
    return _ordered(items, free, needed, _LEVELS)


def _ordered(
    items: Sequence[OrderedDevice], free: Collection[int], needed: int, levels: tuple[Level, ...]
) -> list[OrderedDevice]:
    if not levels or len(items) < 2:
        return list(items)
    groups: dict[object, list[OrderedDevice]] = {}
    for item in items:
        groups.setdefault(levels[0](item.position), []).append(item)
    if len(groups) == 1:
        return _ordered(items, free, needed, levels[1:])
    ranked = sorted(groups.items(), key=lambda item: _rank(item[0], item[1], free, needed))
    return [item for _, group in ranked for item in _ordered(group, free, needed, levels[1:])]


def _rank(
    key: object, group: list[OrderedDevice], free: Collection[int], needed: int
) -> tuple[int, int, int]:
    first = min(item.number for item in group)
    if key == "":
        # Devices without a group break up no group, and are no group for several devices.
        return (0 if needed == 1 else 5), 0, first
    left = sum(item.number in free for item in group)
    if left < needed:
        return 4, -left, first
    if left == needed:
        return 1, 0, first
    return (3 if left == len(group) else 2), left - needed, first
