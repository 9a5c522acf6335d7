"""
What must be watched for rules about other pods, beside nodes and pods themselves.

Namespaces answer namespace selectors: without them a pod may be placed against a rule. Services and
controllers only say who serves together, for the spreading that nobody asked for: missing them
makes a placement worse, not wrong.
"""

from dataclasses import dataclass
from functools import partial
from typing import Self

from cluster import resources
from policies.json_fields import Json, mapping
from scheduler.feed import Feed
from scheduler.model.fields import pairs
from scheduler.plugins.interpod.default_spread import WorkloadSelector
from scheduler.plugins.interpod.plugin import InterPod
from scheduler.plugins.interpod.selector_index import Labels


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Labels = ()

    @classmethod
    def read(cls, obj: Json) -> Self:
        about = mapping(obj.get("metadata"))
        return cls(str(about.get("name")), pairs(about.get("labels")))


def namespaces(peers: InterPod) -> Feed:
    """Must be in sync before pods are planned."""

    def put(found: Namespace) -> bool:
        return peers.put_namespace(found.name, found.labels)

    def drop(found: Namespace) -> bool:
        return peers.drop_namespace(found.name)

    return Feed(resources.NAMESPACES, Namespace.read, put, drop)


def serving(peers: InterPod) -> tuple[Feed, ...]:
    return tuple(
        Feed(one, partial(WorkloadSelector.read, one.kind), peers.defaults.put, peers.defaults.drop)
        for one in (
            resources.SERVICES,
            resources.REPLICATION_CONTROLLERS,
            resources.REPLICA_SETS,
            resources.STATEFUL_SETS,
        )
    )
