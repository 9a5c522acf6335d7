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
    return [one for one in samples if not is_guessed(one)]


def cost(sample: Sample) -> float:
    return 1e6 * float(sample["cpu"]) / max(1, int(sample["decisions"]))


def report(results: Results) -> list[rows.Row]:
    pairs = _pairs(results["samples"])
    if not pairs:
        return []
    ahead = [100 * (one[OURS]["utilisation"] - one[GREEDY]["utilisation"]) for one in pairs]
    above = [100 * (one[OURS]["utilisation"] - one[FIFO]["utilisation"]) for one in pairs]
    waits = [one[OURS]["large_p95"] / max(1.0, one[GREEDY]["large_p95"]) for one in pairs]
    far = [one[OURS]["deviation"] for one in pairs if one[OURS]["deviation"] is not None]
    costs = [cost(one[OURS]) / cost(one[GREEDY]) for one in pairs]
    units = [one[OURS]["cpu"] / one[GREEDY]["cpu"] for one in pairs]
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
    judged = [one for one in exact(samples) if one["demand"] == JUDGED]
    seeds = sorted({one["seed"] for one in judged})
    return [{one["strategy"]: one for one in judged if one["seed"] == seed} for seed in seeds]


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
    ("GPU time in use %", lambda one: 100 * float(one["utilisation"]), ".1f"),
    ("Wait p50, s", lambda one: float(one["wait_p50"]), ".0f"),
    ("Wait p95, s", lambda one: float(one["wait_p95"]), ".0f"),
    ("Largest tenth of gangs p95, s", lambda one: float(one["large_p95"]), ".0f"),
    ("Deviation, points", lambda one: one["deviation"], ".1f"),
    ("CPU us per decision", cost, ".0f"),
    ("CPU us per unit", lambda one: 1e6 * float(one["cpu"]) / int(one["units"]), ".0f"),
)


def _side_by_side(samples: Sequence[Sample]) -> str:
    body = []
    for demand in sorted({one["demand"] for one in samples}):
        for strategy in STRATEGIES:
            mine = [
                one for one in samples if (one["demand"], one["strategy"]) == (demand, strategy)
            ]
            cells = [_span([value(one) for one in mine], form) for _, value, form in _COLUMNS]
            body.append([f"{100 * demand:.0f} %", strategy, *cells])
    return rows.table(["Demand", "Strategy", *(name for name, _, _ in _COLUMNS)], body)


_GUESSED: Final[tuple[tuple[str, Callable[[Sample], float | None], str], ...]] = (
    *_COLUMNS[:5],
    ("Starts estimated", lambda one: float(one["estimated"]), ".0f"),
    ("Starts delayed", lambda one: float(one["delayed"]), ".0f"),
)


def _guessed(samples: Sequence[Sample]) -> list[str]:
    """The same work at the demand that is judged, by what is known of durations."""
    judged = [one for one in samples if one["demand"] == JUDGED]
    kinds = {
        "greedy": [one for one in judged if one["strategy"] == GREEDY],
        "ours, durations exact": [one for one in exact(judged) if one["strategy"] == OURS],
        "ours, durations guessed": [one for one in judged if is_guessed(one)],
    }
    if not kinds["ours, durations guessed"]:
        return []
    body = [
        [name, *(_span([value(one) for one in mine], form) for _, value, form in _GUESSED)]
        for name, mine in kinds.items()
    ]
    return [rows.table(["110 % demand", *(name for name, _, _ in _GUESSED)], body)]


def _span(found: Sequence[float | None], form: str) -> str:
    known = [one for one in found if one is not None]
    if not known:
        return "no such hour"
    middle = format(statistics.median(known), form)
    return f"{middle} ({format(min(known), form)}-{format(max(known), form)})"
