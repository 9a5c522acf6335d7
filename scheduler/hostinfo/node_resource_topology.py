"""
NodeResourceTopology objects (`topology.node.k8s.io`) as host facts. Pure.

    zones[type Node]   node-0, node-1, …: resources with capacity, allocatable, available
          costs        distances to the other zones
    attributes         topologyManagerPolicy, topologyManagerScope
    topologyPolicies   the same in the older form, such as SingleNUMANodeContainerLevel

`allocatable` is the total for pods. `available` is what the exporter last saw free: it lags behind
the scheduler's own decisions, so the reader ignores it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from policies import quantity, vocabulary
from policies.hosts import merge
from policies.hosts.merge import HostFacts
from policies.hosts.topology import TopologyManager
from policies.json_fields import Json, mapping
from scheduler.model.fields import rows
from scheduler.model.resources import CPU, HUGEPAGES, MEMORY

SOURCE: Final = "NodeResourceTopology"

_ZONE: Final = re.compile(r"(?:.*\D)?(\d{1,3})")
_POLICIES: Final = {
    "singlenumanode": "single-numa-node",
    "restricted": "restricted",
    "besteffort": "best-effort",
    "none": "none",
}


def read(obj: Json) -> HostFacts:
    zones = [row for row in rows(obj.get("zones")) if str(row.get("type", "")) in ("Node", "")]
    ids = {str(row.get("name")): id_ for row in zones if (id_ := _id(row)) is not None}
    problems: list[str] = []
    facts: dict[int, dict[str, Any]] = {}
    counts: dict[int, int] = {}
    for row in zones:
        zone = ids.get(str(row.get("name")))
        if zone is None:
            problems.append(f"{SOURCE}: zone {str(row.get('name'))!r} names no NUMA node")
            continue
        facts[zone], counts[zone] = _zone(row, ids, problems)
    manager = _manager(obj)
    return HostFacts(
        SOURCE,
        facts,
        lists_zones=True,
        gpu_counts={zone: count for zone, count in counts.items() if count},
        host={merge.MANAGER: manager} if manager else {},
        problems=tuple(problems),
    )


def node_name(obj: Json) -> str:
    """The object has the name of its node."""
    return str(mapping(obj.get("metadata")).get("name") or "")


def _id(row: Json) -> int | None:
    match = _ZONE.fullmatch(str(row.get("name", "")))
    return int(match[1]) if match else None


def _zone(row: Json, ids: Mapping[str, int], problems: list[str]) -> tuple[dict[str, Any], int]:
    facts: dict[str, Any] = {}
    pages: list[tuple[str, int]] = []
    gpus = 0
    for resource in rows(row.get("resources")):
        name = str(resource.get("name") or "")
        try:
            total = quantity.amount(name, resource.get("capacity", 0))
            usable = quantity.amount(name, resource.get("allocatable", resource.get("capacity", 0)))
        except quantity.QuantityError as exc:
            problems.append(f"{SOURCE}: zone {row.get('name')}, {name}: {exc}")
            continue
        if name == CPU:
            facts |= {merge.CPU: usable, merge.ALL_CPU: total}
        elif name == MEMORY:
            facts |= {merge.MEMORY: usable, merge.ALL_MEMORY: total}
        elif name.startswith(HUGEPAGES) and usable > 0:
            pages.append((name, usable))
        elif name in vocabulary.GPU_RESOURCES:
            gpus += usable
    if pages:
        facts[merge.HUGEPAGES] = tuple(sorted(pages))
    if distances := tuple(sorted(_costs(row, ids))):
        facts[merge.DISTANCES] = distances
    return facts, gpus


def _costs(row: Json, ids: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    for cost in rows(row.get("costs")):
        other, value = ids.get(str(cost.get("name"))), cost.get("value")
        if other is not None and isinstance(value, int) and not isinstance(value, bool):
            yield other, value


def _manager(obj: Json) -> TopologyManager | None:
    attributes = {
        str(row.get("name")): str(row.get("value")) for row in rows(obj.get("attributes"))
    }
    policy = _policy(attributes.get("topologyManagerPolicy", ""))
    if policy:
        scope = attributes.get("topologyManagerScope", "")
        return TopologyManager(policy, scope if scope in ("container", "pod") else "container")
    policies = obj.get("topologyPolicies")
    old = str(policies[0]) if isinstance(policies, list) and policies else ""
    policy = _policy(old.removesuffix("ContainerLevel").removesuffix("PodLevel"))
    return (
        TopologyManager(policy, "pod" if old.endswith("PodLevel") else "container")
        if policy
        else None
    )


def _policy(text: str) -> str:
    return _POLICIES.get(text.replace("-", "").lower(), "")
