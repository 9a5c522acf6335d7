"""
PVCs, volumes and classes as raw JSON, and the filter result of a pod.

They go through the real decoding, as from the API server.
"""

from typing import Any

import numpy as np

from policies import vocabulary
from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.plan import filters
from scheduler.plan.memo import Memo
from scheduler.plugins.volumes.informers import feeds
from scheduler.plugins.volumes.plugin import VolumePlugin
from tests.unit.scheduler.builders import a_node, a_pod

Json = dict[str, Any]

WAIT_FOR_FIRST_CONSUMER, NOW, MADE = "late", "now", "made"
"""Classes: of local disks, bound at once, and made by a driver for the first pod."""
DRIVER = "csi.example.com"


def a_claim(
    name: str = "data",
    *,
    volume: str = "",
    bound: bool | None = None,
    class_name: str | None = WAIT_FOR_FIRST_CONSUMER,
    size: str | None = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    selected: str | None = None,
    phase: str = "Pending",
    deleting: bool = False,
    owner: str = "",
    version: str = "1",
    **spec: Any,
) -> Json:
    notes = {}
    if bound if bound is not None else bool(volume):
        notes[vocabulary.BIND_COMPLETED_ANNOTATION] = "yes"
    if selected is not None:
        notes[vocabulary.SELECTED_NODE_ANNOTATION] = selected
    owners = [{"uid": owner, "controller": True}] if owner else []
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "annotations": notes,
            "ownerReferences": owners,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
        },
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size} if size else {}},
            **({"volumeName": volume} if volume else {}),
            **({"storageClassName": class_name} if class_name is not None else {}),
            **spec,
        },
        "status": {"phase": phase},
    }


def a_volume(
    name: str = "pv",
    *,
    on: str | None = None,
    affinity: list[Json] | None = None,
    class_name: str = WAIT_FOR_FIRST_CONSUMER,
    size: str = "10Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    claim: str | None = None,
    claim_uid: str = "",
    phase: str = "Available",
    labels: dict[str, str] | None = None,
    version: str = "1",
    deleting: bool = False,
    **spec: Any,
) -> Json:
    """`on` is the host it is on; `affinity` gives the terms in full."""
    terms = affinity
    if on is not None:
        rule = {"key": vocabulary.HOSTNAME_LABEL, "operator": "In", "values": [on]}
        terms = [{"matchExpressions": [rule]}]
    reference = {"namespace": "ns", "name": claim, "uid": claim_uid} if claim else None
    return {
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "labels": labels or {},
            "resourceVersion": version,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
        },
        "spec": {
            "storageClassName": class_name,
            "capacity": {"storage": size},
            "accessModes": list(modes),
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}),
            **({"claimRef": reference} if reference else {}),
            **spec,
        },
        "status": {"phase": phase},
    }


def a_csi_volume(name: str, driver: str = DRIVER, **more: Any) -> Json:
    return a_volume(name, csi={"driver": driver, "volumeHandle": f"handle-{name}"}, **more)


def a_class(name: str, provisioner: str, *, late: bool = True, zones: tuple[str, ...] = ()) -> Json:
    rule = {"key": vocabulary.ZONE_LABEL, "values": list(zones)}
    return {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if late else "Immediate",
        **({"allowedTopologies": [{"matchLabelExpressions": [rule]}]} if zones else {}),
    }


CLASSES = (
    a_class(WAIT_FOR_FIRST_CONSUMER, "kubernetes.io/no-provisioner"),
    a_class(NOW, DRIVER, late=False),
    a_class(MADE, DRIVER),
)


def a_csi_node(name: str, **limits: int | None) -> Json:
    """Limits by the first word of the driver's name."""
    drivers = [
        {
            "name": f"{driver}.example.com",
            **({"allocatable": {"count": count}} if count is not None else {}),
        }
        for driver, count in limits.items()
    ]
    return {"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}


def a_driver(name: str = DRIVER, *, capacity: bool = False, required: bool = False) -> Json:
    spec = {"storageCapacity": capacity, "preventPodSchedulingIfMissing": required}
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": spec}


def a_capacity(name: str, amount: str, zone: str, class_name: str = MADE, **more: Any) -> Json:
    return {
        "kind": "CSIStorageCapacity",
        "metadata": {"namespace": "csi", "name": name},
        "storageClassName": class_name,
        "nodeTopology": {"matchLabels": {vocabulary.ZONE_LABEL: zone}},
        "capacity": amount,
        **more,
    }


def an_attachment(name: str, node: str, volume: str, attacher: str = DRIVER) -> Json:
    spec = {"attacher": attacher, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec}


def put(volumes: VolumePlugin | Snapshot, *objects: Json) -> None:
    """What the watches would."""
    plugin = volumes.volumes if isinstance(volumes, Snapshot) else volumes
    known = {feed.resource.kind: feed for feed in feeds(plugin.store)}
    for obj in objects:
        known[obj["kind"]].put(known[obj["kind"]].read(obj))


def drop(volumes: VolumePlugin | Snapshot, *objects: Json) -> None:
    plugin = volumes.volumes if isinstance(volumes, Snapshot) else volumes
    known = {feed.resource.kind: feed for feed in feeds(plugin.store)}
    for obj in objects:
        known[obj["kind"]].drop(known[obj["kind"]].read(obj))


def mounting(*claims: str) -> list[Json]:
    """`spec.volumes` with these claims."""
    return [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]


# --- worlds ---


def hosts(**zones: str) -> list[Node]:
    """Nodes by name, each with its zone where one is given."""
    return [
        a_node(
            name,
            labels={
                vocabulary.HOSTNAME_LABEL: name,
                **({vocabulary.ZONE_LABEL: zone} if zone else {}),
            },
        )
        for name, zone in zones.items()
    ]


def filter_result(snapshot: Snapshot, **pod: Any) -> str | tuple[set[str], dict[str, int]]:
    """The sentence that closes all nodes, or the open nodes and the reasons of the others."""
    built = a_pod(**pod)
    found = filters.explain(snapshot, built, Memo())
    if found.message:
        return found.message
    rows = filters.feasible(snapshot, built, Memo())
    names = {snapshot.table.names[row] for row in np.flatnonzero(rows)}
    return names, dict(found.reasons)


def a_snapshot(*objects: Json, **zones: str) -> Snapshot:
    snapshot = Snapshot.of(hosts(**(zones or {"a": "z1", "b": "z2"})))
    put(snapshot, *CLASSES, *objects)
    return snapshot
