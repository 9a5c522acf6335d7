"""
The requests of a hostile user, each a function of (seed, index): the same pair, the same request.

    create   an object of any kind; now and then a dry run
    write    a PUT or one of four patches of an object that an earlier request created
    sub      a subresource of an earlier pod or workload: resize, status, eviction, binding, scale …
    delete   of an earlier object, with any grace period and propagation

An earlier object is found by drawing its creation again: no state is kept between requests, so
that any one of them can be repeated alone:

    python -m tests.hostile.requests SEED INDEX
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from urllib.parse import quote

from policies.pods import workloads as table
from tests.hostile import objects, pods, workloads
from tests.hostile.values import Draw, a_key, key_value

Json = dict[str, Any]

NAMESPACE: Final = "hostile"
GANG_SPAN: Final = 8  # requests in a row whose pods name one gang
CREATIONS: Final = 0.76  # share of the requests
REACH: Final = 60  # how far back a write searches for an object
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PLURALS: Final[Mapping[str, str]] = {
    **{kind: table.plural(kind) for _, kind in table.KINDS},
    **{kind: f"{kind.lower()}s" for _, kind in objects.KINDS},
}


@dataclass(frozen=True, slots=True)
class Request:
    index: int
    verb: str
    """`create`, `update`, `patch`, `delete` or the name of a subresource."""
    method: str
    path: str
    body: Any
    content_type: str = "application/json"
    kind: str = ""
    stores: str = ""
    """The path of the object that it creates, unless it is a dry run."""


def request(seed: int, index: int) -> Request:
    """The request of this place in the sequence of the seed."""
    draw = Draw(Random(f"{seed}/{index}"))
    share = _share(draw, index)
    if share < CREATIONS:
        return _create(draw, created(seed, index), index)
    target = created(seed, _earlier(draw, seed, index))
    if share < 0.86:
        return _write(draw, target, index)
    if share < 0.96:
        return _subresource(draw, target, index)
    return _delete(draw, target, index)


def _share(draw: Draw, index: int) -> float:
    """Where among creations, writes, subresources and deletions a request lies."""
    return 0.0 if index < REACH else draw.random.random()


def _earlier(draw: Draw, seed: int, index: int) -> int:
    """A request before this one; mostly a creation of an object that the API server stores."""

    def is_stored(earlier: int) -> bool:
        creates = _share(Draw(Random(f"{seed}/{earlier}")), earlier) < CREATIONS
        return creates and not _object_draw(seed, earlier).wild

    indexes = [index - 1 - draw.count(REACH - 1) for _ in range(6)]
    return next(filter(is_stored, indexes), indexes[0])


def _object_draw(seed: int, index: int) -> Draw:
    return Draw(Random(f"{seed}/{index}/object"))


def created(seed: int, index: int) -> Json:
    """The object that the request creates, if it is a creation."""
    draw = _object_draw(seed, index)
    name, group = f"h{index}", f"g{index // GANG_SPAN}"
    share = draw.random.random()
    if share < 0.6:
        return pods.pod(draw, name, NAMESPACE, group=group)
    if share < 0.82:
        return workloads.workload(draw, name, NAMESPACE, group=group)
    return objects.thing(draw, name, NAMESPACE)


def path_of(obj: Json, *, named: bool = True) -> str:
    version = obj["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    collection = f"{root}/namespaces/{NAMESPACE}/{PLURALS[obj['kind']]}"
    return f"{collection}/{quote(obj['metadata']['name'], safe='')}" if named else collection


def _create(draw: Draw, obj: Json, index: int) -> Request:
    dry = draw.chance(0.1)
    query = "?dryRun=All" if dry else ""
    return Request(
        index,
        "create",
        "POST",
        path_of(obj, named=False) + query,
        obj,
        kind=obj["kind"],
        stores="" if dry else path_of(obj),
    )


# --- changes of an object ---


def _write(draw: Draw, target: Json, index: int) -> Request:
    way = draw.pick(_WAYS)
    verb, method, content_type, body = way(draw, target)
    query = "?dryRun=All" if draw.chance(0.1) else ""
    if content_type == APPLY:
        query = "?fieldManager=hostile&force=true"
    return Request(
        index, verb, method, path_of(target) + query, body, content_type, kind=target["kind"]
    )


def _change(draw: Draw) -> Json:
    """Labels and annotations of ours, and now and then a part of a pod's spec."""
    metadata: Json = {}
    for _ in range(1 + draw.count(6)):
        key = a_key(draw)
        value = None if draw.chance(0.1) else key_value(draw, key)
        metadata.setdefault(key.place, {})[key.name] = value
    if draw.chance(0.1):
        metadata["finalizers"] = [f"example.com/f{i}" for i in range(draw.count(20))]
    change: Json = {"metadata": metadata}
    if draw.chance(0.3):
        change["spec"] = draw.pick(
            (
                {"replicas": draw.int32()},
                {"parallelism": draw.int32()},
                {"schedulingGates": []},
                {"activeDeadlineSeconds": draw.int64()},
                {"tolerations": [{"operator": "Exists", "tolerationSeconds": draw.int64()}]},
                pods.spec(draw),
            )
        )
    return change


Written = tuple[str, str, str, Any]  # verb, method, content type, body


def _merge(draw: Draw, target: Json) -> Written:
    return "patch", "PATCH", draw.pick((MERGE, STRATEGIC)), _change(draw)


def _json_patch(draw: Draw, target: Json) -> Written:
    rows: list[Json] = []
    for _ in range(1 + draw.count(50)):
        key = a_key(draw)
        name = key.name.replace("~", "~0").replace("/", "~1")
        operation = draw.pick(("add", "add", "replace", "remove", "test"))
        rows.append(
            {
                "op": operation,
                "path": f"/metadata/{key.place}/{name}",
                "value": key_value(draw, key),
            }
        )
    return "patch", "PATCH", JSON_PATCH, rows


def _apply(draw: Draw, target: Json) -> Written:
    body = {key: target[key] for key in ("apiVersion", "kind")} | _change(draw)
    body["metadata"] = {**body["metadata"], "name": target["metadata"]["name"]}
    return "patch", "PATCH", APPLY, body


def _put(draw: Draw, target: Json) -> Written:
    changed = {**target, "metadata": {**target["metadata"], **_change(draw)["metadata"]}}
    return "update", "PUT", "application/json", changed


_WAYS: Final[Sequence[Callable[[Draw, Json], Written]]] = (_merge, _json_patch, _apply, _put)


# --- subresources ---


def _subresource(draw: Draw, target: Json, index: int) -> Request:
    if target["kind"] != "Pod":
        return _scale(draw, target, index)
    name, (method, content_type, body) = draw.pick(tuple(_OF_PODS.items()))
    return Request(
        index,
        name,
        method,
        f"{path_of(target)}/{name}",
        body(draw, target),
        content_type,
        kind="Pod",
    )


def _scale(draw: Draw, target: Json, index: int) -> Request:
    body = {"spec": {"replicas": draw.int32()}}
    return Request(
        index, "scale", "PATCH", f"{path_of(target)}/scale", body, MERGE, kind=target["kind"]
    )


def _debug(draw: Draw, target: Json) -> Json:
    names = [f"e{draw.whole(10**6)}" for _ in range(1 + draw.count(50))]
    return {"spec": {"ephemeralContainers": [{"name": name, "image": "i"} for name in names]}}


def _resize(draw: Draw, target: Json) -> Json:
    return {"spec": {"containers": [{"name": "c", "resources": pods.resources(draw)}]}}


def _status(draw: Draw, target: Json) -> Json:
    status: Json = {
        "nominatedNodeName": draw.pick((*pods.NODES, draw.name())),
        "phase": draw.pick(("Pending", "Running", "Failed", draw.name())),
        "startTime": draw.time(),
        "conditions": [
            {"type": "PodScheduled", "status": "False", "message": draw.text(2000)}
            for _ in range(draw.count(10))
        ],
    }
    return {"status": status, **_change(draw)}


def _eviction(draw: Draw, target: Json) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": target["metadata"]["name"], "namespace": NAMESPACE},
        "deleteOptions": {"gracePeriodSeconds": draw.int64()},
    }


def _binding(draw: Draw, target: Json) -> Json:
    metadata = {**_change(draw)["metadata"], "name": target["metadata"]["name"]}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"kind": "Node", "name": draw.pick((*pods.NODES, draw.name()))},
    }


_OF_PODS: Final[Mapping[str, tuple[str, str, Callable[[Draw, Json], Json]]]] = {
    "ephemeralcontainers": ("PATCH", STRATEGIC, _debug),
    "resize": ("PATCH", STRATEGIC, _resize),
    "status": ("PATCH", MERGE, _status),
    "eviction": ("POST", "application/json", _eviction),
    "binding": ("POST", "application/json", _binding),
}


def _delete(draw: Draw, target: Json, index: int) -> Request:
    body: Json = {"propagationPolicy": draw.pick(("Background", "Foreground", "Orphan"))}
    if draw.chance(0.5):
        body["gracePeriodSeconds"] = draw.int64()
    return Request(index, "delete", "DELETE", path_of(target), body, kind=target["kind"])


def main(arguments: Sequence[str]) -> int:
    """Print one request, so that it can be sent alone."""
    seed, index = (int(argument) for argument in arguments[:2])
    found = request(seed, index)
    print(f"{found.method} {found.path} ({found.content_type})")
    print(json.dumps(found.body, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
