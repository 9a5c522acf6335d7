"""The figures of the webhook benchmark, from the loads of every arm."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench import rows
from tests.bench.wrk import Load

Loads = Sequence[Load]

# arm -> the least share of creates/s that it must leave, by dry run
SHARES: Final = {"vap": 0.0, "validate-1": 0.45, "validate-2": 0.45, "both-1": 0.33}


def report(
    handler: Loads, dry_run: Mapping[str, Loads], real: Mapping[str, Loads]
) -> list[rows.Row]:
    figures = [
        rows.at_least(
            "handler, one worker: reviews/s",
            _median(handler, "per_second"),
            1000,
            spread=_spread(handler, "per_second"),
            note=note(handler),
        ),
        rows.at_most(
            "handler, one worker, 8 connections: p99 ms",
            _median(handler, "p99"),
            10,
            spread=_spread(handler, "p99"),
        ),
    ]
    for arm, share in SHARES.items():
        figures += [
            _share(arm, dry_run, "dry run", share),
            _share(arm, real, "for real", 0.0),
        ]
    return [
        *figures,
        rows.at_most(
            "validate-1: CPU ms per review",
            _median(dry_run["validate-1"], "cpu_ms"),
            2.0,
            spread=_spread(dry_run["validate-1"], "cpu_ms"),
        ),
        rows.at_most(
            "RSS of the largest worker, MB",
            max(load.rss_mb for load in [*dry_run["validate-1"], *dry_run["both-1"]]),
            120,
            spread=_spread(dry_run["both-1"], "rss_mb"),
        ),
    ]


def _share(arm: str, loads: Mapping[str, Loads], how: str, bound: float) -> rows.Row:
    return rows.at_least(
        f"{arm}: creates/s as a share of none, {how}",
        _median(loads[arm], "per_second") / _median(loads["none"], "per_second"),
        bound,
        spread=f"{_spread(loads[arm], 'per_second')} creates/s",
        note=note(loads[arm]),
    )


def note(loads: Loads) -> str:
    return (
        f"{_median(loads, 'per_second'):.0f}/s, p50 {_median(loads, 'p50'):.1f} ms, "
        f"p99 {_median(loads, 'p99'):.1f} ms, {sum(load.bad for load in loads)} bad"
    )


def _median(loads: Loads, field: str) -> float:
    return float(statistics.median(getattr(load, field) for load in loads))


def _spread(loads: Loads, field: str) -> str:
    values = [getattr(load, field) for load in loads]
    return f"{min(values):.3g} to {max(values):.3g}"
