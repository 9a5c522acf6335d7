"""
The source of each host fact, and contradictions between sources. Pure; for `kubenexus node`.

    the `HostFacts` of the merge ──▶ origin of every fact that is used
                                └──▶ contradictions, the source that is used first

Sizes agree within 2 %: vendors count in GB and GiB. Models agree when one name contains the other
(`H100` and `NVIDIA-H100-80GB-HBM3`). Each source names islands in its own way, so they are not
compared. Usable amounts and totals are different facts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policies.hosts import merge
from policies.hosts.merge import HostFacts

TOLERANCE: Final = 0.02
HOST: Final = "host"

# Where the first fact is missing, the merge uses the second.
_FALLBACKS: Final = {
    merge.CPU: merge.ALL_CPU,
    merge.MEMORY: merge.ALL_MEMORY,
    merge.SWITCH: merge.ROOT,
}
_NEVER_COMPARED: Final = frozenset({merge.ISLAND, merge.DEVICE, merge.UUID, merge.SWITCH})
_SIZES: Final = frozenset({merge.MEMORY, merge.ALL_MEMORY, merge.VRAM})


@dataclass(frozen=True, slots=True)
class Contradiction:
    subject: str
    fact: str
    values: tuple[tuple[str, Any], ...]
    """(source, value); the first is used, and the others disagree with it."""


Origins = Mapping[tuple[str, str], str]  # (subject, fact) -> source


def origins(sources: Sequence[HostFacts]) -> Origins:
    """The source of every fact that is used."""
    origin: dict[tuple[str, str], str] = {}
    for subject, facts in _subjects(merge.aligned(sources)):
        for fact, values in facts.items():
            origin[subject, fact] = values[0][0]
    for subject, fact in list(origin):
        for preferred, fallback in _FALLBACKS.items():
            if fact == fallback:
                origin.setdefault((subject, preferred), origin[subject, fallback])
    return origin


def contradictions(sources: Sequence[HostFacts]) -> list[Contradiction]:
    contradicting: list[Contradiction] = []
    for subject, facts in _subjects(merge.aligned(sources)):
        for fact, values in facts.items():
            if fact in _NEVER_COMPARED:
                continue
            used, *others = values
            differing = [row for row in others if not _agree(fact, used[1], row[1])]
            if differing:
                contradicting.append(Contradiction(subject, fact, (used, *differing)))
    return contradicting


def zone(id_: int) -> str:
    return f"NUMA node {id_}"


def gpu(index: int) -> str:
    return f"GPU {index}"


_Facts = dict[str, list[tuple[str, Any]]]  # fact -> (source, value), best first


def _subjects(sources: Sequence[HostFacts]) -> Iterator[tuple[str, _Facts]]:
    yield HOST, _collect((item.source, dict(_of_host(item))) for item in sources)
    for id_ in merge.zone_ids(sources):
        yield zone(id_), _collect((item.source, item.zones.get(id_, {})) for item in sources)
    named = {index for item in sources for index in item.gpus}
    counted = next((item for item in sources if item.gpu_counts), None)
    if not named and counted is not None:
        sources = [
            replace(item, gpus=_numbered(item)) if item is counted else item for item in sources
        ]
        named = set(range(sum(counted.gpu_counts.values())))
    for index in sorted(named):
        rows = ((item.source, {**item.each_gpu, **item.gpus.get(index, {})}) for item in sources)
        yield gpu(index), _collect(rows)


def _numbered(facts: HostFacts) -> dict[int, Mapping[str, Any]]:
    """Indices for GPUs that are only counted, as the merge numbers them."""
    zones = [id_ for id_, count in sorted(facts.gpu_counts.items()) for _ in range(count)]
    return {index: {merge.ZONE: id_} for index, id_ in enumerate(zones)}


def _collect(sources: Iterable[tuple[str, Mapping[str, Any]]]) -> _Facts:
    collected: _Facts = {}
    for source, facts in sources:
        for fact, value in facts.items():
            collected.setdefault(fact, []).append((source, value))
    return collected


def _of_host(facts: HostFacts) -> Iterator[tuple[str, Any]]:
    yield from facts.host.items()
    if facts.lists_zones and facts.zones:
        yield "NUMA nodes", tuple(sorted(facts.zones))
    count = len(facts.gpus) or sum(facts.gpu_counts.values())
    if count:
        yield "GPUs", count


def _agree(fact: str, left: Any, right: Any) -> bool:
    if fact in _SIZES:
        return bool(abs(left - right) <= TOLERANCE * max(left, right))
    if fact == merge.MODEL:
        first, second = _letters(left), _letters(right)
        return first in second or second in first
    return bool(left == right)


def _letters(text: object) -> str:
    return "".join(letter for letter in str(text).lower() if letter.isalnum())
