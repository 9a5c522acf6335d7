"""
NUMA nodes and GPUs that a pod has on its host, and the annotation on its Binding.

The annotation is compact JSON; amounts are in the order of `numa`:

    {"numa":[0],"gpus":[0,1],"cpu":[4000],"memory":[17179869184]}

`"isolated":true` excludes all other pods from these NUMA nodes. A pod with huge pages also has
`"hugepages":{"hugepages-2Mi":[2097152]}`. An annotation that cannot be parsed
counts as absent, and the pod is charged to its host as a whole.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from policies import bounds
from scheduler.model.numa_request import Hugepages
from scheduler.model.resources import HUGEPAGES


@dataclass(frozen=True, slots=True)
class NumaShare:
    """What a pod has of one NUMA node."""

    zone: int
    cpu: int = 0
    memory: int = 0
    hugepages: Hugepages = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Empty: the kubelet chooses NUMA nodes and GPUs."""

    shares: tuple[NumaShare, ...] = ()
    gpus: tuple[int, ...] = ()
    isolated: bool = False

    @property
    def numa(self) -> tuple[int, ...]:
        return tuple(share.zone for share in self.shares)

    def __bool__(self) -> bool:
        return bool(self.shares or self.gpus)

    def render(self) -> str:
        body: dict[str, Any] = {
            "numa": self.numa,
            "gpus": self.gpus,
            "cpu": [share.cpu for share in self.shares],
            "memory": [share.memory for share in self.shares],
        }
        names = sorted({name for share in self.shares for name, _ in share.hugepages})
        if names:
            table = [dict(share.hugepages) for share in self.shares]
            body["hugepages"] = {name: [row.get(name, 0) for row in table] for name in names}
        if self.isolated:
            body["isolated"] = True
        return orjson.dumps(body).decode()


NO_ASSIGNMENT: Final = Assignment()


def parse(text: str | None) -> Assignment | None:
    """The assignment that `render` wrote; None for anything else."""
    short = bounds.JSON.text(text)
    if short is None:
        return None
    try:
        body = orjson.loads(short)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(body, dict):
        return None
    numa, gpus = body.get("numa", []), body.get("gpus", [])
    if not (_counts(numa) and _counts(gpus)):
        return None
    cpu, memory = body.get("cpu", [0] * len(numa)), body.get("memory", [0] * len(numa))
    if not (_counts(cpu) and _counts(memory) and len(numa) == len(cpu) == len(memory)):
        return None
    if len(set(numa)) != len(numa) or len(set(gpus)) != len(gpus):
        return None
    pages = _hugepages(body.get("hugepages", {}), len(numa))
    if pages is None:
        return None
    shares = tuple(NumaShare(*row) for row in zip(numa, cpu, memory, pages, strict=True))
    return Assignment(shares, tuple(gpus), body.get("isolated") is True)


def _hugepages(value: object, zones: int) -> list[Hugepages] | None:
    """The huge pages of each NUMA node; None: `render` does not write such a value."""
    if not isinstance(value, dict):
        return None
    for name, column in value.items():
        if not (name.startswith(HUGEPAGES) and _counts(column) and len(column) == zones):
            return None
    names = sorted(value)
    return [tuple((name, value[name][i]) for name in names if value[name][i]) for i in range(zones)]


def _counts(column: object) -> bool:
    """Whole numbers from zero to a bound that keeps sums within an int64."""
    return isinstance(column, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**56
        for item in column
    )


@dataclass(frozen=True, slots=True)
class NumaMisfit:
    """Why the node is rejected."""

    reason: str
