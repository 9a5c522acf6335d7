"""
Resources to watch for inter-pod constraints, beside nodes and pods.

Namespace selectors need the labels of namespaces: without them a placement may break a constraint.
Services and controllers only define default spread constraints: without them a placement is less
even, but valid.
"""

from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

from cluster import resources
from policies.json_fields import Json, mapping
from scheduler.feed import Feed
from scheduler.model.fields import pairs
from scheduler.plugins.interpod.default_spread import DefaultSpread, WorkloadSelector
from scheduler.plugins.interpod.selector_index import Labels


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    labels: Labels = ()

    @classmethod
    def read(cls, obj: Json) -> Self:
        about = mapping(obj.get("metadata"))
        return cls(str(about.get("name")), pairs(about.get("labels")))


class NamespaceStore(Protocol):
    def put_namespace(self, name: str, labels: Labels) -> bool: ...
    def drop_namespace(self, name: str) -> bool: ...


def namespaces(store: NamespaceStore) -> Feed:
    def put(namespace: Namespace) -> bool:
        return store.put_namespace(namespace.name, namespace.labels)

    def drop(namespace: Namespace) -> bool:
        return store.drop_namespace(namespace.name)

    return Feed(resources.NAMESPACES, Namespace.read, put, drop)


def workloads(defaults: DefaultSpread) -> tuple[Feed, ...]:
    return tuple(
        Feed(
            resource,
            partial(WorkloadSelector.read, resource.kind),
            defaults.put,
            defaults.drop,
        )
        for resource in (
            resources.SERVICES,
            resources.REPLICATION_CONTROLLERS,
            resources.REPLICA_SETS,
            resources.STATEFUL_SETS,
        )
    )
