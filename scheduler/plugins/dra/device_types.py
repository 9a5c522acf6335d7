"""
ResourceSlices with their devices, and DeviceTaintRules, as frozen values.

They keep only the fields that the scheduler reads. Names of attributes and capacities are fully
qualified: the driver is the domain of a name without one. `Device.unsupported` names a feature that
the scheduler does not support: such a device is never allocated.
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
    key: str
    value: str
    effect: str


class CounterUse(NamedTuple):
    """An amount of a counter that the devices of a pool share."""

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
    """Only where the slice has perDeviceNodeSelection."""
    unsupported: str = ""

    def attribute(self, name: str) -> Attribute | None:
        return next((value for key, value in self.attributes if key == name), None)


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A ResourceSlice: a part of a pool of devices."""

    name: str
    pool: PoolId
    generation: int = 0
    count: int = 1
    """The number of slices of the pool in this generation."""
    nodes: NodeReach | None = None
    """None: each device has its own, or no node reaches the slice."""
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterUse, ...] = ()
    """The total of each shared counter."""
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
                CounterUse(str(row.get("name")), str(name), _amount(mapping(value).get("value")))
                for row in rows(spec.get("sharedCounters"))
                for name, value in sorted(mapping(row.get("counters")).items())
            ),
            version=str(about.get("resourceVersion") or ""),
        )


@dataclass(frozen=True, slots=True)
class DeviceTaintRule:
    """Taints all devices that it selects; an empty part selects all."""

    name: str
    taint: DeviceTaint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def selects(self, device: DeviceId) -> bool:
        parts = zip(self._selector(), device, strict=True)
        return all(selected in ("", actual) for selected, actual in parts)

    def _selector(self) -> tuple[str, str, str]:
        return self.driver, self.pool, self.device

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        selector = mapping(spec.get("deviceSelector"))
        return cls(
            str(mapping(obj.get("metadata")).get("name") or ""),
            _taint(mapping(spec.get("taint"))),
            *(str(selector.get(part) or "") for part in ("driver", "pool", "device")),
        )


def _device(pool: PoolId, row: Json) -> Device:
    driver, name = pool
    return Device(
        id=DeviceId(driver, name, str(row.get("name") or "")),
        attributes=tuple(
            (_qualified(driver, key), attribute)
            for key, value in sorted(mapping(row.get("attributes")).items())
            if (attribute := _attribute(mapping(value))) is not None
        ),
        capacity=tuple(
            (_qualified(driver, key), str(mapping(value).get("value")))
            for key, value in sorted(mapping(row.get("capacity")).items())
        ),
        taints=tuple(_taint(item) for item in rows(row.get("taints"))),
        consumes=tuple(
            CounterUse(str(item.get("counterSet")), str(key), _amount(mapping(value).get("value")))
            for item in rows(row.get("consumesCounters"))
            for key, value in sorted(mapping(item.get("counters")).items())
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
    if any(item.get("compatibilityGroups") for item in rows(row.get("consumesCounters"))):
        return "devices with compatibility groups"
    return ""


def _attribute(row: Json) -> Attribute | None:
    for kind in _KINDS:
        if (value := row.get(kind)) is not None:
            return Attribute(kind, tuple(value) if isinstance(value, list) else value)
    return None


def _qualified(driver: str, name: object) -> str:
    return str(name) if "/" in str(name) else f"{driver}/{name}"


def _taint(row: Json) -> DeviceTaint:
    return DeviceTaint(*(str(row.get(part) or "") for part in ("key", "value", "effect")))


def _amount(value: object) -> Decimal:
    try:
        return quantity.parse(value)
    except quantity.QuantityError:
        return Decimal(0)  # the API server stores no quantity that it cannot parse
