"""
An allotment as the API takes it: the `allocation` of a claim's status, and who it is reserved for.

Parameters for drivers come from the classes of the ways that were taken, in the order of the
requests, then from the claim itself. Parameters for requests, or for ways of them, of which none
was taken are left out.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from scheduler.model.pod import Pod
from scheduler.plugins.dra import node_selector
from scheduler.plugins.dra.allocator import Allotment, Pick
from scheduler.plugins.dra.claim_types import DeviceClass, Spec

Json = dict[str, Any]


def allocation(spec: Spec, found: Allotment, classes: Mapping[str, DeviceClass]) -> Json:
    devices: Json = {"results": [_result(pick) for pick in found.picks]}
    if config := [*_of_classes(spec, found, classes), *_of_claim(spec, found)]:
        devices["config"] = config
    made: Json = {"devices": devices}
    selector = node_selector.written(
        node_selector.common(tuple(pick.nodes for pick in found.picks))
    )
    if selector is not None:
        made["nodeSelector"] = selector
    return made


def consumer(pod: Pod) -> Json:
    return {"resource": "pods", "name": pod.key.name, "uid": pod.uid}


def _result(pick: Pick) -> Json:
    driver, pool, device = pick.device
    found: Json = {"request": pick.ask.name, "driver": driver, "pool": pool, "device": device}
    if pick.ask.admin:
        found["adminAccess"] = True
    if pick.ask.tolerations:
        found["tolerations"] = orjson.loads(pick.ask.tolerations)
    return found


def _of_classes(spec: Spec, found: Allotment, classes: Mapping[str, DeviceClass]) -> Iterable[Json]:
    asks = {ask.name: ask for ask in spec.asks()}
    users: dict[str, list[str]] = {}  # class -> the ways that were taken of it
    for way in found.ways:
        users.setdefault(asks[way].class_name, []).append(way)
    for name, ways in users.items():
        for config in classes[name].config if name in classes else ():
            yield _config("FromClass", config.opaque, () if len(ways) == len(found.ways) else ways)


def _of_claim(spec: Spec, found: Allotment) -> Iterable[Json]:
    taken = {*found.ways, *(way.partition("/")[0] for way in found.ways)}
    for config in spec.config:
        if not config.requests or taken & set(config.requests):
            yield _config("FromClaim", config.opaque, config.requests)


def _config(source: str, opaque: bytes, requests: Iterable[str]) -> Json:
    found: Json = {"source": source, "opaque": orjson.loads(opaque)}
    if names := list(requests):
        found["requests"] = names
    return found
