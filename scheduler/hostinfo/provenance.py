"""
Which source each fact about a host came from, and which sources disagree. Pure; asked by people.

    the same `HostFacts` as the merge takes ──▶ origin of every fact that is used
                                      └──▶ contradictions, the source that is used first

Sizes agree within two hundredths: makers count in GB and GiB. Models agree when one name stands in
the other (`H100` and `NVIDIA-H100-80GB-HBM3`). Names of islands are a matter of each source and are
not compared. Usable amounts and totals are different facts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policies.hosts import merge
from policies.hosts.merge import HostFacts

TOLERANCE: Final = 0.02
HOST: Final = "host"

# Facts that other facts stand in for: where the first is not told, the next one is used.
_INSTEAD: Final = {
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
    said: tuple[tuple[str, Any], ...]
    """(source, value); the first is used, and the others disagree with it."""


Origins = Mapping[tuple[str, str], str]  # (subject, fact) -> source


def origins(said: Sequence[HostFacts]) -> Origins:
    """Where every fact that is used came from."""
    found: dict[tuple[str, str], str] = {}
    for subject, facts in _subjects(merge.aligned(said)):
        for fact, values in facts.items():
            found[subject, fact] = values[0][0]
    for subject, fact in list(found):
        for wanted, instead in _INSTEAD.items():
            if fact == instead:
                found.setdefault((subject, wanted), found[subject, instead])
    return found


def contradictions(said: Sequence[HostFacts]) -> list[Contradiction]:
    found: list[Contradiction] = []
    for subject, facts in _subjects(merge.aligned(said)):
        for fact, values in facts.items():
            if fact in _NEVER_COMPARED:
                continue
            used, *others = values
            against = [row for row in others if not _agree(fact, used[1], row[1])]
            if against:
                found.append(Contradiction(subject, fact, (used, *against)))
    return found


def zone(id_: int) -> str:
    return f"NUMA node {id_}"


def gpu(index: int) -> str:
    return f"GPU {index}"


_Facts = dict[str, list[tuple[str, Any]]]  # fact -> (source, value), best first


def _subjects(said: Sequence[HostFacts]) -> Iterator[tuple[str, _Facts]]:
    yield HOST, _collect((one.source, dict(_of_host(one))) for one in said)
    for id_ in merge.zone_ids(said):
        yield zone(id_), _collect((one.source, one.zones.get(id_, {})) for one in said)
    named = {index for one in said for index in one.gpus}
    counted = next((one for one in said if one.gpu_counts), None)
    if not named and counted is not None:
        said = [replace(one, gpus=_numbered(one)) if one is counted else one for one in said]
        named = set(range(sum(counted.gpu_counts.values())))
    for index in sorted(named):
        rows = ((one.source, {**one.each_gpu, **one.gpus.get(index, {})}) for one in said)
        yield gpu(index), _collect(rows)


def _numbered(said: HostFacts) -> dict[int, Mapping[str, Any]]:
    """GPUs that are counted and not named, as the merge numbers them."""
    places = [id_ for id_, count in sorted(said.gpu_counts.items()) for _ in range(count)]
    return {index: {merge.ZONE: id_} for index, id_ in enumerate(places)}


def _collect(said: Iterable[tuple[str, Mapping[str, Any]]]) -> _Facts:
    found: _Facts = {}
    for source, facts in said:
        for fact, value in facts.items():
            found.setdefault(fact, []).append((source, value))
    return found


def _of_host(said: HostFacts) -> Iterator[tuple[str, Any]]:
    yield from said.host.items()
    if said.lists_zones and said.zones:
        yield "NUMA nodes", tuple(sorted(said.zones))
    count = len(said.gpus) or sum(said.gpu_counts.values())
    if count:
        yield "GPUs", count


def _agree(fact: str, one: Any, other: Any) -> bool:
    if fact in _SIZES:
        return bool(abs(one - other) <= TOLERANCE * max(one, other))
    if fact == merge.MODEL:
        first, second = _letters(one), _letters(other)
        return first in second or second in first
    return bool(one == other)


def _letters(text: object) -> str:
    return "".join(letter for letter in str(text).lower() if letter.isalnum())
