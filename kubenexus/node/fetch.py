"""
The objects about one node: itself, its ResourceSlices, its NodeResourceTopology, its pods, and the
reservations of capacity on it.

A kind that the API server does not serve is skipped. A kind that may not be read is named in
`unread`, because the answer without it is still useful. A missing node raises `errors.Gone`.
"""

from dataclasses import dataclass
from typing import Any

from cluster import errors, resources
from cluster.client import Client
from cluster.resources import Resource

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NodeObjects:
    node: Obj
    slices: tuple[Obj, ...] = ()
    topology: Obj | None = None
    pods: tuple[Obj, ...] = ()
    reservations: tuple[Obj, ...] = ()
    """Of the whole cluster."""
    unread: tuple[str, ...] = ()
    """Kinds that could not be read, and why."""


async def fetch(client: Client, name: str) -> NodeObjects:
    node = await client.get(resources.NODES, name)
    unread: list[str] = []
    slices = await _list(client, resources.RESOURCE_SLICES, f"spec.nodeName={name}", unread)
    slices = await _rest_of_pools(client, slices, unread)
    pods = await _list(client, resources.PODS, f"spec.nodeName={name}", unread)
    reservations = await _list(client, resources.RESOURCE_RESERVATIONS, None, unread)
    topology: Obj | None = None
    try:
        topology = await client.get(resources.NODE_RESOURCE_TOPOLOGIES, name)
    except errors.Gone:
        pass
    except errors.Refused as exc:
        unread.append(f"{resources.NODE_RESOURCE_TOPOLOGIES} not read: {exc}")
    return NodeObjects(
        node, tuple(slices), topology, tuple(pods), tuple(reservations), tuple(unread)
    )


async def _rest_of_pools(client: Client, slices: list[Obj], unread: list[str]) -> list[Obj]:
    """A pool may have slices of other nodes; without them it would count as incomplete."""
    pools: dict[tuple[str, str], list[Obj]] = {}
    for resource_slice in slices:
        pools.setdefault(_pool(resource_slice), []).append(resource_slice)
    incomplete = {
        key
        for key, rows in pools.items()
        if len(rows) < max(int(_count(resource_slice)) for resource_slice in rows)
    }
    known = {resource_slice["metadata"]["name"] for resource_slice in slices}
    for driver in sorted({driver for driver, _ in incomplete}):
        more = await _list(client, resources.RESOURCE_SLICES, f"spec.driver={driver}", unread)
        slices = [
            *slices,
            *(o for o in more if _pool(o) in incomplete and o["metadata"]["name"] not in known),
        ]
    return slices


def _pool(obj: Obj) -> tuple[str, str]:
    return str(obj["spec"]["driver"]), str(obj["spec"]["pool"]["name"])


def _count(obj: Obj) -> int:
    return int(obj["spec"]["pool"].get("resourceSliceCount") or 0)


async def _list(client: Client, kind: Resource, fields: str | None, unread: list[str]) -> list[Obj]:
    try:
        page = await client.list(kind, field_selector=fields)
    except errors.Gone:
        return []
    except errors.Refused as exc:
        unread.append(f"{kind} not read: {exc}")
        return []
    return list(page.items)
