"""
`policy bench`: the cost of policies per request, each alone and all together.

    objects x rounds --evaluate, timed--> nanoseconds --sort--> p50, p95, p99
                                                                   |
                                                  saved baseline --+--> ratios

A policy alone keeps the tables of the whole set, so that its decisions do not change. Requests run
one after another on one thread, without a server. The clock is passed in. A busy machine affects
p99 first, so ratios compare p50.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kubenexus.policy.errors import UsageError
from policies.engine.evaluate import evaluate
from policies.engine.policyset import PolicySet
from policies.engine.request import AdmissionRequest

ALL: Final = "all policies"
_FORMAT: Final = 1
_QUANTILES: Final = (50, 95, 99)

SAMPLE: Final[Mapping[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "worker-0",
        "namespace": "team",
        "labels": {"app.kubernetes.io/name": "worker"},
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "u", "controller": True}
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/worker:1",
                "resources": {
                    "requests": {"cpu": "8", "memory": "64Gi"},
                    "limits": {"memory": "64Gi", "nvidia.com/gpu": 1},
                },
            }
        ]
    },
}
"""The object where none is given: a pod of a Job, with a GPU."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of one request."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Policy to cost, and the cost of them all; `engine` is what evaluated."""

    engine: str
    requests: int
    whole: Cost
    policies: Mapping[str, Cost]


def run(
    admissions: Sequence[AdmissionRequest],
    policies: PolicySet,
    *,
    rounds: int,
    engine: str,
    now: datetime,
    clock: Callable[[], int],
) -> BenchReport:
    """Time every policy; `clock` gives nanoseconds."""

    def cost(chosen: PolicySet) -> Cost:
        for admission in admissions:  # the first time is not like the others
            evaluate(admission, chosen, now=now)
        times: list[int] = []
        for _ in range(rounds):
            for admission in admissions:
                start = clock()
                evaluate(admission, chosen, now=now)
                times.append(clock() - start)
        return _cost(times)

    alone = {
        policy.name: cost(replace(PolicySet.of([policy]), tables=policies.tables))
        for policy in policies.policies
    }
    return BenchReport(engine, rounds * len(admissions), cost(policies), alone)


def _cost(times: list[int]) -> Cost:
    ordered = sorted(times)
    p50, p95, p99 = (
        round(ordered[max(0, math.ceil(len(ordered) * q / 100) - 1)] / 1000, 3) for q in _QUANTILES
    )
    return Cost(p50, p95, p99)


def as_json(report: BenchReport, baseline: BenchReport | None = None) -> str:
    """What `--save` writes and `--compare` reads; with a baseline, the ratios of p50 too."""
    body = {"format": _FORMAT, **asdict(report)}
    if baseline is not None:
        body["ratios"] = {
            name: _ratio(cost, _saved(baseline, name))
            for name, cost in [*sorted(report.policies.items()), (ALL, report.whole)]
        }
    return json.dumps(body, indent=2) + "\n"


def read(path: Path) -> BenchReport:
    """A saved baseline."""
    advice = "make one with kubenexus policy bench --save"
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise UsageError(f"{path}: cannot be read: {exc.strerror}; {advice}") from exc
    except ValueError as exc:
        raise UsageError(f"{path}: is no JSON; {advice}") from exc
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise UsageError(f"{path}: is no baseline of format {_FORMAT}; {advice}")
    try:
        policies = {name: Cost(**row) for name, row in body["policies"].items()}
        whole = Cost(**body["whole"])
        return BenchReport(str(body["engine"]), int(body["requests"]), whole, policies)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise UsageError(f"{path}: the baseline is damaged; {advice}") from exc


def as_text(report: BenchReport, baseline: BenchReport | None = None) -> str:
    """A table; with a baseline, each p50 as a multiple of the saved one."""
    rows = [*sorted(report.policies.items(), key=lambda row: (-row[1].p50, row[0]))]
    rows.append((ALL, report.whole))
    width = min(52, max(len(name) for name, _ in rows))
    head = f"{'POLICY':<{width}}  {'P50':>9}  {'P95':>9}  {'P99':>9}"
    lines = [head + ("  P50 AGAINST BASELINE" if baseline else "")]
    for name, cost in rows:
        shown = name if len(name) <= width else f"{name[: width - 1]}…"
        line = f"{shown:<{width}}  {_time(cost.p50)}  {_time(cost.p95)}  {_time(cost.p99)}"
        lines.append(
            line + (f"  {_times(_ratio(cost, _saved(baseline, name)))}" if baseline else "")
        )
    lines += [f"{'gone':>{width}}: {name}" for name in _gone(report, baseline)]
    lines.append(f"{report.requests} requests per row, {report.engine}")
    if baseline and baseline.engine != report.engine:
        lines.append(f"note: the baseline was measured with {baseline.engine}")
    return "\n".join(lines)


def _saved(baseline: BenchReport, name: str) -> Cost | None:
    return baseline.whole if name == ALL else baseline.policies.get(name)


def _gone(report: BenchReport, baseline: BenchReport | None) -> Iterator[str]:
    if baseline:
        yield from sorted(set(baseline.policies) - set(report.policies))


def _ratio(now: Cost, before: Cost | None) -> float | None:
    """How many times the saved p50; None where nothing was saved."""
    return round(now.p50 / before.p50, 2) if before is not None and before.p50 else None


def _times(ratio: float | None) -> str:
    return "new" if ratio is None else f"{ratio:.2f}x"


def _time(micros: float) -> str:
    return f"{micros:7.1f}us" if micros < 10_000 else f"{micros / 1000:7.1f}ms"
