"""
The figures to reach, against what was measured. Pure.

Each line is a figure of `ours`, alone or as a ratio of two medians of the same run, with its bound.
A line whose figures were not measured in the run is left out and named as not measured.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.bench import rows
from tests.bench.scheduler_cases import (
    NATIVE,
    NATIVE_PACKED,
    NATIVE_RACK_PACKED,
    OURS,
    STOCK,
)

Results = dict[str, Any]

SPEED: Final = "pods_per_second"
CPU: Final = "scheduler_cpu"
SINGLES: Final = ("singles-1200@1000", "singles-1200@5000")
GANGS: Final = ("gangs-300x4@1000", "gangs-2x500@1000", "gangs-300x4@5000")
UNIFORM: Final = ("gangs-300x4@1000", "gangs-300x4@5000")
MIXED: Final = "mixed@250"
DRAINS: Final = (*SINGLES, *GANGS, MIXED)


@dataclass(frozen=True, slots=True)
class Measured:
    value: float
    spread: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    figure: str
    reach: float
    most: bool
    """The reach is an upper bound, else a lower one."""
    measured: Callable[[Results], Measured | None]


def values(results: Results, case: str, peer: str, field: str) -> list[float]:
    return [
        float(sample[field])
        for sample in results["samples"]
        if (sample["case"], sample["peer"]) == (case, peer) and field in sample
    ]


def span(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.3g} to {max(numbers):.3g}"


def _ratio(
    case: str, competitors: Iterable[str], field: str
) -> Callable[[Results], Measured | None]:
    """Ours against the best of the others: the largest where more is better."""
    others = tuple(competitors)

    def measured(results: Results) -> Measured | None:
        ours = values(results, case, OURS.name, field)
        rounds = {peer: values(results, case, peer, field) for peer in others}
        if not ours or not all(rounds.values()):
            return None
        best = max(others, key=lambda peer: statistics.median(rounds[peer]))
        our_median, best_median = statistics.median(ours), statistics.median(rounds[best])
        return Measured(
            our_median / best_median if best_median else 0.0,
            f"ours {span(ours)}; {best} {span(rounds[best])}",
            f"medians {our_median:.4g} and {best_median:.4g} of {len(ours)} and {len(rounds[best])} rounds",
        )

    return measured


def _worst(case: str, field: str) -> Callable[[Results], Measured | None]:
    def measured(results: Results) -> Measured | None:
        rounds = values(results, case, OURS.name, field)
        return Measured(max(rounds), span(rounds), f"{len(rounds)} rounds") if rounds else None

    return measured


def _unbound(results: Results) -> Measured | None:
    samples = [sample for sample in results["samples"] if sample["peer"] == OURS.name]
    if not samples:
        return None
    left = [sample["pods"] - sample["bound"] + sample.get("left_partial", 0) for sample in samples]
    return Measured(max(left), span(left), f"over {len(samples)} measurements")


def _growth(kind: str) -> Callable[[Results], Measured | None]:
    def measured(results: Results) -> Measured | None:
        costs = {
            sample["nodes"]: sample["plan_us"]
            for sample in results["planning"]
            if sample["case"].startswith(f"planning-{kind}@")
        }
        if len(costs) < 2:
            return None
        small, large = min(costs), max(costs)
        note = f"{costs[small]:.0f} us at {small:,} nodes, {costs[large]:.0f} us at {large:,}"
        return Measured(costs[large] / costs[small], "least of the rounds", note)

    return measured


def lines() -> list[Line]:
    tuned = (NATIVE_PACKED.name, NATIVE_RACK_PACKED.name)
    all_lines = [
        *(
            _at_least(f"{case}: pods/s / stock", 1.5, _ratio(case, (STOCK.name,), SPEED))
            for case in SINGLES
        ),
        *(
            _at_least(f"{case}: pods/s / native gang", 2.5, _ratio(case, (NATIVE.name,), SPEED))
            for case in GANGS
        ),
        *(
            _at_most(f"{case}: scheduler CPU / stock", 0.8, _ratio(case, (STOCK.name,), CPU))
            for case in DRAINS
        ),
        *(_at_most(f"{case}: nodes/gang", 1.0, _worst(case, "nodes_per_gang")) for case in UNIFORM),
        *(_at_most(f"{case}: racks/gang", 1.0, _worst(case, "racks_per_gang")) for case in UNIFORM),
        _at_most(f"{MIXED}: nodes/gang (bound 1.344)", 1.36, _worst(MIXED, "nodes_per_gang")),
        _at_most(f"{MIXED}: gangs over more than one rack", 0, _worst(MIXED, "over_racks")),
        _at_least(
            f"{MIXED}: pods/s / the faster tuned native gang", 2.0, _ratio(MIXED, tuned, SPEED)
        ),
        *(
            _at_most(f"{case}: RSS / stock", 1.3, _ratio(case, (STOCK.name,), "rss_mb"))
            for case in DRAINS
        ),
        *(
            _at_most(f"planning a pod ({kind}), 5,000 / 1,000 nodes", 5.0, _growth(kind))
            for kind in ("singles", "gangs-4")
        ),
        _at_most("ours: pods not bound and gangs left partial", 0, _unbound),
    ]
    return all_lines


def _at_least(figure: str, reach: float, measured: Callable[[Results], Measured | None]) -> Line:
    return Line(figure, reach, False, measured)


def _at_most(figure: str, reach: float, measured: Callable[[Results], Measured | None]) -> Line:
    return Line(figure, reach, True, measured)


def report(results: Results) -> list[rows.Row]:
    """A row for each line that was measured."""
    figures = []
    for line in lines():
        if (measured := line.measured(results)) is not None:
            row = rows.at_most if line.most else rows.at_least
            figures.append(
                row(
                    line.figure,
                    measured.value,
                    line.reach,
                    spread=measured.spread,
                    note=measured.note,
                )
            )
    return figures


def not_measured(results: Results) -> list[str]:
    """The figures of the other lines."""
    return [line.figure for line in lines() if line.measured(results) is None]
