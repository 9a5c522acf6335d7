"""
Figures from the events of the watcher. Pure.

    pods/s          all pods bound, from the start of the process to the last bind; and from the
                    first bind to the last, which leaves start-up out
    spread          nodes and racks a gang is on; split: on more nodes than it needs
    partial         a gang of which some members and not all have a node; the longest such time
    latency         arrival mode: from the last member's creation to the last member's bind
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench import scheduler_cases as cases
from tests.bench.scheduler_cases import Case

Bound = Mapping[str, tuple[float, str]]  # pod -> when it was bound, and its node
Request = tuple[str, str]  # verb, resource with its subresource

_SAMPLE: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
# Requests of the API server to itself, and requests of the benchmark.
_NOT_THE_SCHEDULER: Final = frozenset({"leases", "flowschemas", "prioritylevelconfigurations", ""})
_OF_THE_BENCHMARK: Final = frozenset(
    {("POST", "pods"), ("POST", "podgroups"), ("DELETE", "pods"), ("LIST", "events")}
)


@dataclass(frozen=True, slots=True)
class Speed:
    bound: int
    seconds: float
    """From the start of the process to the last bind."""
    first: float
    """From the start of the process to the first bind."""

    @property
    def per_second(self) -> float:
        return self.bound / self.seconds if self.seconds else 0.0

    @property
    def after_first(self) -> float:
        took = self.seconds - self.first
        return (self.bound - 1) / took if self.bound > 1 and took > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    gangs: int
    nodes_per_gang: float
    racks_per_gang: float
    split: float
    """Share of gangs on more nodes than they need."""
    over_racks: int
    """Gangs on more than one rack."""
    nodes_used: int
    longest_partial: float
    """Seconds between the first and the last bind of the gang that took longest."""
    left_partial: int
    """Gangs that have some members bound, and not all, at the end."""


def speed(bound: Bound, start: float) -> Speed:
    times = sorted(at for at, _ in bound.values())
    if not times:
        return Speed(0, 0.0, 0.0)
    return Speed(len(times), times[-1] - start, times[0] - start)


def spread(case: Case, bound: Bound) -> Spread:
    """Of the gangs that are bound whole; partial ones are counted as that alone."""
    by_unit: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for pod, where in bound.items():
        by_unit[cases.unit_of(pod)].append(where)
    whole = {unit: got for unit, got in by_unit.items() if len(got) == case.units[unit]}
    nodes = {unit: {node for _, node in got} for unit, got in whole.items()}
    racks = {
        unit: {cases.rack_of(node, case.rack) for node in there} for unit, there in nodes.items()
    }
    split = sum(len(there) > cases.needed(case.units[unit]) for unit, there in nodes.items())
    times = [[at for at, _ in got] for got in whole.values()]
    return Spread(
        gangs=len(whole),
        nodes_per_gang=_mean(len(there) for there in nodes.values()),
        racks_per_gang=_mean(len(there) for there in racks.values()),
        split=split / len(whole) if whole else 0.0,
        over_racks=sum(len(there) > 1 for there in racks.values()),
        nodes_used=len({node for _, node in bound.values()}),
        longest_partial=max(
            (max(gang_times) - min(gang_times) for gang_times in times), default=0.0
        ),
        left_partial=len(by_unit) - len(whole),
    )


def latencies(case: Case, created: Mapping[str, float], bound: Bound) -> list[float]:
    """A unit's wait once it is complete, for each unit that is bound whole."""
    last_created: dict[int, float] = {}
    ends: dict[int, list[float]] = defaultdict(list)
    for pod, at in created.items():
        unit = cases.unit_of(pod)
        last_created[unit] = max(at, last_created.get(unit, at))
    for pod, (at, _) in bound.items():
        ends[cases.unit_of(pod)].append(at)
    # A bind may be seen in the same chunk as the creation, never before it.
    return [
        max(0.0, max(got) - last_created[unit])
        for unit, got in sorted(ends.items())
        if len(got) == case.units[unit] and unit in last_created
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: a value that was measured."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def requests(metrics: str) -> Counter[Request]:
    """How many requests the API server has answered, from its own metrics."""
    counts: Counter[Request] = Counter()
    for labels, value in _SAMPLE.findall(metrics):
        label = dict(_LABEL.findall(labels))
        if label.get("resource", "") in _NOT_THE_SCHEDULER:
            continue
        part = label.get("subresource", "")
        resource = f"{label['resource']}/{part}" if part else label["resource"]
        counts[label["verb"], resource] += int(float(value))
    return counts


def of_scheduler(before: Counter[Request], after: Counter[Request]) -> Counter[Request]:
    """The requests between two readings, without those of the benchmark itself."""
    counts = after - before
    return Counter({key: n for key, n in counts.items() if key not in _OF_THE_BENCHMARK})


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
