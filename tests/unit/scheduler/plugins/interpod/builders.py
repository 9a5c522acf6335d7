"""A small cluster of two zones, its pods, and inter-pod constraints."""

from typing import Any

import numpy as np

from scheduler.cache.snapshot import Snapshot
from scheduler.model.node import Node
from scheduler.model.pod import Pod
from tests.unit.scheduler.builders import a_node, pod_json

Json = dict[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

SKEWED = "node(s) didn't match pod topology spread constraints"
UNLABELLED = "node(s) didn't match pod topology spread constraints (missing required label)"
NO_AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_BROKEN = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

X = {"matchLabels": {"app": "x"}}
Y = {"matchLabels": {"app": "y"}}


def term(key: str, selector: Json | None = X, **more: Any) -> Json:
    return {"topologyKey": key, "labelSelector": selector, **more}


def affinity(*terms: Json) -> Json:
    return {"podAffinity": {REQUIRED: list(terms)}}


def anti_affinity(*terms: Json) -> Json:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def preferred(field: str, weight: int, wanted: Json) -> Json:
    return {field: {PREFERRED: [{"weight": weight, "podAffinityTerm": wanted}]}}


def spread(key: str, selector: Json | None = X, *, soft: bool = False, **more: Any) -> Json:
    how = "ScheduleAnyway" if soft else "DoNotSchedule"
    return {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": how,
        "labelSelector": selector,
        **more,
    }


def a_labelled_pod(name: str = "p", app: str = "x", *, ns: str = "ns", **more: Any) -> Pod:
    raw = pod_json(name, **{"labels": {"app": app} if app else {}, **more})
    raw["metadata"]["namespace"] = ns
    return Pod.read(raw)


def nodes() -> list[Node]:
    """Two zones of two hosts each, and one host without labels."""
    return [
        *(a_node(f"a{i}", labels={HOST: f"a{i}", ZONE: "a", "disk": "ssd"}) for i in (1, 2)),
        *(a_node(f"b{i}", labels={HOST: f"b{i}", ZONE: "b"}) for i in (1, 2)),
        a_node("bare"),
    ]


def a_snapshot(*placed: tuple[Pod, str]) -> Snapshot:
    snapshot = Snapshot.of(nodes(), placed)
    snapshot.interpod.put_namespace("ns", (("team", "red"),))
    snapshot.interpod.put_namespace("other", (("team", "blue"),))
    return snapshot


def reasons(snapshot: Snapshot, pod: Pod) -> dict[str, str]:
    """The nodes that reject the pod, with the reason."""
    table = snapshot.table
    return {
        table.names[row]: reason
        for reason, rejected in snapshot.interpod.filter(pod, table.alive)
        for row in np.flatnonzero(rejected)
    }


def everywhere(reason: str, *but: str) -> dict[str, str]:
    return {node.name: reason for node in nodes() if node.name not in but}
