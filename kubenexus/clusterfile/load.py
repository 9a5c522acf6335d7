"""
Clusters described in one YAML file, for `kubenexus simulate` and `kubenexus dev up --cluster`.

    file --yaml_reader--> values with lines --schema--> ClusterFile --expand--> Cluster
                                                   |                         |
                                       unknown key, bad quantity      duplicate names

    apiVersion: dev.kubenexus.io/v1alpha1
    kind: Cluster
    namespaces: [{name: team-a, tenant: team-a, tier: gold}]
    nodes:
      - name: gpu             # with a count: gpu-0, gpu-1, …; without: one node called gpu
        count: 4
        cpu: 64
        memory: 512Gi
        gpus: {model: NVIDIA-H100-80GB-HBM3, count: 8, memory: 80Gi}
        numa: {nodes: 2}      # or a list: [{cpus: 0-31, memory: 256Gi, gpus: [0, 1, 2, 3]}, …]

A `Cluster` holds v1 Node and Namespace objects that an API server accepts as they are. Every
mistake is a `yaml_reader.DocumentError` with file, line and column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from kubenexus.clusterfile.schema import (
    EVEN,
    LISTED,
    MOST_NODES,
    ClusterFile,
    Fabric,
    Gpus,
    NamespaceEntry,
    NodeGroup,
    NumaSplit,
    NumaZone,
    Taint,
)
from policies import quantity, vocabulary
from policies.documents import yaml_reader
from policies.json_fields import JsonDict

FILE_NAME: Final = "cluster.yaml"  # what a folder calls the file that describes its cluster
_HEADER: Final = f"`apiVersion: {vocabulary.CLUSTER_FILE_API_VERSION}`, `kind: Cluster`"
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Cluster:
    """The nodes and namespaces of a cluster without workloads."""

    nodes: tuple[JsonDict, ...]
    namespaces: tuple[JsonDict, ...] = ()


def load(path: Path) -> Cluster:
    """The cluster that a file describes; raises `yaml_reader.DocumentError`."""
    documents = yaml_reader.read(path)
    if not documents:
        raise yaml_reader.DocumentError(
            str(path), 1, 1, f"describes nothing; want {_HEADER} and a list of nodes"
        )
    if len(documents) > 1:
        raise documents[1].error((), "a second document; a cluster file holds exactly one")
    return from_document(documents[0])


def from_document(document: yaml_reader.Document) -> Cluster:
    """The cluster that one YAML document describes."""
    if not isinstance(document.value, dict):
        raise document.error((), f"found no map; want {_HEADER} and a list of nodes")
    try:
        parsed = ClusterFile.model_validate(document.value)
    except ValidationError as exc:
        raise _first_problem(exc, document) from exc
    return Cluster(_all_nodes(parsed, document), _all_namespaces(parsed, document))


def plain(count: int) -> Cluster:
    """`count` equal nodes of 32 CPUs, 128Gi and 110 pods that take turns in three zones."""
    return Cluster(
        tuple(
            _node(NodeGroup(name=name, cpu="32", memory="128Gi", zone="abc"[index % 3]), name)
            for index, name in enumerate(_names("node", count))
        )
    )


def _all_nodes(parsed: ClusterFile, document: yaml_reader.Document) -> tuple[JsonDict, ...]:
    nodes: dict[str, JsonDict] = {}
    for index, group in enumerate(parsed.nodes):
        for name in [group.name] if group.count is None else _names(group.name, group.count):
            if name in nodes:
                raise document.error(
                    ("nodes", index, "name"),
                    f"a node called {name!r} is listed twice; give each node its own name",
                )
            nodes[name] = _node(group, name)
        if len(nodes) > MOST_NODES:
            raise document.error(
                ("nodes", index), f"more than {MOST_NODES} nodes in all; describe fewer"
            )
    return tuple(nodes.values())


def _all_namespaces(parsed: ClusterFile, document: yaml_reader.Document) -> tuple[JsonDict, ...]:
    namespaces: dict[str, JsonDict] = {}
    for index, entry in enumerate(parsed.namespaces):
        if entry.name in namespaces:
            raise document.error(
                ("namespaces", index, "name"),
                f"a namespace called {entry.name!r} is listed twice; remove one",
            )
        namespaces[entry.name] = _namespace(entry)
    return tuple(namespaces.values())


# --- from the models to objects ---


def _names(stem: str, count: int) -> list[str]:
    """Numbered with leading zeros, so that the order of names is the order of numbers."""
    width = len(str(count - 1))
    return [f"{stem}-{index:0{width}d}" for index in range(count)]


def _namespace(entry: NamespaceEntry) -> JsonDict:
    labels = {vocabulary.NAMESPACE_NAME_LABEL: entry.name, **entry.labels}
    if entry.tenant is not None:
        labels[vocabulary.TENANT_LABEL] = entry.tenant
    if entry.tier is not None:
        labels[vocabulary.TIER_LABEL] = entry.tier
    metadata = {"name": entry.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _node(group: NodeGroup, name: str) -> JsonDict:
    spec: JsonDict = {}
    if group.taints:
        spec["taints"] = [taint.model_dump() for taint in group.taints]
    if group.unschedulable:
        spec["unschedulable"] = True
    capacity = _capacity(group)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(_labels(group, name)) | group.labels},
        "spec": spec,
        "status": {"capacity": capacity, "allocatable": dict(capacity)},
    }


def _capacity(group: NodeGroup) -> dict[str, str]:
    amounts = {**group.resources, "cpu": group.cpu, "memory": group.memory, "pods": str(group.pods)}
    if group.gpus:
        amounts[group.gpus.resource] = str(group.gpus.count)
    return {
        name: quantity.show(name, quantity.amount(name, amounts[name])) for name in sorted(amounts)
    }


def _labels(group: NodeGroup, name: str) -> Iterator[tuple[str, str]]:
    yield vocabulary.HOSTNAME_LABEL, name
    yield vocabulary.OS_LABEL, "linux"
    yield vocabulary.ARCH_LABEL, "amd64"
    for label, value in (
        (vocabulary.ZONE_LABEL, group.zone),
        (vocabulary.REGION_LABEL, group.region),
        (vocabulary.RACK_LABEL, group.rack),
        (vocabulary.GPU_CLIQUE_LABEL, group.clique),
        (vocabulary.FABRIC_TYPE_LABEL, group.fabric.type if group.fabric else None),
        (vocabulary.FABRIC_ID_LABEL, group.fabric.id if group.fabric else None),
    ):
        if value is not None:
            yield label, value
    if group.gpus:
        yield from _gpu_labels(group.gpus)
    if group.numa is not None:
        yield from _numa_labels(_zones(group))


def _gpu_labels(gpus: Gpus) -> Iterator[tuple[str, str]]:
    """As NVIDIA's GPU feature discovery writes them; other vendors have none, so they get ours."""
    memory = quantity.units(gpus.memory)
    if gpus.resource == "nvidia.com/gpu":
        yield vocabulary.GFD_PRODUCT_LABEL, gpus.model
        yield vocabulary.GFD_COUNT_LABEL, str(gpus.count)
        yield vocabulary.GFD_MEMORY_LABEL, str(memory // _MIB)
    else:
        yield vocabulary.GPU_MODEL_LABEL, gpus.model
        yield vocabulary.GPU_COUNT_LABEL, str(gpus.count)
        yield vocabulary.GPU_VRAM_LABEL, quantity.binary(memory // _MIB * _MIB)


def _numa_labels(zones: Sequence[NumaZone]) -> Iterator[tuple[str, str]]:
    yield vocabulary.NUMA_NODE_COUNT_LABEL, str(len(zones))
    for index, zone in enumerate(zones):
        yield vocabulary.numa_node_label(index, "cpus"), zone.cpus
        yield vocabulary.numa_node_label(index, "memory"), zone.memory
        if zone.bandwidth is not None:
            yield vocabulary.numa_node_label(index, "bandwidth"), str(zone.bandwidth)
        for other, distance in enumerate(zone.distances):
            yield vocabulary.numa_node_label(index, f"distance-{other}"), str(distance)
        for gpu in zone.gpus:
            yield vocabulary.gpu_numa_labels(gpu)[0], str(index)


def _zones(group: NodeGroup) -> Sequence[NumaZone]:
    """The NUMA nodes as listed, or the node split evenly: neighbours stay together."""
    if not isinstance(group.numa, NumaSplit):
        return group.numa or ()
    parts = group.numa.nodes
    cpus = int(quantity.parse(group.cpu)) // parts
    memory = quantity.units(group.memory) // parts
    return [
        NumaZone(
            cpus=f"{index * cpus}-{(index + 1) * cpus - 1}" if cpus > 1 else str(index),
            memory=_memory_label(memory),
            gpus=tuple(
                range(index * group.gpu_count // parts, (index + 1) * group.gpu_count // parts)
            ),
        )
        for index in range(parts)
    ]


def _memory_label(count: int) -> str:
    """Exact: what is no whole number of KiB is written in bytes, not rounded."""
    text = quantity.binary(count)
    return text if quantity.units(text) == count else str(count)


# --- from the first pydantic error to one line for the user ---

# The key above a map -> its model. A tag tells the two spellings of `numa` apart.
_MODELS: Final[dict[str, type[BaseModel]]] = {
    "": ClusterFile,
    "nodes": NodeGroup,
    "namespaces": NamespaceEntry,
    "gpus": Gpus,
    "fabric": Fabric,
    "taints": Taint,
    EVEN: NumaSplit,
    LISTED: NumaZone,
}


def _first_problem(
    exc: ValidationError, document: yaml_reader.Document
) -> yaml_reader.DocumentError:
    """A misspelled key first: it often explains the missing one."""
    problems = exc.errors(include_url=False)
    problem = min(problems, key=lambda shown: shown["type"] != "extra_forbidden")
    steps = problem["loc"]
    path = tuple(step for step in steps if step not in (EVEN, LISTED, "[key]"))
    where = _dotted(path)
    match problem["type"]:
        case "extra_forbidden":
            accepted = ", ".join(_MODELS[_above(steps)].model_fields)
            message = f"unknown key {path[-1]!r}; the keys here are {accepted}"
        case "missing":
            message = f"{where} is missing; add it"
        case "value_error" if path and isinstance(path[-1], int):
            path, message = (*path, "numa"), str(problem["ctx"]["error"])
        case "value_error":
            message = f"{where}: {problem['ctx']['error']}"
        case kind:
            shown = _shown(problem["input"])
            message = f"{where}: found {shown}, {_wanted(kind, problem['msg'])}"
    return document.error(path, message)


def _above(steps: Sequence[str | int]) -> str:
    """The last word of the path to the map that holds the step."""
    return next((step for step in reversed(steps[:-1]) if isinstance(step, str)), "")


def _dotted(path: Sequence[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.lstrip(".")


_WANTED: Final = {
    "int_type": "want a whole number",
    "bool_type": "want true or false",
    "string_type": "want text; put it in quotes",
    "model_type": "want a map",
    "dict_type": "want a map",
    "tuple_type": "want a list",
    "too_short": "want at least one entry",
}


def _wanted(kind: str, message: str) -> str:
    """What is accepted; otherwise from pydantic's own `Input should be …`."""
    return _WANTED.get(kind) or message.replace("Input should be", "want")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
