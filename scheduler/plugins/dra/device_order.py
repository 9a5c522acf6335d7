"""
Which devices of a host to try first: those that sit together, so that islands stay whole.

Devices are grouped by NVLink island, within it by PCIe root, within that by NUMA node. Of several
groups that hold all that is wanted:

    one that is then exactly full  ──before──  one that is broken already  ──before──  a whole one

and among equals the one with the least left. Where no group holds all, the largest comes first.
Every order ends in the device's name. An order is a preference: what constraints and selectors ask
for is settled by the search, which takes the first that suits.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from scheduler.plugins.dra.device_types import Device

ZONE_NAMES: Final = ("numaNode", "numa")
SWITCH_NAMES: Final = ("pcieRoot", "pcieSwitch")
ISLAND_NAMES: Final = ("nvlinkDomain", "nvLinkDomain", "nvlink", "island", "cliqueId", "clique")


class DevicePosition(NamedTuple):
    """Where a device sits; what nobody said is empty."""

    zone: int | None = None
    switch: str = ""
    island: str = ""


def position_of(device: Device) -> DevicePosition:
    """As its own attributes tell it, whatever their domain."""
    found = {
        name.rpartition("/")[2]: one.value
        for name, one in device.attributes
        if one.kind in ("int", "string")
    }
    zone = _first(found, ZONE_NAMES)
    return DevicePosition(
        zone if isinstance(zone, int) else None,
        str(_first(found, SWITCH_NAMES) or ""),
        str(_first(found, ISLAND_NAMES) or ""),
    )


def _first(found: dict[str, object], names: Sequence[str]) -> object:
    return next((found[name] for name in names if name in found), None)


class OrderedDevice(NamedTuple):
    """A device with its place; `number` is where it stands among all of its host."""

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
    items: Sequence[OrderedDevice], free: Collection[int], wanted: int
) -> list[OrderedDevice]:
    """All items, the best to take first; `free` holds the numbers of those that can be had."""
    return _ordered(items, free, wanted, _LEVELS)


def _ordered(
    items: Sequence[OrderedDevice], free: Collection[int], wanted: int, levels: tuple[Level, ...]
) -> list[OrderedDevice]:
    if not levels or len(items) < 2:
        return list(items)
    groups: dict[object, list[OrderedDevice]] = {}
    for item in items:
        groups.setdefault(levels[0](item.position), []).append(item)
    if len(groups) == 1:
        return _ordered(items, free, wanted, levels[1:])
    ranked = sorted(groups.items(), key=lambda found: _rank(found, free, wanted))
    return [item for _, group in ranked for item in _ordered(group, free, wanted, levels[1:])]


def _rank(
    found: tuple[object, list[OrderedDevice]], free: Collection[int], wanted: int
) -> tuple[int, int, int]:
    key, group = found
    first = min(item.number for item in group)
    if key == "":
        # What stands alone breaks nothing, and holds nothing together either.
        return (0 if wanted == 1 else 5), 0, first
    left = sum(item.number in free for item in group)
    if left < wanted:
        return 4, -left, first
    if left == wanted:
        return 1, 0, first
    return (3 if left == len(group) else 2), left - wanted, first
