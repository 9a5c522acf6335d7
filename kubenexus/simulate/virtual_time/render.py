"""
The report of a simulation in virtual time as text of 100 columns, and as JSON.

    cluster and jobs · a row for each tenant · a row for each strategy · the timeline

Text shows times as durations from the beginning; JSON has seconds, and null for "never".
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kubenexus.simulate import render
from kubenexus.simulate.virtual_time import wait_statistics
from kubenexus.simulate.virtual_time.run import TimedReport
from kubenexus.simulate.virtual_time.timeline import TimelineEntry
from policies import duration
from policies.text import counted

_NEVER: Final = "never"
_NO_TENANT: Final = "(none)"  # pods that admission gave no tenant


def as_json(
    report: TimedReport, *, timeline: bool = False, before: TimedReport | None = None
) -> str:
    """One JSON document; keys stay, and new ones may come."""
    return json.dumps(
        {
            **_body(report, timeline),
            **({} if before is None else {"without": _body(before, timeline)}),
        },
        indent=2,
        ensure_ascii=False,
    )


def _body(report: TimedReport, timeline: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "cluster": asdict(report.cluster),
        "measure": report.measure,
        "units": report.units,
        "until": report.until,
        "tenants": [_plain(asdict(row)) for row in report.tenants],
        "strategies": {strategy: _plain(asdict(row)) for strategy, row in report.strategies},
        "notes": list(report.notes),
    }
    if timeline:
        body["timeline"] = [
            {
                "at": entry.at,
                "kind": str(entry.kind),
                "unit": str(entry.key),
                "tenant": entry.tenant,
                "text": entry.text,
            }
            for entry in report.timeline
        ]
    return body


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {
        key: None if isinstance(value, float) and math.isinf(value) else value
        for key, value in row.items()
    }


def as_text(
    report: TimedReport, out: Console, *, timeline: bool = False, before: TimedReport | None = None
) -> None:
    """`before`: the same jobs without the policies of --what-if."""
    parts: list[Text | Table] = [Text(render.cluster_line(report.cluster), style="bold")]
    parts += [Text(_work(report)), *(Text(note) for note in report.notes)]
    parts += [Text(""), _tenants(report)]
    if len(report.strategies) > 1:
        parts += [Text(""), _strategies(report)]
    if before is not None:
        parts += [Text(""), Text("Without the policies of --what-if:"), _tenants(before)]
        parts += [Text(""), *(Text(line) for line in differences(before, report))]
    if timeline:
        parts += [Text(""), _timeline(report.timeline)]
    render.printed(out, parts)


def _work(report: TimedReport) -> str:
    known = report.tenants[:-1]
    whose = counted(len(known), "tenant")
    until = _time(report.until)
    return f"{counted(report.units, 'unit')} of {whose}; time in use is counted for {until}"


def _tenants(report: TimedReport) -> Table:
    head = ("TENANT", "UNITS", "WAIT P50", "P95", "LONGEST", f"{report.measure} TIME", "SHARE")
    rows = [(*head, "FAIR SHARE", "PREEMPTED", "ESTIMATED")]
    rows += [
        (
            row.name or _NO_TENANT,
            _but(row.units, row.never, "never"),
            _about(row.wait_p50),
            _about(row.wait_p95),
            _about(row.wait_most),
            _hours(row.time, report.measure),
            f"{100 * row.share:.0f} %",
            f"{100 * row.fair_share:.0f} %",
            _but(row.preempted, _hours(row.lost, report.measure), "lost"),
            _but(row.estimated, row.delayed, "delayed"),
        )
        for row in report.tenants
    ]
    return _table(rows)


def _strategies(report: TimedReport) -> Table:
    rows = [
        (
            "STRATEGY",
            f"{report.measure}S IN USE",
            "WAIT P50",
            "P95",
            "LARGEST GANGS P95",
            "DEVIATION",
            "NEVER",
            "PREEMPTED",
        )
    ]
    rows += [(strategy, *_strategy(statistics)) for strategy, statistics in report.strategies]
    return _table(rows)


def _strategy(
    statistics: wait_statistics.ClusterStatistics,
) -> tuple[str, str, str, str, str, str, str]:
    deviation = statistics.deviation
    return (
        f"{100 * statistics.in_use:.1f} %",
        _about(statistics.wait_p50),
        _about(statistics.wait_p95),
        "-" if statistics.large_p95 is None else _about(statistics.large_p95),
        "-" if deviation is None else f"{deviation:.1f} points",
        str(statistics.never),
        str(statistics.preempted),
    )


def differences(before: TimedReport, after: TimedReport) -> list[str]:
    """A sentence for each tenant: whether it waits longer or shorter with --what-if."""
    known = {row.name: row for row in before.tenants[:-1]}
    lines = []
    for row in after.tenants[:-1]:
        old = known.get(row.name)
        if old is None:
            continue
        lines.append(
            f"{row.name or _NO_TENANT} {_change(old, row)}: p95 "
            f"{_about(old.wait_p95)} before, {_about(row.wait_p95)} with them; "
            f"share {100 * old.share:.0f} % before, {100 * row.share:.0f} % with them"
        )
    return lines


def _change(
    before: wait_statistics.TenantStatistics, after: wait_statistics.TenantStatistics
) -> str:
    """To the minute."""
    more = after.wait_p95 - before.wait_p95
    if before.wait_p95 == after.wait_p95 or abs(more) < 60:
        return "waits as long"
    return "waits longer" if more > 0 else "waits shorter"


def _timeline(timeline: Sequence[TimelineEntry]) -> Table:
    rows = [("AT", "EVENT", "UNIT", "")]
    rows += [(_time(entry.at), str(entry.kind), str(entry.key), entry.text) for entry in timeline]
    return _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*(Text(cell, style="" if number else "dim") for cell in row))
    return table


def _time(seconds: float) -> str:
    if math.isinf(seconds):
        return _NEVER
    return duration.show(seconds) if seconds >= 1 else "0s"


def _about(seconds: float) -> str:
    """To the minute from ten minutes on."""
    if seconds < 600 or math.isinf(seconds):
        return _time(seconds)
    return duration.show(60 * round(seconds / 60))


def _but(count: int, some: int | str, note: str) -> str:
    return f"{count}, {some} {note}" if some and count else str(count)


def _hours(seconds: float, measure: str) -> str:
    whole = seconds if measure == "GPU" else seconds / 1000
    return f"{whole / 3600:.1f}h"
