"""
The results of the tenancy benchmark as text: figures to reach, the table of the page.

    {"at": …, "code": …, "machine": {…}, "samples": [sample …]}

A cell shows the median of the seeds and, in brackets, the least and the largest. What is to be
reached is judged at 110 % demand, by the worst seed; the cost by the median, as CPU time varies.
Samples whose durations are guesses are shown in a table of their own, and judged by nothing.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubenexus.simulate.virtual_time.engine import FIFO, GREEDY, OURS, STRATEGIES
from tests.bench import rows

NAME: Final = "tenancy"
JUDGED: Final = 1.1  # the demand

Sample = dict[str, Any]
Results = dict[str, Any]


def line(sample: Sample) -> str:
    """One run as it ends."""
    far = sample["deviation"]
    return (
        f"{100 * sample['demand']:.0f} % seed {sample['seed']} {_name(sample)}: "
        f"{100 * sample['utilisation']:.1f} % in use, waits p50 {sample['wait_p50']:.0f} s "
        f"p95 {sample['wait_p95']:.0f} s, largest tenth p95 {sample['large_p95']:.0f} s, "
        f"deviation {'none' if far is None else f'{far:.1f} points'}, "
        f"{cost(sample):.0f} us per decision"
    )


def _name(sample: Sample) -> str:
    return (
        f"{sample['strategy']}, durations guessed"
        if is_guessed(sample)
        else str(sample["strategy"])
    )


def is_guessed(sample: Sample) -> bool:
    return bool(sample.get("guessed"))


def exact(samples: Sequence[Sample]) -> list[Sample]:
    """Those in which every job says the truth."""
    return [sample for sample in samples if not is_guessed(sample)]


def cost(sample: Sample) -> float:
    return 1e6 * float(sample["cpu"]) / max(1, int(sample["decisions"]))


def report(results: Results) -> list[rows.Row]:
    pairs = _pairs(results["samples"])
    if not pairs:
        return []
    ahead = [100 * (pair[OURS]["utilisation"] - pair[GREEDY]["utilisation"]) for pair in pairs]
    above = [100 * (pair[OURS]["utilisation"] - pair[FIFO]["utilisation"]) for pair in pairs]
    waits = [pair[OURS]["large_p95"] / max(1.0, pair[GREEDY]["large_p95"]) for pair in pairs]
    far = [pair[OURS]["deviation"] for pair in pairs if pair[OURS]["deviation"] is not None]
    costs = [cost(pair[OURS]) / cost(pair[GREEDY]) for pair in pairs]
    units = [pair[OURS]["cpu"] / pair[GREEDY]["cpu"] for pair in pairs]
    note = f"110 % demand, {len(pairs)} seeds"
    return [
        rows.at_least(
            "utilisation, ours less greedy, points",
            min(ahead),
            -1.0,
            spread=_range(ahead),
            note=note,
        ),
        rows.at_least(
            "utilisation, ours less FIFO, points", min(above), 0.0, spread=_range(above), note=note
        ),
        rows.at_most(
            "p95 wait of the largest tenth of gangs, ours / greedy",
            max(waits),
            0.6,
            spread=_range(waits),
            note=note,
        ),
        _deviation(far, len(pairs)),
        rows.at_most(
            "CPU per decision, ours / plain queue",
            statistics.median(costs),
            2.0,
            spread=_range(costs),
            note=f"{note}; per unit placed: {statistics.median(units):.1f} times",
        ),
    ]


def _deviation(far: Sequence[float], seeds: int) -> rows.Row:
    figure = "largest deviation over an hour, points"
    note = f"110 % demand, {len(far)} of {seeds} seeds have an hour in which all tenants wait"
    measured = max(far, default=None)
    return rows.at_most(
        figure, measured, 5.0, spread=_range(far) if far else "not measured", note=note
    )


def _pairs(samples: Sequence[Sample]) -> list[dict[str, Sample]]:
    """Seed by seed, the strategies side by side."""
    judged = [sample for sample in exact(samples) if sample["demand"] == JUDGED]
    seeds = sorted({sample["seed"] for sample in judged})
    return [
        {sample["strategy"]: sample for sample in judged if sample["seed"] == seed}
        for seed in seeds
    ]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


# --- tables ---


def markdown(results: Results) -> str:
    machine, first = results["machine"], results["samples"][0]
    about = (
        f"Measured {results['at'][:10]} on {machine['cores']} cores, Python {machine['python']}, "
        f"code {results['code']}: {first['gpus']} GPUs, {first['hours']:g} hours of arrivals."
    )
    parts = [about, rows.markdown(report(results)), _side_by_side(exact(results["samples"]))]
    return "\n\n".join([*parts, *_guessed(results["samples"])])


_COLUMNS: Final[tuple[tuple[str, Callable[[Sample], float | None], str], ...]] = (
    ("GPU time in use %", lambda sample: 100 * float(sample["utilisation"]), ".1f"),
    ("Wait p50, s", lambda sample: float(sample["wait_p50"]), ".0f"),
    ("Wait p95, s", lambda sample: float(sample["wait_p95"]), ".0f"),
    ("Largest tenth of gangs p95, s", lambda sample: float(sample["large_p95"]), ".0f"),
    ("Deviation, points", lambda sample: sample["deviation"], ".1f"),
    ("CPU us per decision", cost, ".0f"),
    ("CPU us per unit", lambda sample: 1e6 * float(sample["cpu"]) / int(sample["units"]), ".0f"),
)


def _side_by_side(samples: Sequence[Sample]) -> str:
    body = []
    for demand in sorted({sample["demand"] for sample in samples}):
        for strategy in STRATEGIES:
            seeds = [
                sample
                for sample in samples
                if (sample["demand"], sample["strategy"]) == (demand, strategy)
            ]
            cells = [
                _span([value(sample) for sample in seeds], form) for _, value, form in _COLUMNS
            ]
            body.append([f"{100 * demand:.0f} %", strategy, *cells])
    return rows.table(["Demand", "Strategy", *(name for name, _, _ in _COLUMNS)], body)


_GUESSED: Final[tuple[tuple[str, Callable[[Sample], float | None], str], ...]] = (
    *_COLUMNS[:5],
    ("Starts estimated", lambda sample: float(sample["estimated"]), ".0f"),
    ("Starts delayed", lambda sample: float(sample["delayed"]), ".0f"),
)


def _guessed(samples: Sequence[Sample]) -> list[str]:
    """The same work at the demand that is judged, by what is known of durations."""
    judged = [sample for sample in samples if sample["demand"] == JUDGED]
    kinds = {
        "greedy": [sample for sample in judged if sample["strategy"] == GREEDY],
        "ours, durations exact": [sample for sample in exact(judged) if sample["strategy"] == OURS],
        "ours, durations guessed": [sample for sample in judged if is_guessed(sample)],
    }
    if not kinds["ours, durations guessed"]:
        return []
    body = [
        [name, *(_span([value(sample) for sample in seeds], form) for _, value, form in _GUESSED)]
        for name, seeds in kinds.items()
    ]
    return [rows.table(["110 % demand", *(name for name, _, _ in _GUESSED)], body)]


def _span(values: Sequence[float | None], form: str) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "no such hour"
    middle = format(statistics.median(numbers), form)
    return f"{middle} ({format(min(numbers), form)}-{format(max(numbers), form)})"
