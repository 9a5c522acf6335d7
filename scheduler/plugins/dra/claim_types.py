"""
What the API says about claims for devices and their classes, as frozen values.

Only what is read is kept. `version` is the object's resourceVersion: two states that differ in
nothing else are equal. What a request asks for that this scheduler cannot take into account is
named in `DeviceRequest.odd`: such a claim is never allocated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import orjson

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows, whole
from scheduler.plugins.dra.device_types import DeviceId, DeviceTaint
from scheduler.plugins.dra.node_selector import EVERYWHERE, NO_ASSIGNMENT, NodeReach, read_nodes

ClaimKey = tuple[str, str]  # namespace, name

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXACT: Final = "ExactCount"
ALL: Final = "All"
MAX_RESULTS: Final = 32  # devices of one claim
MAX_CONSUMERS: Final = 256  # pods that one claim is reserved for


class DeviceToleration(NamedTuple):
    """What a request tolerates; empty: anything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


class DriverConfig(NamedTuple):
    """Parameters for a driver, as JSON; without requests they hold for all."""

    opaque: bytes
    requests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceClass:
    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[DriverConfig, ...] = ()

    @classmethod
    def read(cls, obj: Json) -> Self:
        spec = mapping(obj.get("spec"))
        return cls(
            str(mapping(obj.get("metadata")).get("name") or ""),
            _selectors(spec),
            _configs(spec),
        )


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One way to satisfy a request. `name` is qualified for one of several: request/subrequest."""

    name: str
    class_name: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT
    count: int = 1
    admin: bool = False
    """Beside whoever holds the device."""
    tolerations: tuple[DeviceToleration, ...] = ()
    tolerations_json: bytes = b""
    """The same as JSON, for the allocation."""
    unsupported: str = ""
    """What of it is not modelled."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Satisfied by the first of its ways that can be had."""

    name: str
    ways: tuple[DeviceRequest, ...]


class MatchAttribute(NamedTuple):
    """Devices of these requests (empty: all) have one value of the attribute, or each its own."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False

    def covers(self, request: str, way: str) -> bool:
        return not self.requests or request in self.requests or way in self.requests


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """What a claim asks for; equal specs are satisfied by the same devices."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[MatchAttribute, ...] = ()
    config: tuple[DriverConfig, ...] = ()

    def subrequests(self) -> Iterator[DeviceRequest]:
        return (way for request in self.requests for way in request.ways)

    @classmethod
    def read(cls, spec: Json) -> Self:
        devices = mapping(spec.get("devices"))
        return cls(
            tuple(_request(row) for row in rows(devices.get("requests"))),
            tuple(_constraint(row) for row in rows(devices.get("constraints"))),
            _configs(devices),
        )


class AllocatedDevice(NamedTuple):
    """A device that a claim was given; an `admin` leaves it free for others."""

    id: DeviceId
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a claim, as it stands in the API."""

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: NodeReach = EVERYWHERE
    """The nodes that reach these devices."""


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A ResourceClaim."""

    key: ClaimKey
    uid: str = ""
    spec: ClaimSpec = ClaimSpec()
    allocation: Allocation | None = None
    """None: not allocated."""
    consumers: tuple[str, ...] = ()
    """uids of those it is reserved for"""
    owner: str = ""
    """The uid of the controlling owner."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, status = mapping(obj.get("metadata")), mapping(obj.get("status"))
        found = status.get("allocation")
        return cls(
            key=(str(about.get("namespace") or "default"), str(about.get("name") or "")),
            uid=str(about.get("uid") or ""),
            spec=ClaimSpec.read(mapping(obj.get("spec"))),
            allocation=_allocation(found) if isinstance(found, dict) else None,
            consumers=tuple(str(row.get("uid")) for row in rows(status.get("reservedFor"))),
            owner=next(
                (
                    str(row.get("uid"))
                    for row in rows(about.get("ownerReferences"))
                    if row.get("controller") is True
                ),
                "",
            ),
            deleting=about.get("deletionTimestamp") is not None,
            finalizers=tuple(str(name) for name in about.get("finalizers") or ()),
            version=str(about.get("resourceVersion") or ""),
        )


# --- parts ---


def _selectors(found: Json) -> tuple[str, ...]:
    return tuple(
        str(mapping(row.get("cel")).get("expression") or "") for row in rows(found.get("selectors"))
    )


def _configs(found: Json) -> tuple[DriverConfig, ...]:
    return tuple(
        DriverConfig(
            orjson.dumps(row.get("opaque"), option=orjson.OPT_SORT_KEYS),
            tuple(str(name) for name in row.get("requests") or ()),
        )
        for row in rows(found.get("config"))
    )


def _request(row: Json) -> ClaimRequest:
    name = str(row.get("name") or "")
    if ways := rows(row.get("firstAvailable")):
        return ClaimRequest(
            name, tuple(_subrequest(f"{name}/{way.get('name')}", way) for way in ways)
        )
    exactly = row.get("exactly")
    return ClaimRequest(name, (_subrequest(name, exactly),) if isinstance(exactly, dict) else ())


def _subrequest(name: str, found: Json) -> DeviceRequest:
    listed = rows(found.get("tolerations"))
    unsupported = "capacity of devices that claims share" if found.get("capacity") else ""
    if found.get("derivedAttributes"):
        unsupported = "derived attributes"
    return DeviceRequest(
        name=name,
        class_name=str(found.get("deviceClassName") or ""),
        selectors=_selectors(found),
        mode=str(found.get("allocationMode") or EXACT),
        count=whole(found.get("count")) or 1,
        admin=found.get("adminAccess") is True,
        tolerations=tuple(
            DeviceToleration(
                str(one.get("key") or ""),
                str(one.get("operator") or "Equal"),
                str(one.get("value") or ""),
                str(one.get("effect") or ""),
            )
            for one in listed
        ),
        tolerations_json=orjson.dumps(listed) if listed else b"",
        unsupported=unsupported,
    )


def _constraint(row: Json) -> MatchAttribute:
    requests = tuple(str(name) for name in row.get("requests") or ())
    if distinct := row.get("distinctAttribute"):
        return MatchAttribute(str(distinct), requests, distinct=True)
    return MatchAttribute(str(row.get("matchAttribute") or ""), requests)


def _allocation(found: Json) -> Allocation:
    nodes = found.get("nodeSelector")
    return Allocation(
        tuple(
            AllocatedDevice(
                DeviceId(*(str(row.get(part) or "") for part in DeviceId._fields)),
                row.get("adminAccess") is True,
            )
            for row in rows(mapping(found.get("devices")).get("results"))
        ),
        EVERYWHERE if nodes is None else read_nodes({"nodeSelector": nodes}) or NO_ASSIGNMENT,
    )
