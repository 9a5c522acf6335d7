"""Slices, classes and claims in a few words, decoded as from the API server."""

from typing import Any

from scheduler.cache.snapshot import Snapshot
from scheduler.model.pod import Pod
from scheduler.plugins.dra.claim_types import DeviceClass, ResourceClaim
from scheduler.plugins.dra.device_types import ResourceSlice
from tests.unit.scheduler.builders import a_pod

Json = dict[str, Any]

DRIVER = "gpu.example.com"


def a_device(
    name: str,
    *,
    memory: str = "80Gi",
    numa: int | None = None,
    root: str = "",
    island: str = "",
    model: str = "H100",
    **more: Any,
) -> Json:
    attributes: Json = {"model": {"string": model}}
    if numa is not None:
        attributes["numaNode"] = {"int": numa}
    if root:
        attributes["resource.kubernetes.io/pcieRoot"] = {"string": root}
    if island:
        attributes["nvlinkDomain"] = {"string": island}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def devices(count: int, **more: Any) -> list[Json]:
    return [a_device(f"gpu-{number}", **more) for number in range(count)]


def slice_json(
    node: str,
    found: list[Json],
    *,
    pool: str = "",
    driver: str = DRIVER,
    name: str = "",
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> Json:
    where = {} if spec.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection"} else node
    return {
        "metadata": {"name": name or f"{pool or node}-{driver}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "pool": {
                "name": pool or node,
                "generation": generation,
                "resourceSliceCount": count,
            },
            **({"nodeName": where} if where else {}),
            "devices": found,
            **spec,
        },
    }


def class_json(name: str = "gpu", *selectors: str, config: list[Json] | None = None) -> Json:
    rules = selectors or (f'device.driver == "{DRIVER}"',)
    return {
        "metadata": {"name": name},
        "spec": {
            "selectors": [{"cel": {"expression": text}} for text in rules],
            "config": config or [],
        },
    }


def exactly(name: str = "gpus", *, count: int = 1, cel: str = "", **more: Any) -> Json:
    return {"name": name, "exactly": a_subrequest(count=count, cel=cel, **more)}


def a_subrequest(*, count: int = 1, cel: str = "", class_name: str = "gpu", **more: Any) -> Json:
    found: Json = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    if cel:
        found["selectors"] = [{"cel": {"expression": cel}}]
    return {**found, **more}


def first_of(name: str, *ways: Json) -> Json:
    return {"name": name, "firstAvailable": list(ways)}


def claim_json(
    name: str,
    *requests: Json,
    constraints: list[Json] | None = None,
    config: list[Json] | None = None,
    owner: str = "",
    status: Json | None = None,
    version: str = "1",
    **about: Any,
) -> Json:
    owners = [{"uid": owner, "controller": True, "kind": "Pod", "name": "p"}] if owner else []
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "ownerReferences": owners,
            **about,
        },
        "spec": {
            "devices": {
                "requests": list(requests) or [exactly()],
                "constraints": constraints or [],
                "config": config or [],
            }
        },
        "status": status or {},
    }


def allocated(*found: str, node: str = "a", pods: tuple[str, ...] = ()) -> Json:
    """The status of a claim that has these devices of a node."""
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpus", "driver": DRIVER, "pool": node, "device": name}
                    for name in found
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [rule]}]},
        },
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
    }


def put(snapshot: Snapshot, *objects: Json) -> None:
    """Slices have devices, claims a kind; the others are classes."""
    facts = snapshot.devices.store
    for obj in objects:
        if obj.get("kind") == "ResourceClaim":
            facts.put_claim(ResourceClaim.read(obj))
        elif "pool" in obj["spec"]:
            facts.put_slice(ResourceSlice.read(obj))
        else:
            facts.put_class(DeviceClass.read(obj))


def claim_refs(*claims: str) -> list[Json]:
    return [{"name": name, "resourceClaimName": name} for name in claims]


def a_pod_with_claims(name: str, *claims: str, **more: Any) -> Pod:
    """A pod that names its claims."""
    return a_pod(name, resourceClaims=claim_refs(*claims), **more)


def a_pod_with_template(name: str, *, made: str | None = "", **more: Any) -> Pod:
    """A pod with a claim from a template, called after it unless `made` says otherwise."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    statuses = [{"name": "gpu", "resourceClaimName": made or f"{name}-gpu"}]
    status: Json = {"phase": "Pending"}
    if made is not None:
        status["resourceClaimStatuses"] = statuses
    return a_pod(name, resourceClaims=claims, status=status, **more)
