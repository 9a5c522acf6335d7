"""Small made-up measurements of the benchmarks that keep raw ones."""

from typing import Any

from kubenexus.simulate.virtual_time.engine import FIFO, GREEDY, OURS, STRATEGIES
from tests.bench import scheduler_results
from tests.bench.hardware_planning import FABRIC, PLAIN
from tests.bench.hardware_replay import OURS as OUR_POLICY

_COSTS = {"assume_us": 5.0, "first_ms": 7.0}
_ABOUT = {"at": "2026-01-02T00:00:00+00:00", "code": "c", "machine": {"cores": 2, "python": "3"}}


def hardware() -> dict[str, Any]:
    """Ours leads by one point with one seed and is behind by two with the other."""

    def replayed(policy: str, seed: int, rate: float) -> dict[str, Any]:
        return {
            "list": "default",
            "policy": policy,
            "seed": seed,
            "rate": rate,
            "rate_at_all": rate - 0.01,
            "dropped": [[1, 10, 2], [8, 4, 1]],
            "curve": [[0.0, 0.0], [0.8, 0.8], [1.3, rate]],
        }

    rates = {OUR_POLICY: (0.99, 0.95), "random": (0.98, 0.97), "best-fit": (0.9, 0.9)}
    planned = [
        {"nodes": 1000, "gang": 4, "kind": kind, "round": n, "plan_us": cost} | _COSTS
        for kind, costs in ((PLAIN, (10.0, 20.0, 10.0)), (FABRIC, (25.0, 70.0, 29.0)))
        for n, cost in enumerate(costs)
    ]
    return {
        "about": {"trace": _ABOUT, "planning": _ABOUT},
        "trace": [
            replayed(policy, seed, rate)
            for policy, both in rates.items()
            for seed, rate in enumerate(both)
        ],
        "planning": planned,
    }


def scheduler() -> dict[str, Any]:
    """One case, one round of both schedulers."""
    both = {
        "case": "singles-1200@1000",
        "round": 1,
        "pods": 1200,
        "bound": 1200,
        "code": "c",
        "rss_mb": 100.0,
        "events": 1200,
    }
    samples = [
        {**both, "peer": "ours", "pods_per_second": 300.0, "scheduler_cpu": 3.0},
        {**both, "peer": "stock", "pods_per_second": 200.0, "scheduler_cpu": 4.0},
    ]
    return {**scheduler_results.empty("r"), "samples": samples}


def tenancy() -> dict[str, Any]:
    """One seed, and no hour in which all tenants wait."""
    waits = {FIFO: 900.0, GREEDY: 600.0, OURS: 120.0}
    samples = [
        {
            "demand": 1.1,
            "seed": 1,
            "strategy": strategy,
            "hours": 1.0,
            "gpus": 8,
            "utilisation": 0.9,
            "wait_p50": 1.0,
            "wait_p95": 2.0,
            "large_p95": waits[strategy],
            "deviation": None,
            "units": 10,
            "cpu": 0.5,
            "decisions": 20,
        }
        for strategy in STRATEGIES
    ]
    return {**_ABOUT, "samples": samples}


def steps() -> list[dict[str, Any]]:
    return [
        {"situation": "s", "nodes": nodes, "longest": 0.01, "total": 1.0, "forks": 0.0, "bound": 1}
        for nodes in (1000, 10_000)
    ]
