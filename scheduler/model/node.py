"""A node as the scheduler sees it: a frozen value, decoded once from raw JSON."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from policies import quantity
from policies.hosts import node_object
from policies.hosts import topology as numa_nodes
from policies.json_fields import Json, mapping
from policies.pods import requests
from scheduler.errors import ModelError
from scheduler.model.fields import rows, whole, words
from scheduler.model.resources import LARGEST, capped
from scheduler.model.taints import Taint, read_taints

Image = tuple[str, int]

MOST_IMAGE: Final = 2**40
"""Bytes that count of one image."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    allocatable: tuple[tuple[str, int], ...] = ()
    """Sorted by resource name."""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    """Effects NoSchedule and NoExecute, in their order on the node."""
    soft_taints: tuple[Taint, ...] = ()
    """Effect PreferNoSchedule."""
    images: tuple[Image, ...] = ()
    features: tuple[str, ...] = ()
    """`status.declaredFeatures` of the kubelet, sorted."""
    unschedulable: bool = False
    topology: numa_nodes.Topology | None = None
    gpus: int = 0
    vram: int = 0
    """Bytes of the host's largest GPU; 0: unknown."""

    @classmethod
    def read(cls, obj: Json) -> Self:
        """From a v1 Node; raises `ModelError` naming the node and the field."""
        about, spec, status = (mapping(obj.get(key)) for key in ("metadata", "spec", "status"))
        name = str(about.get("name") or "")
        labels = words(about.get("labels"))
        try:
            amounts = _allocatable(status)
        except quantity.QuantityError as exc:
            raise ModelError(f"node {name}: {exc}") from exc
        gpus = requests.gpus(amounts)
        topology = node_object.read(labels, words(about.get("annotations")), gpus=gpus)
        taints, soft_taints = read_taints(spec.get("taints"))
        return cls(
            name=name,
            allocatable=tuple(sorted(amounts.items())),
            labels=tuple(sorted(labels.items())),
            taints=taints,
            soft_taints=soft_taints,
            images=read_images(status),
            features=_features(status),
            unschedulable=spec.get("unschedulable") is True,
            topology=topology,
            gpus=gpus,
            vram=capped(node_object.vram(labels, topology)),
        )


def _allocatable(status: Json) -> dict[str, int]:
    declared = mapping(status.get("allocatable") or status.get("capacity"))
    amounts: dict[str, int] = {}
    for name, value in declared.items():
        try:
            count = quantity.amount(str(name), value)
        except quantity.QuantityError as exc:
            raise quantity.QuantityError(f"status.allocatable.{name}: {exc}") from exc
        amounts[str(name)] = min(capped(count), LARGEST - 1)
    return amounts


def _features(status: Json) -> tuple[str, ...]:
    features = status.get("declaredFeatures")
    return tuple(sorted(map(str, features))) if isinstance(features, list) else ()


def read_images(status: Json) -> tuple[Image, ...]:
    """Names with their sizes in bytes, sorted; an image has a name for its tag and its digest."""
    sizes: dict[str, int] = {}
    for row in rows(status.get("images")):
        names = row.get("names")
        for name in names if isinstance(names, list) else ():
            sizes.setdefault(str(name), min(max(0, whole(row.get("sizeBytes"))), MOST_IMAGE))
    return tuple(_shared(name, size) for name, size in sorted(sizes.items()))


@lru_cache(maxsize=2**16)
def _shared(name: str, size: int) -> Image:
    """Thousands of nodes hold the same images: they share one value."""
    return name, size
