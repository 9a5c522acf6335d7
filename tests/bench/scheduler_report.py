"""
The results of the comparison as text: a line per measurement, tables for the page and the screen.

A cell shows the median and, in brackets, the least and the largest of the rounds.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.bench import rows, scheduler_reach
from tests.bench.scheduler_cases import CASES, PEERS

Sample = dict[str, Any]
Results = dict[str, Any]


class Column:
    """A heading, and the number it shows of one sample; None where there is none."""

    def __init__(
        self, heading: str, value: Callable[[Sample], float | None], *, span: bool = False
    ) -> None:
        self.heading = heading
        self._value = value
        self._span = span

    def cell(self, samples: Sequence[Sample]) -> str:
        numbers = [figure for sample in samples if (figure := self._value(sample)) is not None]
        if not numbers:
            return "-"
        middle = number(statistics.median(numbers))
        if self._span and len(numbers) > 1:
            return f"{middle} ({number(min(numbers))}-{number(max(numbers))})"
        return middle


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _of(name: str, factor: float = 1.0) -> Callable[[Sample], float | None]:
    return lambda sample: sample[name] * factor if name in sample else None


def _per_thousand(name: str) -> Callable[[Sample], float | None]:
    return lambda sample: (
        1e3 * sample[name] / sample["bound"] if name in sample and sample["bound"] else None
    )


_COST: Final = (
    Column("CPU s / 1,000 pods", _per_thousand("scheduler_cpu"), span=True),
    Column("API server CPU s / 1,000", _per_thousand("apiserver_cpu")),
    Column("RSS MB", _of("rss_mb")),
    Column("Requests / pod", _of("requests_per_pod")),
    Column("Events / pod", lambda s: s["events"] / s["bound"] if s.get("bound") else None),
)
_SPREAD: Final = (
    Column("Nodes / gang", _of("nodes_per_gang")),
    Column("Racks / gang", _of("racks_per_gang")),
    Column("Split %", _of("split", 100)),
    Column("Over >1 rack", _of("over_racks")),
    Column("Longest partial ms", _of("longest_partial", 1e3)),
    Column("Left partial", _of("left_partial")),
)
_BOUND: Final = Column("Not bound", lambda s: s["pods"] - s["bound"])
DRAIN: Final = (
    Column("Pods/s", _of("pods_per_second"), span=True),
    Column("From first bind", _of("pods_per_second_after_first"), span=True),
    Column("First bind s", _of("first_bind_seconds")),
    *_COST,
    _BOUND,
)
ARRIVAL: Final = (
    Column("p50 ms", _of("p50_ms"), span=True),
    Column("p99 ms", _of("p99_ms"), span=True),
    Column("max ms", _of("max_ms")),
    *_COST,
    _BOUND,
)
RESTART: Final = (
    Column("Bound pods", _of("pods")),
    Column("Seconds to first bind", _of("seconds_to_first_bind"), span=True),
    Column("CPU s to first bind", _of("cpu_to_first_bind"), span=True),
    Column("RSS MB", _of("rss_mb")),
)


def line(sample: Sample) -> str:
    """One measurement as it ends."""
    about = f"{sample['case']} #{sample['round']} {sample['peer']}"
    if "seconds_to_first_bind" in sample:
        return (
            f"{about}: first bind after {sample['seconds_to_first_bind']:.2f} s, "
            f"{sample['cpu_to_first_bind']:.2f} CPU s, {sample['rss_mb']:.0f} MB"
        )
    speed = (
        f"p50 {sample['p50_ms']:.0f} ms, p99 {sample['p99_ms']:.0f} ms"
        if "p50_ms" in sample
        else f"{sample['pods_per_second']:.0f} pods/s"
    )
    gang = (
        f", {sample['nodes_per_gang']:.3f} nodes/gang, {sample['over_racks']} over racks"
        if "nodes_per_gang" in sample
        else ""
    )
    return (
        f"{about}: {speed}, {sample['scheduler_cpu']:.2f} CPU s, {sample['rss_mb']:.0f} MB, "
        f"{sample['bound']}/{sample['pods']} bound{gang}"
    )


def _by_peer(samples: Sequence[Sample], table: Sequence[Column]) -> str:
    by_peer = {
        peer: rounds
        for peer in PEERS
        if (rounds := [sample for sample in samples if sample["peer"] == peer])
    }
    headings = ["Scheduler", "Rounds", *(column.heading for column in table)]
    return rows.table(
        headings,
        [
            [peer, len(rounds), *(column.cell(rounds) for column in table)]
            for peer, rounds in by_peer.items()
        ],
    )


def _case(name: str, samples: Sequence[Sample]) -> str:
    case = CASES[name]
    table = ARRIVAL if case.rate else DRAIN
    about = f"{case.pods:,} pods on {case.nodes:,} nodes, racks of {case.rack}"
    if case.gangs:
        about = f"{len(case.units)} gangs, {about}, at least {case.least_nodes:.3f} nodes per gang"
    if case.rate:
        about += f", {case.rate:g} units per second"
    text = f"**{name}**: {about}.\n\n{_by_peer(samples, table)}"
    return f"{text}\n\n{_by_peer(samples, _SPREAD)}" if case.gangs else text


def _planning_table(samples: Sequence[Sample]) -> str:
    body = [
        (sample["case"], f"{sample['plan_us']:.0f}", f"{sample['assume_us']:.0f}")
        for sample in sorted(samples, key=lambda sample: sample["case"])
    ]
    return rows.table(["Planning alone", "CPU us per pod, plan", "CPU us per pod, assume"], body)


def markdown(results: Results) -> str:
    """Everything between the marks of the page."""
    missing = scheduler_reach.not_measured(results)
    codes = sorted(
        {sample["code"] for part in ("samples", "restarts", "planning") for sample in results[part]}
    )
    machine = results["machine"]
    parts = [
        f"Run {results['run']} on {machine['cores']} cores, Kubernetes {machine['kubernetes']}, "
        f"Python {machine['python']}, code {', '.join(codes)}.",
        rows.markdown(scheduler_reach.report(results)),
    ]
    if missing:
        parts.append(f"Not measured in this run: {'; '.join(missing)}.")
    for name in CASES:
        if samples := [sample for sample in results["samples"] if sample["case"] == name]:
            parts.append(_case(name, samples))
    if results["restarts"]:
        parts.append(f"**restart**\n\n{_by_peer(results['restarts'], RESTART)}")
    if results["planning"]:
        parts.append(_planning_table(results["planning"]))
    return "\n\n".join(parts)
