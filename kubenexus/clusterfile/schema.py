"""
The pydantic models of cluster.yaml.

Unknown keys are errors. Amounts are Kubernetes quantities; names and label values follow the API
server's rules, so that a valid file yields objects that a real cluster accepts. `load` turns the
models into Node objects.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    WithJsonSchema,
    model_validator,
)

from policies import quantity, vocabulary

MOST_NODES: Final = 10_000
# How pydantic names the two spellings of `numa` in an error's path; no YAML key looks like it.
EVEN: Final = "<even>"
LISTED: Final = "<listed>"

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_QUALIFIED_NAME: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_CPU_RANGE: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)


def _dns_label(text: str) -> str:
    if len(text) > 63 or not _DNS_LABEL.fullmatch(text):
        raise ValueError(
            f"found {text!r}, want at most 63 lower-case letters, digits and '-'; rename it"
        )
    return text


def _label_value(text: str) -> str:
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            f"found {text!r}, want at most 63 letters, digits, '-', '_' or '.', with a letter or "
            "digit at both ends; shorten or rename it"
        )
    return text


def _qualified_name(text: str) -> str:
    if not _QUALIFIED_NAME.fullmatch(text):
        raise ValueError(f"found {text!r}, want a key such as example.com/name; rename it")
    return text


def _amount(value: object) -> str:
    if quantity.parse(value) < 0:
        raise ValueError(f"found {value!r}, want zero or more")
    return str(value)


def _positive(value: object) -> str:
    if quantity.parse(value) <= 0:
        raise ValueError(f"found {value!r}, want an amount above zero")
    return str(value)


def _gpu_resource(text: str) -> str:
    if text not in vocabulary.GPU_RESOURCES:
        raise ValueError(f"found {text!r}, want one of {', '.join(vocabulary.GPU_RESOURCES)}")
    return text


def _cpu_list(value: object) -> str:
    """A kernel CPU list; `,` and `_` both part its ranges, but a label can hold only `_`."""
    text = str(value).replace(",", "_")
    ids = cpu_ids(text)
    if len(ids) != len(set(ids)):
        raise ValueError(f"found {value!r}, which names a CPU twice; name each once")
    return _label_value(text)


def cpu_ids(text: str) -> list[int]:
    """The ids of a CPU list: `0-2_8` is 0, 1, 2, 8."""
    ids: list[int] = []
    for part in text.split("_"):
        shape = _CPU_RANGE.fullmatch(part)
        first, last = (int(shape[1]), int(shape[2] or shape[1])) if shape else (1, 0)
        if first > last:
            raise ValueError(f"found {text!r}, want CPU ids such as 0-31 or 0-15_32-47")
        ids.extend(range(first, last + 1))
    return ids


_QUANTITY_SCHEMA: Final = WithJsonSchema({"type": ["string", "number"]})
Name = Annotated[str, AfterValidator(_dns_label)]
LabelValue = Annotated[str, AfterValidator(_label_value)]
LabelKey = Annotated[str, AfterValidator(_qualified_name)]
Amount = Annotated[str, BeforeValidator(_amount), _QUANTITY_SCHEMA]
PositiveAmount = Annotated[str, BeforeValidator(_positive), _QUANTITY_SCHEMA]
CpuList = Annotated[str, BeforeValidator(_cpu_list), _QUANTITY_SCHEMA]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpus(_Strict):
    """The GPUs of a node, all of one model."""

    count: Annotated[StrictInt, Field(ge=1, le=1024)]
    model: LabelValue
    memory: PositiveAmount
    """Of each GPU."""
    resource: Annotated[str, AfterValidator(_gpu_resource)] = vocabulary.GPU_RESOURCES[0]


class NumaSplit(_Strict):
    """The node's CPUs, memory and GPUs, split evenly over so many NUMA nodes."""

    nodes: Annotated[StrictInt, Field(ge=1, le=64)]


class NumaZone(_Strict):
    """One NUMA node, spelled out."""

    cpus: CpuList
    memory: PositiveAmount
    gpus: tuple[Annotated[StrictInt, Field(ge=0)], ...] = ()
    bandwidth: Annotated[StrictInt, Field(ge=1)] | None = None
    """Of its memory, in MB/s."""
    distances: tuple[Annotated[StrictInt, Field(ge=10, le=255)], ...] = ()
    """To NUMA node 0, 1, …, as the firmware reports them: 10 is the node itself."""


class Fabric(_Strict):
    """The network between nodes that a gang can be placed within."""

    type: LabelValue
    id: LabelValue


class Taint(_Strict):
    """A v1 taint."""

    key: LabelKey
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _numa_spelling(value: object) -> str:
    return LISTED if isinstance(value, Sequence) else EVEN


Numa = Annotated[
    Annotated[NumaSplit, Tag(EVEN)] | Annotated[tuple[NumaZone, ...], Tag(LISTED)],
    Discriminator(_numa_spelling),
]


class NodeGroup(_Strict):
    """One node, or `count` equal nodes called `<name>-0`, `<name>-1`, …"""

    name: Name
    count: Annotated[StrictInt, Field(ge=1, le=MOST_NODES)] | None = None
    cpu: PositiveAmount
    memory: PositiveAmount
    pods: Annotated[StrictInt, Field(ge=0, le=100_000)] = 110
    resources: dict[LabelKey, Amount] = {}
    """Further resources, such as ephemeral-storage or rdma/hca."""
    gpus: Gpus | None = None
    numa: Numa | None = None
    zone: LabelValue | None = None
    region: LabelValue | None = None
    rack: LabelValue | None = None
    fabric: Fabric | None = None
    clique: LabelValue | None = None
    labels: dict[LabelKey, LabelValue] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: StrictBool = False

    @property
    def gpu_count(self) -> int:
        return self.gpus.count if self.gpus else 0

    @model_validator(mode="after")
    def _numa_agrees_with_the_node(self) -> Self:
        if isinstance(self.numa, NumaSplit):
            self._check_split(self.numa.nodes)
        elif self.numa is not None:
            self._check_zones(self.numa)
        return self

    def _check_split(self, nodes: int) -> None:
        cpu = quantity.parse(self.cpu)
        if cpu % nodes:
            raise ValueError(
                f"{self.cpu} CPUs cannot be split evenly over {nodes} NUMA nodes; change cpu, or "
                "write numa as a list of {cpus, memory, gpus}"
            )

    def _check_zones(self, zones: Sequence[NumaZone]) -> None:
        cpus = sorted(cpu for zone in zones for cpu in cpu_ids(zone.cpus))
        gpus = sorted(gpu for zone in zones for gpu in zone.gpus)
        twice = [a for a, b in pairwise(cpus) if a == b]
        if twice:
            raise ValueError(f"numa lists CPU {twice[0]} twice; give it to one NUMA node")
        if len(cpus) != quantity.parse(self.cpu):
            raise ValueError(f"numa lists {len(cpus)} CPUs and cpu is {self.cpu}; make them agree")
        if gpus != list(range(self.gpu_count)):
            raise ValueError(
                f"numa lists GPUs {gpus} and the node has {self.gpu_count}; "
                "list each index from 0 once"
            )
        memory = sum(quantity.units(zone.memory) for zone in zones)
        if memory > quantity.units(self.memory):
            raise ValueError(
                f"numa lists {quantity.binary(memory)} of memory and the node has {self.memory}; "
                "make them agree"
            )
        if any(zone.distances and len(zone.distances) != len(zones) for zone in zones):
            raise ValueError(f"distances want one number for each of the {len(zones)} NUMA nodes")


class NamespaceEntry(_Strict):
    """A namespace; its tenant and tier become the labels that a cluster admin would set."""

    name: Name
    tenant: LabelValue | None = None
    tier: Literal["gold", "silver", "bronze"] | None = None
    labels: dict[LabelKey, LabelValue] = {}


class ClusterFile(_Strict):
    """The whole file."""

    apiVersion: Literal["dev.kubenexus.io/v1alpha1"]
    kind: Literal["Cluster"]
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    namespaces: tuple[NamespaceEntry, ...] = ()
