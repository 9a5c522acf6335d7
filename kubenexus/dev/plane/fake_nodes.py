"""
Fake nodes: Node objects in the API server that kwok keeps Ready.

A node counts as usable when it is Ready and the taint that every new node carries is gone.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from kubenexus.dev.api import Api, Object
from kubenexus.dev.errors import CallFailed, StartFailed

NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
POLL: Final = 0.1
NAMED: Final = 5


def add(
    api: Api,
    items: Iterable[Object],
    *,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Create or update the nodes, many at once, and wait until all of them are usable."""
    nodes = list(items)
    api.each(lambda node: _write(api, node), nodes)
    names = {node["metadata"]["name"] for node in nodes}
    end = clock() + deadline
    while missing := names - usable(api):
        if clock() > end:
            some = ", ".join(sorted(missing)[:NAMED])
            raise StartFailed(
                f"{len(missing)} of {len(names)} nodes were not ready within {deadline:g} s: {some}"
            )
        sleep(POLL)


def usable(api: Api) -> set[str]:
    items = api.call("GET", "/api/v1/nodes").get("items", [])
    return {node["metadata"]["name"] for node in items if _is_usable(node)}


def _is_usable(node: Object) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and NOT_READY_TAINT not in taints


def _write(api: Api, node: Object) -> Object:
    # A node is the one object whose status the API server takes at creation: kubelets register so.
    body = {"apiVersion": "v1", "kind": "Node", **node}
    try:
        return api.call("POST", "/api/v1/nodes", body)
    except CallFailed as exc:
        if exc.status != 409:
            raise
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    merge = "application/merge-patch+json"
    api.call("PATCH", path, {"metadata": node["metadata"]}, content_type=merge)
    status = {"status": node.get("status", {})}
    return api.call("PATCH", f"{path}/status", status, content_type=merge)
