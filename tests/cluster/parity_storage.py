"""
Volumes of the parity test's clusters: classes, volumes, claims, and what nodes can attach.

Three kinds of claims:

    bound       to a volume that may have a node affinity, zone labels, a CSI driver with limits
    amiss       no volume yet though one is due, being deleted, or not there at all
    late        made for one probe: WaitForFirstConsumer, to be bound where the pod is placed

No controller runs beside kube-scheduler, so that bound claims are written as the volume controller
leaves them and nothing changes by itself.
"""

from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.parity_draw import Draw

Object = dict[str, Any]

DRIVER: Final = "csi.example.com"
OTHER_DRIVER: Final = "block.example.com"
MIGRATED: Final = "ebs.csi.aws.com"
MOVED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
NOW, LATE, LATE_STATIC, LATE_TOPOLOGY = "now", "late", "late-static", "late-topology"
ZONE: Final = "topology.kubernetes.io/zone"
OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED: Final = "volume.kubernetes.io/selected-node"
MISSING: Final = "missing"


@dataclass(frozen=True, slots=True)
class Storage:
    """Objects as they are created. A claim with a finalizer is deleted, and stays."""

    classes: tuple[Object, ...] = ()
    csinodes: tuple[Object, ...] = ()
    drivers: tuple[Object, ...] = ()
    capacities: tuple[Object, ...] = ()
    attachments: tuple[Object, ...] = ()
    volumes: tuple[Object, ...] = ()
    claims: tuple[Object, ...] = ()

    def claims_of(self, namespace: str) -> list[str]:
        return [
            claim["metadata"]["name"]
            for claim in self.claims
            if claim["metadata"]["namespace"] == namespace
        ]


def shared(draw: Draw, nodes: list[str]) -> Storage:
    """What every pod of a cluster may use."""
    if "volumes" not in draw.features:
        return Storage()
    volumes, claims = [], []
    for namespace in ("parity-a", "parity-b", "parity-c"):
        for number in range(draw.upto(1, 4)):
            name = f"claim-{number}"
            claim = _claim(draw, name, namespace)
            if draw.chance(0.03):
                claim["spec"]["volumeName"] = "nowhere"
                claim["metadata"]["annotations"] = dict(BOUND)
            elif draw.chance(0.97):
                volume = _volume(draw, f"{namespace}-{name}", nodes)
                claim["spec"]["volumeName"] = volume["metadata"]["name"]
                claim["metadata"]["annotations"] = dict(BOUND)
                volume["spec"]["accessModes"] = claim["spec"]["accessModes"]
                volume["spec"]["claimRef"] = _reference(namespace, name)
                volumes.append(volume)
            if draw.chance(0.02):
                claim["status"] = {"phase": "Lost"}
            if draw.chance(0.02):
                claim["metadata"]["finalizers"] = ["example.com/stays"]
            claims.append(claim)
    return Storage(
        classes=_classes(draw),
        csinodes=tuple(_csinode(draw, name) for name in nodes if draw.chance(0.8)),
        drivers=_drivers(draw),
        attachments=_attachments(draw, nodes, volumes),
        capacities=_capacities(draw),
        volumes=tuple(volumes),
        claims=tuple(claims),
    )


def late(draw: Draw, name: str, namespace: str, nodes: list[str]) -> Storage:
    """Claims for one probe, bound where the pod is placed, and volumes that may serve them."""
    claims = [
        _late_claim(draw, f"{name}-late-{number}", namespace, nodes)
        for number in range(draw.upto(1, 2))
    ]
    volumes = []
    for number in range(draw.upto(0, 3)):
        volume = _volume(draw, f"{name}-{number}", nodes)
        volume["spec"]["storageClassName"] = draw.one(LATE, LATE_STATIC)
        volume["spec"]["accessModes"] = draw.some(("ReadWriteOnce", "ReadWriteMany"), 1, 2)
        if draw.chance(0.15):
            volume["spec"]["volumeMode"] = "Block"
        if draw.chance(0.15):
            claim_name = draw.one(*claims)["metadata"]["name"]
            volume["spec"]["claimRef"] = _reference(namespace, claim_name)
        volumes.append(volume)
    return Storage(volumes=tuple(volumes), claims=tuple(claims))


def _late_claim(draw: Draw, name: str, namespace: str, nodes: list[str]) -> Object:
    claim = _claim(draw, name, namespace)
    claim["spec"]["storageClassName"] = draw.one(LATE, LATE_STATIC, LATE_TOPOLOGY)
    claim["spec"]["accessModes"] = [draw.one("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany")]
    if draw.chance(0.1):
        claim["spec"]["volumeMode"] = "Block"
    if draw.chance(0.1):
        claim["spec"]["selector"] = {"matchLabels": {ZONE: draw.one("z1", "z2")}}
    if draw.chance(0.15):
        claim["metadata"]["annotations"] = {SELECTED: draw.one(*nodes, "gone")}
    return claim


def _reference(namespace: str, name: str) -> Object:
    return {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}


# --- one object each ---


def _claim(draw: Draw, name: str, namespace: str) -> Object:
    mode = "ReadWriteOncePod" if draw.chance(0.25) else draw.one("ReadWriteOnce", "ReadWriteMany")
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "storageClassName": NOW,
            "accessModes": [mode],
            "resources": {"requests": {"storage": draw.one("1Gi", "5Gi", "50Gi")}},
        },
    }


def _volume(draw: Draw, name: str, nodes: list[str]) -> Object:
    spec: Object = {
        "storageClassName": NOW,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": draw.one("5Gi", "100Gi")},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    metadata: Object = {"name": name}
    if draw.chance(0.6):
        spec["csi"] = {"driver": draw.one(DRIVER, DRIVER, OTHER_DRIVER), "volumeHandle": name}
    elif draw.chance(0.3):
        # Without a zone: where a driver took over, it would stand under the driver's own key.
        spec["awsElasticBlockStore"] = {"volumeID": name}
        return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    else:
        spec["nfs"] = {"server": "10.0.0.9", "path": f"/{name}"}
    if draw.chance(0.5):
        terms = [_term(draw, nodes) for _ in range(draw.upto(1, 2))]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if draw.chance(0.3):
        key = draw.one(ZONE, ZONE, OLD_ZONE)
        metadata["labels"] = {key: draw.one("z1", "z2", "z1__z3", "z9")}
        if draw.chance(0.3):
            metadata["labels"]["topology.kubernetes.io/region"] = draw.one("r1", "r2")
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _term(draw: Draw, nodes: list[str]) -> Object:
    if draw.chance(0.4):
        rule = {
            "key": "kubernetes.io/hostname",
            "operator": "In",
            "values": draw.some(nodes, 1, 2),
        }
    else:
        rule = {
            "key": draw.one(ZONE, "rack"),
            "operator": draw.one("In", "NotIn"),
            "values": draw.some(("z1", "z2", "k1", "k2"), 1, 3),
        }
    return {"matchExpressions": [rule]}


def _classes(draw: Draw) -> tuple[Object, ...]:
    def a_class(name: str, provisioner: str, mode: str, **more: Any) -> Object:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
            **more,
        }

    late_mode = "WaitForFirstConsumer"
    topologies = [
        {
            "matchLabelExpressions": [
                {"key": ZONE, "values": draw.some(("z1", "z2", "z3", "z9"), 1, 2)}
            ]
        }
    ]
    return (
        a_class(NOW, DRIVER, "Immediate"),
        a_class(LATE, DRIVER, late_mode),
        a_class(LATE_STATIC, "kubernetes.io/no-provisioner", late_mode),
        a_class(LATE_TOPOLOGY, OTHER_DRIVER, late_mode, allowedTopologies=topologies),
    )


def _csinode(draw: Draw, node: str) -> Object:
    drivers = []
    for name in draw.some((DRIVER, OTHER_DRIVER, MIGRATED), 1, 3):
        driver: Object = {"name": name, "nodeID": node, "topologyKeys": []}
        if draw.chance(0.8):
            driver["allocatable"] = {"count": draw.upto(0, 4)}
        drivers.append(driver)
    # Where this stands, disks of the old kind are attached by the driver that took over.
    moved = {MOVED: "kubernetes.io/aws-ebs"} if draw.chance(0.6) else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node, "annotations": moved},
        "spec": {"drivers": drivers},
    }


def _drivers(draw: Draw) -> tuple[Object, ...]:
    return tuple(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver",
            "metadata": {"name": name},
            "spec": {
                "storageCapacity": draw.chance(0.5),
                "preventPodSchedulingIfMissing": draw.chance(0.3),
            },
        }
        for name in (DRIVER, OTHER_DRIVER)
        if draw.chance(0.6)
    )


def _attachments(draw: Draw, nodes: list[str], volumes: list[Object]) -> tuple[Object, ...]:
    """Volumes that are still attached somewhere, with or without a pod that uses them."""
    found = []
    for volume in volumes:
        if "csi" not in volume["spec"] or not draw.chance(0.15):
            continue
        name = volume["metadata"]["name"]
        spec = {
            "attacher": volume["spec"]["csi"]["driver"],
            "nodeName": draw.one(*nodes),
            "source": {"persistentVolumeName": name},
        }
        found.append(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "VolumeAttachment",
                "metadata": {"name": f"attached-{name}"},
                "spec": spec,
            }
        )
    return tuple(found)


def _capacities(draw: Draw) -> tuple[Object, ...]:
    found = []
    for number in range(draw.upto(0, 4)):
        capacity: Object = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSIStorageCapacity",
            "metadata": {"name": f"capacity-{number}", "namespace": "parity-a"},
            "storageClassName": draw.one(LATE, LATE_TOPOLOGY),
            "capacity": draw.one("0", "2Gi", "100Gi"),
        }
        if draw.chance(0.85):
            capacity["nodeTopology"] = {"matchLabels": {ZONE: draw.one("z1", "z2", "z3")}}
        if draw.chance(0.2):
            capacity["maximumVolumeSize"] = draw.one("1Gi", "10Gi")
        found.append(capacity)
    return tuple(found)
