"""
A case made small: the least cluster on which the two schedulers still differ in the same way.

Things are taken away one by one, pods and nodes before claims before single requirements, and put back
where the difference vanishes with them. Every step runs kube-scheduler on a cluster loaded anew.
"""

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import islice
from typing import Any, Final, TypeVar

from kubenexus.dev.errors import CallFailed
from tests.cluster.parity_cluster import RandomCluster
from tests.cluster.parity_compare import Judge, Seen
from tests.cluster.parity_kube_scheduler import KubeScheduler
from tests.cluster.parity_storage import Storage

Object = dict[str, Any]
T = TypeVar("T")

STEPS: Final = 200  # clusters tried for one case


def shrink(kube_scheduler: KubeScheduler, cluster: RandomCluster, kind: str) -> RandomCluster:
    """The cluster, which has one probe, with as little else as possible."""
    left, before = STEPS, None
    while before != cluster and left > 0:
        before, spot = cluster, 0
        while left > 0 and (candidate := next(islice(_smaller(cluster), spot, None), None)):
            left -= 1
            # What is taken away for good brings the next candidate to the same spot.
            if _differs(kube_scheduler, candidate, kind):
                cluster = candidate
            else:
                spot += 1
    return cluster


def _differs(kube_scheduler: KubeScheduler, cluster: RandomCluster, kind: str) -> bool:
    try:
        return any(
            found.kind == kind for found in Judge(kube_scheduler, cluster, Seen()).differences()
        )
    except (CallFailed, AssertionError):
        return False  # no cluster that the API server or kube-scheduler takes


def _smaller(cluster: RandomCluster) -> Iterator[RandomCluster]:
    """Worlds with less in them, the largest steps first."""
    probe = cluster.probes[0]
    if probe.wears:
        yield replace(cluster, probes=(replace(probe, wears=False),))
    for standing in _fewer(cluster.standing):
        yield replace(cluster, standing=standing)
    for nodes in _fewer(cluster.nodes):
        if nodes:
            yield replace(cluster, nodes=nodes)
    for storage in _less_storage(cluster.storage):
        yield replace(cluster, storage=storage)
    for spec in _less(probe.pod["spec"], ("containers", "priorityClassName")):
        yield replace(cluster, probes=(replace(probe, pod={**probe.pod, "spec": spec}),))
    for spot, each in enumerate(cluster.standing):
        for spec in _less(each.pod["spec"], ("containers", "nodeName")):
            less = replace(each, pod={**each.pod, "spec": spec})
            others = (*cluster.standing[:spot], less, *cluster.standing[spot + 1 :])
            yield replace(cluster, standing=others)


def _less_storage(storage: Storage) -> Iterator[Storage]:
    if storage != Storage():
        yield Storage()
    for field in fields(Storage):
        for items in _fewer(getattr(storage, field.name)):
            yield replace(storage, **{field.name: items})


def _fewer(items: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    """Without a half of them, then without each of them."""
    half = len(items) // 2
    if half:
        yield items[half:]
        yield items[:half]
    for spot in range(len(items)):
        yield (*items[:spot], *items[spot + 1 :])


def _less(value: Any, kept: tuple[str, ...] = ()) -> Iterator[Any]:
    """The value with one key or one item less, at any depth."""
    if isinstance(value, dict):
        for key in value:
            if key not in kept:
                yield {k: v for k, v in value.items() if k != key}
        for key, inner in value.items():
            for less in _less(inner):
                yield {**value, key: less}
    elif isinstance(value, list):
        for spot, inner in enumerate(value):
            if len(value) > 1:
                yield [*value[:spot], *value[spot + 1 :]]
            for less in _less(inner):
                yield [*value[:spot], less, *value[spot + 1 :]]


def shown(cluster: RandomCluster) -> str:
    """A small case for people to read."""
    rows = [
        *({"node": _brief(node)} for node in cluster.nodes),
        *({"namespace": n["metadata"]} for n in cluster.namespaces if n["metadata"].get("labels")),
        *({"pod": _brief(each.pod), "fate": each.fate} for each in cluster.standing),
        *(
            {item["kind"]: _brief(item)}
            for part in (cluster.storage, cluster.probes[0].storage)
            for field in fields(part)
            for item in getattr(part, field.name)
        ),
        {"probe": _brief(cluster.probes[0].pod)},
    ]
    return "\n".join(f"    {json.dumps(row, sort_keys=True)}" for row in rows)


def _brief(item: Object) -> Object:
    brief = copy.deepcopy({k: v for k, v in item.items() if k not in ("apiVersion", "kind")})
    for field in ("capacity", "images"):
        brief.get("status", {}).pop(field, None)
    return brief
