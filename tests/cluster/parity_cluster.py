"""
Small random clusters for the parity test: nodes, namespaces, and the pods that already stand there.

Everything is drawn from one `random.Random`, so that a seed is the whole cluster. Vocabularies are
small on purpose: labels, ports and topology values must meet often, or every rule would be vacuous.
What a pod may request is `parity_requirements`', claims and volumes are `parity_storage`'s.

Objects are plain dictionaries as the API server takes them; what becomes of an existing pod after
its creation is its `fate`.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.cluster import parity_requirements, parity_storage
from tests.cluster.parity_draw import Draw
from tests.cluster.parity_requirements import DECLARED, HOSTNAME, LABELS, TAINTS, ZONE
from tests.cluster.parity_storage import OLD_ZONE, Storage

Object = dict[str, Any]

NAMESPACES: Final = ("parity-a", "parity-b", "parity-c")
REGION: Final = "topology.kubernetes.io/region"
CORDONED: Final = "node.kubernetes.io/unschedulable"
# Most pods meet in one namespace.
SPACES: Final = (*[NAMESPACES[0]] * 3, *NAMESPACES[1:])
MOST_NODES: Final = 8
PROBES: Final = 20

# What becomes of an existing pod: it runs, it is terminating, it is over, or it is being resized.
RUNS, TERMINATES, SUCCEEDED, FAILED, RESIZES = (
    "runs",
    "terminates",
    "succeeded",
    "failed",
    "resizes",
)


@dataclass(frozen=True, slots=True)
class ExistingPod:
    """A pod that stands on a node before the probe comes."""

    pod: Object
    fate: str = RUNS
    status: Object = field(default_factory=dict)
    """What a kubelet says of a pod that is being resized."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The pod that both schedulers place, with the claims that are made for it alone."""

    pod: Object
    storage: Storage = field(default_factory=Storage)
    wears: bool = False
    """Nodes it is given are cordoned, until it is given none."""


@dataclass(frozen=True, slots=True)
class RandomCluster:
    """One cluster and the probes on it, one after another."""

    seed: str
    nodes: tuple[Object, ...]
    namespaces: tuple[Object, ...]
    standing: tuple[ExistingPod, ...]
    storage: Storage
    probes: tuple[Probe, ...]
    first: int = 0
    """The number of the first probe."""

    def only(self, number: int) -> "RandomCluster":
        return replace(self, probes=(self.probes[number],), first=number)


@dataclass(frozen=True, slots=True)
class Mood:
    """What a cluster is short of: where everything is, nothing but amounts and taints is seen."""

    tight: bool
    tainted: bool


def random_cluster(seed: str, features: frozenset[str], *, probes: int = PROBES) -> RandomCluster:
    draw = Draw(random.Random(seed), features)
    mood = Mood(tight=draw.chance(0.3), tainted=draw.chance(0.4))
    nodes = tuple(_node(draw, f"{seed}-{n}", mood) for n in range(draw.upto(3, MOST_NODES)))
    names = [node["metadata"]["name"] for node in nodes]
    storage = parity_storage.shared(draw, names)
    standing = tuple(
        _standing(draw, f"stands-{n}", [*names, "gone"] if draw.chance(0.1) else names, storage)
        for n in range(draw.upto(0, 4 * len(nodes)))
    )
    return RandomCluster(
        seed,
        nodes,
        tuple(_namespace(draw, name) for name in NAMESPACES),
        tuple(_one_holder_a_port(standing)),
        storage,
        tuple(_probe(draw, f"probe-{n}", names, storage) for n in range(probes)),
    )


# --- nodes and namespaces ---


def _node(draw: Draw, name: str, mood: Mood) -> Object:
    amounts = _amounts(draw, mood)
    spec: Object = {}
    tainted = mood.tainted and draw.chance(0.6, "taints")
    taints = [_taint(draw) for _ in range(draw.upto(1, 2))] if tainted else []
    if draw.chance(0.2 if mood.tainted else 0.02, "taints"):
        spec["unschedulable"] = True
        if draw.chance(0.5):
            taints.append({"key": CORDONED, "effect": "NoSchedule"})
    spec["taints"] = list({(t["key"], t["effect"]): t for t in taints}.values())
    images = [
        {"names": [f"image-{n}:1"], "sizeBytes": draw.upto(1, 900) * 10**6}
        for n in range(draw.upto(0, 3))
    ]
    declared = [DECLARED] if draw.chance(0.6, "declared") else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _node_labels(draw, name)},
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "images": images,
            "declaredFeatures": declared,
        },
    }


def _amounts(draw: Draw, mood: Mood) -> dict[str, str]:
    if not mood.tight:
        amounts = {"cpu": draw.one("8", "64"), "memory": draw.one("16Gi", "64Gi")}
        amounts["pods"] = "110"
    else:
        amounts = {
            "cpu": draw.one("1", "1500m", "2", "4"),
            "memory": draw.one("1Gi", "2Gi", "4Gi"),
            "pods": str(draw.one(1, 3, 5, 10, 110)),
        }
    if draw.chance(0.4 if mood.tight else 0.9, "resources"):
        amounts["ephemeral-storage"] = draw.one("1Gi", "10Gi")
    if draw.chance(0.4 if mood.tight else 0.8, "resources"):
        amounts["example.com/gpu"] = str(draw.upto(0, 4))
    if draw.chance(0.2, "resources"):
        amounts["hugepages-2Mi"] = draw.one("64Mi", "256Mi")
    return amounts


def _node_labels(draw: Draw, name: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    if draw.chance(0.95):
        labels[HOSTNAME] = name
    if draw.chance(0.85):
        labels[ZONE] = draw.one(*LABELS[ZONE])
        labels[REGION] = draw.one("r1", "r1", "r2")
        if draw.chance(0.2):
            labels[OLD_ZONE] = draw.one(*LABELS[ZONE])
    for key in ("rack", "disk", "size"):
        if draw.chance(0.75):
            labels[key] = draw.one(*LABELS[key])
    if draw.chance(0.5):
        labels["fenced"] = "yes"
    return labels


def _taint(draw: Draw) -> Object:
    taint = {
        "key": draw.one(*TAINTS),
        "effect": draw.one("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"),
    }
    if draw.chance(0.7):
        taint["value"] = draw.one("a", "b")
    return taint


def _namespace(draw: Draw, name: str) -> Object:
    labels = {"team": draw.one("red", "blue")} if draw.chance(0.8) else {}
    if draw.chance(0.4):
        labels["env"] = draw.one("test", "live")
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


# --- pods ---


def _standing(draw: Draw, name: str, nodes: list[str], storage: Storage) -> ExistingPod:
    pod = parity_requirements.standing(draw, name, draw.one(*SPACES), storage)
    pod["spec"]["nodeName"] = draw.one(*nodes)
    if draw.chance(0.3):
        pod["spec"]["schedulerName"] = draw.one("kubenexus-scheduler", "somebody-elses")
    if draw.chance(0.1):
        pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "aa"}
    fate = draw.one(*[RUNS] * 7, TERMINATES, SUCCEEDED, FAILED)
    if draw.chance(0.15, "resize"):
        return ExistingPod(pod, RESIZES, _resizing(draw, pod))
    return ExistingPod(pod, fate)


def _resizing(draw: Draw, pod: Object) -> Object:
    """Granted and running amounts of the first container, which need not be those requested."""
    first = pod["spec"]["containers"][0]
    row = {key: first[key] for key in ("name", "image")}
    row |= {"imageID": "", "ready": True, "restartCount": 0}
    if draw.chance(0.8):
        row["allocatedResources"] = _some_amounts(draw)
    if draw.chance(0.8):
        row["resources"] = {"requests": _some_amounts(draw)}
    status: Object = {"phase": "Running", "containerStatuses": [row]}
    if draw.chance(0.3):
        reason = draw.one("Infeasible", "Deferred")
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return status


def _some_amounts(draw: Draw) -> Object:
    return {"cpu": draw.one("200m", "900m", "1500m"), "memory": draw.one("100Mi", "1Gi", "2Gi")}


def _one_holder_a_port(standing: Iterable[ExistingPod]) -> Iterator[ExistingPod]:
    """No two pods on one node with the same port, as no host allows it.

    kube-scheduler keeps a node's ports as a set: a port that two pods hold counts as free when one
    of them ends.
    """
    held: set[tuple[str, int]] = set()
    for each in standing:
        spec = each.pod["spec"]
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        mine = {
            (spec["nodeName"], port["containerPort"])
            for container in containers
            for port in container.get("ports", ())
        }
        if mine & held:
            for container in containers:
                container.pop("ports", None)
        else:
            held |= mine
        yield each


def _probe(draw: Draw, name: str, nodes: list[str], storage: Storage) -> Probe:
    namespace = draw.one(*SPACES)
    own = Storage()
    if draw.chance(0.12, "late volumes"):
        own = parity_storage.late(draw, name, namespace, nodes)
    pod = parity_requirements.probe(draw, name, namespace, nodes, storage, own)
    return Probe(pod, own, wears=draw.chance(0.5) and not _ignores_cordons(pod))


def _ignores_cordons(pod: Object) -> bool:
    # A runtime class may bring tolerations, though none for this.
    return any(row.get("key", CORDONED) == CORDONED for row in pod["spec"].get("tolerations", ()))
