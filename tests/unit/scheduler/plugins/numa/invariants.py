"""
Faults of a plan, found from the annotations that it writes: an independent second check.

Every rule is counted again from plain numbers (`instances`); the scheduler's own state is
not read. A plan without faults may be carried out as it is.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from tests.unit.scheduler.plugins.numa.instances import (
    GIB,
    Host,
    Instance,
    Member,
    free_capacity_of,
)

AMOUNTS: Final = ("cpu", "memory", "gpus")

Row = tuple[str, str, str]  # member, host, annotation ("": nothing is written)
Placed = Sequence[tuple[Member, Mapping[str, Any]]]


def width(host: Host, member: Member) -> int | None:
    """How many NUMA nodes of the empty host the pod needs; None: not even all of them do."""
    for count in range(1, len(host.zones) + 1):
        for group in combinations(host.zones, count):
            if all(
                sum(getattr(zone, name) for zone in group) >= getattr(member, name)
                for name in AMOUNTS
            ):
                return count
    return None


def faults(instance: Instance, plan: Sequence[Row]) -> list[str]:
    """One sentence for each rule that the plan breaks."""
    members = {member.name: member for member in instance.members}
    found = list(_whole(instance, plan))
    for host in instance.hosts:
        rows = [
            (members[name], json.loads(text or "{}"))
            for name, place, text in plan
            if place == host.name
        ]
        found += [f"{host.name}: {fault}" for fault in _on_host(instance, host, rows)]
    return found


def _whole(instance: Instance, plan: Sequence[Row]) -> Iterator[str]:
    names = [name for name, _, _ in plan]
    if len(set(names)) != len(names):
        yield f"members are placed twice: {names}"
    if len(names) < instance.need:
        yield f"{len(names)} members are placed, {instance.need} are needed"
    hosts = {host.name: host for host in instance.hosts}
    domains = {hosts[place].domain(instance.level) for _, place, _ in plan}
    if instance.level and (len(domains) > 1 or "" in domains):
        yield f"the gang spans {sorted(domains)} of level {instance.level}"


def _on_host(instance: Instance, host: Host, rows: Placed) -> Iterator[str]:
    for name in AMOUNTS:
        capacity = sum(getattr(zone, name) for zone in host.zones)
        held = sum(getattr(pod, name) for pod in instance.running_pods if pod.host == host.name)
        requested = sum(getattr(member, name) for member, _ in rows)
        if requested and held + requested > capacity:
            yield f"{held + requested} of {capacity} {name} are held"
    for member, body in rows:
        yield from _own_policy(host, member, body)
    yield from _gpus(instance, host, rows)
    yield from _capacities(instance, host, rows)
    yield from _company(instance, host, rows)


def _own_policy(host: Host, member: Member, body: Mapping[str, Any]) -> Iterator[str]:
    zones, gpus = body.get("numa", []), body.get("gpus", [])
    if avoided := sorted(set(member.avoid) & set(zones)):
        yield f"{member.name} sits on {avoided}, which it avoids"
    if not zones and not set(member.avoid).isdisjoint(range(len(host.zones))):
        yield f"{member.name} sits anywhere, and avoids {member.avoid}"
    if not member.strict:
        return
    if len(zones) != (1 if member.policy == "single-numa" else width(host, member)):
        yield f"{member.name} ({member.policy}) sits on {zones}"
    want = (member.cpu * 1000, member.memory * GIB, member.gpus)
    if (sum(body.get("cpu", [])), sum(body.get("memory", [])), len(gpus)) != want:
        yield f"{member.name} requests {want} and is given {body}"
    if elsewhere := [i for i in gpus if not any(i in host.gpus_of(zone) for zone in zones)]:
        yield f"{member.name} on {zones} has GPUs {elsewhere} of other NUMA nodes"
    if body.get("isolated", False) is not (member.policy == "isolated"):
        yield f"{member.name} ({member.policy}) is written as isolated={body.get('isolated')}"


def _gpus(instance: Instance, host: Host, rows: Placed) -> Iterator[str]:
    held = Counter(
        index for pod in instance.running_pods if pod.host == host.name for index in pod.indices
    )
    held.update(index for _, body in rows for index in body.get("gpus", []))
    if twice := sorted(index for index, count in held.items() if count > 1):
        yield f"GPUs {twice} are held twice"
    if unknown := sorted(set(held) - set(range(host.gpus))):
        yield f"GPUs {unknown} do not exist"


def _capacities(instance: Instance, host: Host, rows: Placed) -> Iterator[str]:
    """No NUMA node gives more than it has left for certain."""
    for zone in range(len(host.zones)):
        capacity, _ = free_capacity_of(host, instance.running_pods, zone)
        for name, unit in (("cpu", 1000), ("memory", GIB)):
            held = sum(
                share
                for _, body in rows
                for place, share in zip(body.get("numa", []), body.get(name, []), strict=True)
                if place == zone
            )
            if held > getattr(capacity, name) * unit:
                yield f"NUMA node {zone} gives {held / unit:g} {name} of {getattr(capacity, name)}"


def _company(instance: Instance, host: Host, rows: Placed) -> Iterator[str]:
    """Which pods share NUMA nodes."""
    tenants: dict[int, list[tuple[str, bool]]] = {}
    for pod in instance.running_pods:
        for zone in pod.zones if pod.host == host.name else ():
            tenants.setdefault(zone, []).append(("a running pod", pod.isolated))
    bound_members: Counter[int] = Counter()
    for member, body in rows:
        bound_members.update(body.get("numa", []))
        for zone in body.get("numa", []):
            tenants.setdefault(zone, []).append((member.name, member.policy == "isolated"))
    closed = False
    for zone, pods in sorted(tenants.items()):
        isolated = [name for name, alone in pods if alone]
        closed = closed or bool(isolated)
        if isolated and len(pods) > 1:
            yield f"isolated NUMA node {zone} is shared by {[name for name, _ in pods]}"
    apart = instance.spread == "isolated"
    for member, body in rows:
        if not body.get("numa") and (closed or apart):
            yield f"{member.name} sits anywhere on a host that keeps others apart"
    if apart and (shared := sorted(zone for zone, count in bound_members.items() if count > 1)):
        yield f"members share NUMA nodes {shared}"
