"""A node as planning sees it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from policies import quantity
from policies.hosts import node_object
from policies.hosts import topology as numa_nodes
from policies.pods import requests
from scheduler.errors import ModelError
from scheduler.model.fields import Json, mapping, rows, whole, words
from scheduler.model.pod import LARGEST
from scheduler.model.taints import Taint, read_taints

Image = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    allocatable: tuple[tuple[str, int], ...] = ()
    """Sorted by resource name."""
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    """Those that keep pods out, in their order on the node."""
    against: tuple[Taint, ...] = ()
    """Those that only speak against the node."""
    images: tuple[Image, ...] = ()
    features: tuple[str, ...] = ()
    """What the kubelet declared that it can do, sorted."""
    unschedulable: bool = False
    topology: numa_nodes.Topology | None = None
    gpus: int = 0
    vram: int = 0
    """Bytes of a GPU, the largest of its host; 0: nobody said."""

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
        taints, against = read_taints(spec.get("taints"))
        return cls(
            name=name,
            allocatable=tuple(sorted(amounts.items())),
            labels=tuple(sorted(labels.items())),
            taints=taints,
            against=against,
            images=read_images(status),
            features=_features(status),
            unschedulable=spec.get("unschedulable") is True,
            topology=topology,
            gpus=gpus,
            vram=node_object.vram(labels, topology),
        )


def _allocatable(status: Json) -> dict[str, int]:
    found = mapping(status.get("allocatable") or status.get("capacity"))
    amounts: dict[str, int] = {}
    for name, value in found.items():
        try:
            count = quantity.amount(str(name), value)
        except quantity.QuantityError as exc:
            raise quantity.QuantityError(f"status.allocatable.{name}: {exc}") from exc
        amounts[str(name)] = max(0, min(count, LARGEST - 1))
    return amounts


def _features(status: Json) -> tuple[str, ...]:
    found = status.get("declaredFeatures")
    return tuple(sorted(map(str, found))) if isinstance(found, list) else ()


def read_images(status: Json) -> tuple[Image, ...]:
    """Names with their sizes in bytes, sorted; an image has a name for its tag and its digest."""
    found: dict[str, int] = {}
    for row in rows(status.get("images")):
        names = row.get("names")
        for name in names if isinstance(names, list) else ():
            found.setdefault(str(name), whole(row.get("sizeBytes")))
    return tuple(_shared(name, size) for name, size in sorted(found.items()))


@lru_cache(maxsize=2**16)
def _shared(name: str, size: int) -> Image:
    """Thousands of nodes hold the same images: one value stands for all of them."""
    return name, size
