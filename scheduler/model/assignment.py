"""
Which NUMA nodes and GPUs of its host a pod holds: the value, and its form on the Binding.

The annotation is compact JSON; the shares stand in the order of `numa`:

    {"numa":[0],"gpus":[0,1],"cpu":[4000],"memory":[17179869184]}

`"isolated":true` says that nobody else may share these NUMA nodes, and
`"hugepages":{"hugepages-2Mi":[2097152]}` stands only where there are some. What cannot be parsed
back is treated as absent, and the pod is then charged as one whose place is unknown.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from scheduler.model.numa_request import Hugepages
from scheduler.model.resources import HUGEPAGES


@dataclass(frozen=True, slots=True)
class NumaShare:
    """What a pod holds of one NUMA node."""

    zone: int
    cpu: int = 0
    memory: int = 0
    hugepages: Hugepages = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """Empty: the pod's place on its host is left to the host."""

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


NOWHERE: Final = Assignment()


def parse(text: str | None) -> Assignment | None:
    """The assignment that `render` wrote; None for anything else."""
    if text is None:
        return None
    try:
        body = orjson.loads(text)
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


def _hugepages(found: object, zones: int) -> list[Hugepages] | None:
    """For each NUMA node its huge pages; None: not what `render` writes."""
    if not isinstance(found, dict):
        return None
    for name, column in found.items():
        if not (name.startswith(HUGEPAGES) and _counts(column) and len(column) == zones):
            return None
    names = sorted(found)
    return [tuple((name, found[name][i]) for name in names if found[name][i]) for i in range(zones)]


def _counts(column: object) -> bool:
    """Whole numbers from zero up to what an int64 holds with room to add."""
    return isinstance(column, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**56
        for item in column
    )
