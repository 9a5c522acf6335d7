"""
Devices as their drivers publish them: slices of pools, and taints that are put on devices later.

Only what is read is kept. Names of attributes and capacities are fully qualified: one without a
domain belongs to its driver. What a device has that this scheduler cannot take into account is
named in `Device.odd`: such a device is never allocated.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple, Self

from policies import quantity
from policies.json_fields import Json, mapping
from scheduler.model.fields import rows, whole
from scheduler.plugins.dra.node_selector import NodeReach, read_nodes

PoolId = tuple[str, str]  # driver, pool

_KINDS: Final = ("ints", "bools", "strings", "versions", "int", "bool", "string", "version")


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Attribute(NamedTuple):
    """`kind` as in the API: int, bool, string, version, or the plural of these."""

    kind: str
    value: Any


class DeviceTaint(NamedTuple):
    """A taint of a device."""

    key: str
    value: str
    effect: str


class CounterUse(NamedTuple):
    """What a device takes of a counter that devices of its pool share."""

    counters: str
    counter: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Device:
    id: DeviceId
    attributes: tuple[tuple[str, Attribute], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    """(qualified name, quantity)"""
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[CounterUse, ...] = ()
    nodes: NodeReach | None = None
    """Where its slice says so for each device."""
    unsupported: str = ""

    def attribute(self, name: str) -> Attribute | None:
        return next((found for key, found in self.attributes if key == name), None)


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A ResourceSlice: a part of a pool of devices."""

    name: str
    pool: PoolId
    generation: int = 0
    count: int = 1
    """How many slices the pool has in this generation."""
    nodes: NodeReach | None = None
    """None: each device says so itself, or there are none."""
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterUse, ...] = ()
    """What there is of each shared counter."""
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, spec = mapping(obj.get("metadata")), mapping(obj.get("spec"))
        pool = mapping(spec.get("pool"))
        key = (str(spec.get("driver") or ""), str(pool.get("name") or ""))
        return cls(
            name=str(about.get("name") or ""),
            pool=key,
            generation=whole(pool.get("generation")),
            count=whole(pool.get("resourceSliceCount")),
            nodes=None if spec.get("perDeviceNodeSelection") is True else read_nodes(spec),
            devices=tuple(_device(key, row) for row in rows(spec.get("devices"))),
            counters=tuple(
                CounterUse(str(row.get("name")), str(name), _amount(mapping(found).get("value")))
                for row in rows(spec.get("sharedCounters"))
                for name, found in sorted(mapping(row.get("counters")).items())
            ),
            version=str(about.get("resourceVersion") or ""),
        )


@dataclass(frozen=True, slots=True)
class DeviceTaintRule:
    """A DeviceTaintRule: a taint on all devices that it selects; an empty part selects all."""

    name: str
    taint: DeviceTaint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def selects(self, found: DeviceId) -> bool:
        return all(mine in ("", its) for mine, its in zip(self._selector(), found, strict=True))

    def _selector(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        chosen = mapping(spec.get("deviceSelector"))
        return cls(
            str(mapping(obj.get("metadata")).get("name") or ""),
            _taint(mapping(spec.get("taint"))),
            *(str(chosen.get(part) or "") for part in ("driver", "pool", "device")),
        )


def _device(pool: PoolId, row: Json) -> Device:
    driver, name = pool
    return Device(
        id=DeviceId(driver, name, str(row.get("name") or "")),
        attributes=tuple(
            (_qualified(driver, key), found)
            for key, value in sorted(mapping(row.get("attributes")).items())
            if (found := _attribute(mapping(value))) is not None
        ),
        capacity=tuple(
            (_qualified(driver, key), str(mapping(value).get("value")))
            for key, value in sorted(mapping(row.get("capacity")).items())
        ),
        taints=tuple(_taint(one) for one in rows(row.get("taints"))),
        consumes=tuple(
            CounterUse(str(one.get("counterSet")), str(key), _amount(mapping(value).get("value")))
            for one in rows(row.get("consumesCounters"))
            for key, value in sorted(mapping(one.get("counters")).items())
        ),
        nodes=read_nodes(row),
        unsupported=_unsupported(row),
    )


def _unsupported(row: Json) -> str:
    if row.get("allowMultipleAllocations") is True:
        return "devices that claims share by capacity"
    if row.get("bindingConditions"):
        return "devices that must be made ready before a bind"
    if row.get("nodeAllocatableResources"):
        return "devices that take of the node's own resources"
    if any(one.get("compatibilityGroups") for one in rows(row.get("consumesCounters"))):
        return "devices with compatibility groups"
    return ""


def _attribute(found: Json) -> Attribute | None:
    for kind in _KINDS:
        if (value := found.get(kind)) is not None:
            return Attribute(kind, tuple(value) if isinstance(value, list) else value)
    return None


def _qualified(driver: str, name: object) -> str:
    return str(name) if "/" in str(name) else f"{driver}/{name}"


def _taint(found: Json) -> DeviceTaint:
    return DeviceTaint(*(str(found.get(part) or "") for part in ("key", "value", "effect")))


def _amount(found: object) -> Decimal:
    try:
        return quantity.parse(found)
    except quantity.QuantityError:
        return Decimal(0)  # the API server stores none that it cannot read itself
