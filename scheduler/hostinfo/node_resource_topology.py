"""
NodeResourceTopology objects (`topology.node.k8s.io`) as facts about their host. Pure.

    zones[type Node]   node-0, node-1, …: resources with capacity, allocatable, available
          costs        distances to the other zones
    attributes         topologyManagerPolicy, topologyManagerScope
    topologyPolicies   the same in one word of the older form, such as SingleNUMANodeContainerLevel

`allocatable` is what pods may have in all. `available` is what the exporter last saw free: it is
behind what this scheduler has decided since, and not used.
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


def name(obj: Json) -> str:
    """The node that it speaks of has the same name."""
    return str(mapping(obj.get("metadata")).get("name") or "")


def _id(row: Json) -> int | None:
    found = _ZONE.fullmatch(str(row.get("name", "")))
    return int(found[1]) if found else None


def _zone(row: Json, ids: Mapping[str, int], problems: list[str]) -> tuple[dict[str, Any], int]:
    facts: dict[str, Any] = {}
    pages: list[tuple[str, int]] = []
    gpus = 0
    for resource in rows(row.get("resources")):
        about = str(resource.get("name") or "")
        try:
            total = quantity.amount(about, resource.get("capacity", 0))
            usable = quantity.amount(
                about, resource.get("allocatable", resource.get("capacity", 0))
            )
        except quantity.QuantityError as exc:
            problems.append(f"{SOURCE}: zone {row.get('name')}, {about}: {exc}")
            continue
        if about == "cpu":
            facts |= {merge.CPU: usable, merge.ALL_CPU: total}
        elif about == "memory":
            facts |= {merge.MEMORY: usable, merge.ALL_MEMORY: total}
        elif about.startswith("hugepages-") and usable > 0:
            pages.append((about, usable))
        elif about in vocabulary.GPU_RESOURCES:
            gpus += usable
    if pages:
        facts[merge.HUGEPAGES] = tuple(sorted(pages))
    if far := tuple(sorted(_costs(row, ids))):
        facts[merge.DISTANCES] = far
    return facts, gpus


def _costs(row: Json, ids: Mapping[str, int]) -> Iterable[tuple[int, int]]:
    for cost in rows(row.get("costs")):
        other, value = ids.get(str(cost.get("name"))), cost.get("value")
        if other is not None and isinstance(value, int) and not isinstance(value, bool):
            yield other, value


def _manager(obj: Json) -> TopologyManager | None:
    told = {str(row.get("name")): str(row.get("value")) for row in rows(obj.get("attributes"))}
    policy = _policy(told.get("topologyManagerPolicy", ""))
    if policy:
        scope = told.get("topologyManagerScope", "")
        return TopologyManager(policy, scope if scope in ("container", "pod") else "container")
    words = obj.get("topologyPolicies")
    old = str(words[0]) if isinstance(words, list) and words else ""
    policy = _policy(old.removesuffix("ContainerLevel").removesuffix("PodLevel"))
    return (
        TopologyManager(policy, "pod" if old.endswith("PodLevel") else "container")
        if policy
        else None
    )


def _policy(word: str) -> str:
    return _POLICIES.get(word.replace("-", "").lower(), "")
