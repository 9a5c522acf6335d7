"""
The results of the hardware benchmark as text: figures to reach, and the tables of the page.

    {"planning": [sample …], "trace": [sample …],
     "about": {part: {"at": …, "code": …, "machine": {…}}}}

Each part has the code that it was measured on: one may be older than the other. A cell shows the
median of the rounds or seeds and, in brackets, the least and the largest.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.bench import hardware_planning, rows
from tests.bench.hardware_planning import GANGS, PLAIN, REACH, Case
from tests.bench.hardware_replay import OURS, POLICIES

NAME: Final = "hardware"
LARGE: Final = 8  # GPUs of the largest tasks

Sample = dict[str, Any]
Results = dict[str, Any]


def line(sample: Sample) -> str:
    """One measurement as it ends."""
    if "policy" in sample:
        return (
            f"{sample['list']} seed {sample['seed']} {sample['policy']}: "
            f"{100 * sample['rate']:.2f} % of GPUs in use, {100 * sample['rate_at_all']:.2f} % "
            "when as many were requested as there are"
        )
    case = Case(sample["nodes"], sample["gang"], sample["kind"])
    return (
        f"{case.about}, {case.kind}: plan {sample['plan_us']:.0f} us per pod, "
        f"assume {sample['assume_us']:.0f} us, first plan {sample['first_ms']:.0f} ms"
    )


# --- figures to reach ---


def report(results: Results) -> list[rows.Row]:
    return [*_replay_rows(results), *_planning_rows(results)]


def _replay_rows(results: Results) -> list[rows.Row]:
    figures = []
    for name in _lists(results):
        leads = _leads([sample for sample in results["trace"] if sample["list"] == name])
        figures.append(
            rows.at_least(
                f"{name}: GPUs in use at the end, ours less the best other, points",
                min(leads),
                0.0,
                spread=f"{min(leads):.2f} to {max(leads):.2f}",
                note=f"the least of {len(leads)} seeds",
            )
        )
    return figures


def _leads(samples: Sequence[Sample]) -> list[float]:
    """Seed by seed, percentage points between ours and the best of the others."""
    leads = []
    for seed in sorted({sample["seed"] for sample in samples}):
        rates = {sample["policy"]: sample["rate"] for sample in samples if sample["seed"] == seed}
        others = [rate for policy, rate in rates.items() if policy != OURS]
        if OURS in rates and others:
            leads.append(100 * (rates[OURS] - max(others)))
    return leads


def _planning_rows(results: Results) -> list[rows.Row]:
    samples, figures = results.get("planning", []), []
    for case in _cases(samples):
        if case.kind == PLAIN:
            continue
        ratios = hardware_planning.ratios(samples, case)
        figures.append(
            rows.at_most(
                f"{case.about}: planning with {case.kind} / plain",
                statistics.median(ratios),
                REACH,
                spread=f"{min(ratios):.2f} to {max(ratios):.2f}",
                note=f"{len(ratios)} rounds",
            )
        )
    return figures


def _lists(results: Results) -> list[str]:
    return list(dict.fromkeys(sample["list"] for sample in results.get("trace", [])))


def _cases(samples: Sequence[Sample]) -> list[Case]:
    measured = {(sample["nodes"], sample["gang"], sample["kind"]) for sample in samples}
    kinds = (PLAIN, hardware_planning.NUMA, hardware_planning.FABRIC)
    return [
        Case(nodes, gang, kind)
        for nodes in sorted({nodes for nodes, _, _ in measured})
        for gang in GANGS
        for kind in kinds
        if (nodes, gang, kind) in measured
    ]


# --- tables ---


def markdown(results: Results, part: str) -> str:
    """The text between the marks `hardware-PART` of the page."""
    stamp = results["about"][part]
    machine = stamp["machine"]
    about = (
        f"Measured {stamp['at'][:10]} on {machine['cores']} cores, Python {machine['python']}, "
        f"code {stamp['code']}."
    )
    if part == "trace":
        return "\n\n".join([about, rows.markdown(_replay_rows(results)), _replay_table(results)])
    return "\n\n".join([about, rows.markdown(_planning_rows(results)), _planning_table(results)])


def _replay_table(results: Results) -> str:
    body = []
    for name in _lists(results):
        for policy in POLICIES:
            samples = [
                sample
                for sample in results["trace"]
                if (sample["list"], sample["policy"]) == (name, policy)
            ]
            if samples:
                body.append(
                    (
                        name,
                        policy,
                        _percent(samples, lambda sample: sample["rate"]),
                        _percent(samples, lambda sample: sample["rate_at_all"]),
                        _percent(samples, _large_placed),
                    )
                )
    return rows.table(
        [
            "Tasks",
            "Policy",
            "GPUs in use at the end %",
            "when 100 % were asked for %",
            f"{LARGE}-GPU tasks placed %",
        ],
        body,
    )


def _large_placed(sample: Sample) -> float:
    for gpus, tasks, dropped in sample["dropped"]:
        if gpus == LARGE:
            return 1 - int(dropped) / int(tasks)
    return 1.0


def _planning_table(results: Results) -> str:
    samples = results.get("planning", [])
    body = []
    for case in _cases(samples):
        rounds = [
            sample
            for sample in samples
            if (sample["nodes"], sample["gang"], sample["kind"])
            == (case.nodes, case.gang, case.kind)
        ]
        cells = (_span([sample[name] for sample in rounds], ".0f") for name in _COLUMNS)
        body.append((case.about, case.kind, *cells))
    return rows.table(
        ["Case", "Kind", "Plan, CPU us per pod", "Assume, CPU us per pod", "First plan, CPU ms"],
        body,
    )


_COLUMNS: Final = ("plan_us", "assume_us", "first_ms")


def _percent(samples: Sequence[Sample], value: Callable[[Sample], float]) -> str:
    return _span([100 * value(sample) for sample in samples], ".2f")


def _span(values: Sequence[float], form: str) -> str:
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)}-{format(max(values), form)})"


def text(results: Results) -> str:
    """Everything that was measured, for the screen."""
    parts = (part for part in ("trace", "planning") if results.get(part))
    return "\n".join(f"\n{markdown(results, part)}" for part in parts)
