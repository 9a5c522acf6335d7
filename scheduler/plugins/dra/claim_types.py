"""
ResourceClaims and DeviceClasses as frozen values.

They keep only the fields that the scheduler reads. `version` is the object's resourceVersion:
states that differ in nothing else are equal. `DeviceRequest.unsupported` names a feature that the
scheduler does not support: such a claim is never allocated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import orjson

from policies.json_fields import Json, mapping
from scheduler.model.fields import rows, whole
from scheduler.plugins.dra.device_types import DeviceId, DeviceTaint
from scheduler.plugins.dra.node_selector import EVERYWHERE, NO_NODES, NodeReach, read_nodes

ClaimKey = tuple[str, str]  # namespace, name

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXACT: Final = "ExactCount"
ALL: Final = "All"
MAX_RESULTS: Final = 32  # devices of one claim
MAX_CONSUMERS: Final = 256  # pods that one claim is reserved for


class DeviceToleration(NamedTuple):
    """A toleration of device taints; empty: every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: DeviceTaint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


class DriverConfig(NamedTuple):
    """Driver parameters as JSON; without requests they apply to all."""

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
    """One alternative of a request. With several, `name` is request/subrequest."""

    name: str
    class_name: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT
    count: int = 1
    admin: bool = False
    """Admin access: the device may be in use, and stays free for others."""
    tolerations: tuple[DeviceToleration, ...] = ()
    tolerations_json: bytes = b""
    """The tolerations as JSON, for the allocation."""
    unsupported: str = ""
    """The feature that the scheduler does not support."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The first alternative that can be allocated satisfies it."""

    name: str
    alternatives: tuple[DeviceRequest, ...]


class MatchAttribute(NamedTuple):
    """Devices of these requests (empty: all) share the attribute's value, or each has its own."""

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False

    def covers(self, request: str, subrequest: str) -> bool:
        return not self.requests or request in self.requests or subrequest in self.requests


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The requests of a claim; the same devices satisfy equal specs."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[MatchAttribute, ...] = ()
    config: tuple[DriverConfig, ...] = ()

    def subrequests(self) -> Iterator[DeviceRequest]:
        return (item for request in self.requests for item in request.alternatives)

    @classmethod
    def read(cls, spec: Json) -> Self:
        devices = mapping(spec.get("devices"))
        return cls(
            tuple(_request(row) for row in rows(devices.get("requests"))),
            tuple(_constraint(row) for row in rows(devices.get("constraints"))),
            _configs(devices),
        )


class AllocatedDevice(NamedTuple):
    """A device of an allocation; with `admin` access it stays free for others."""

    id: DeviceId
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a claim in the API."""

    devices: tuple[AllocatedDevice, ...] = ()
    nodes: NodeReach = EVERYWHERE
    """The nodes that reach these devices."""


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    key: ClaimKey
    uid: str = ""
    spec: ClaimSpec = ClaimSpec()
    allocation: Allocation | None = None
    """None: not allocated."""
    consumers: tuple[str, ...] = ()
    """uids of the pods in `reservedFor`"""
    owner: str = ""
    """The uid of the controlling owner."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    version: str = field(default="", compare=False)

    @classmethod
    def read(cls, obj: Json) -> Self:
        about, status = mapping(obj.get("metadata")), mapping(obj.get("status"))
        allocation = status.get("allocation")
        return cls(
            key=(str(about.get("namespace") or "default"), str(about.get("name") or "")),
            uid=str(about.get("uid") or ""),
            spec=ClaimSpec.read(mapping(obj.get("spec"))),
            allocation=_allocation(allocation) if isinstance(allocation, dict) else None,
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


def _selectors(parent: Json) -> tuple[str, ...]:
    return tuple(
        str(mapping(row.get("cel")).get("expression") or "")
        for row in rows(parent.get("selectors"))
    )


def _configs(parent: Json) -> tuple[DriverConfig, ...]:
    return tuple(
        DriverConfig(
            orjson.dumps(row.get("opaque"), option=orjson.OPT_SORT_KEYS),
            tuple(str(name) for name in row.get("requests") or ()),
        )
        for row in rows(parent.get("config"))
    )


def _request(row: Json) -> ClaimRequest:
    name = str(row.get("name") or "")
    if listed := rows(row.get("firstAvailable")):
        alternatives = (_subrequest(f"{name}/{item.get('name')}", item) for item in listed)
        return ClaimRequest(name, tuple(alternatives))
    exactly = row.get("exactly")
    return ClaimRequest(name, (_subrequest(name, exactly),) if isinstance(exactly, dict) else ())


def _subrequest(name: str, row: Json) -> DeviceRequest:
    listed = rows(row.get("tolerations"))
    unsupported = "capacity of devices that claims share" if row.get("capacity") else ""
    if row.get("derivedAttributes"):
        unsupported = "derived attributes"
    return DeviceRequest(
        name=name,
        class_name=str(row.get("deviceClassName") or ""),
        selectors=_selectors(row),
        mode=str(row.get("allocationMode") or EXACT),
        count=whole(row.get("count")) or 1,
        admin=row.get("adminAccess") is True,
        tolerations=tuple(
            DeviceToleration(
                str(item.get("key") or ""),
                str(item.get("operator") or "Equal"),
                str(item.get("value") or ""),
                str(item.get("effect") or ""),
            )
            for item in listed
        ),
        tolerations_json=orjson.dumps(listed) if listed else b"",
        unsupported=unsupported,
    )


def _constraint(row: Json) -> MatchAttribute:
    requests = tuple(str(name) for name in row.get("requests") or ())
    if distinct := row.get("distinctAttribute"):
        return MatchAttribute(str(distinct), requests, distinct=True)
    return MatchAttribute(str(row.get("matchAttribute") or ""), requests)


def _allocation(value: Json) -> Allocation:
    nodes = value.get("nodeSelector")
    return Allocation(
        tuple(
            AllocatedDevice(
                DeviceId(*(str(row.get(part) or "") for part in DeviceId._fields)),
                row.get("adminAccess") is True,
            )
            for row in rows(mapping(value.get("devices")).get("results"))
        ),
        EVERYWHERE if nodes is None else read_nodes({"nodeSelector": nodes}) or NO_NODES,
    )
