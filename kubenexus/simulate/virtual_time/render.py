"""
A report of virtual time as people read it in a terminal of 100 columns, and as programs read it.

    what arrives where · a row for each tenant · a row for each way of deciding · what happened when

Times are told as durations from the beginning; JSON has seconds, and null for what never comes.
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

_NEVER: Final = "never"
_NOBODY: Final = "(none)"  # pods that admission gave no tenant


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
                "at": one.at,
                "what": str(one.what),
                "unit": str(one.key),
                "tenant": one.tenant,
                "text": one.text,
            }
            for one in report.happened
        ]
    return body


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity."""
    return {
        key: None if isinstance(value, float) and math.isinf(value) else value
        for key, value in row.items()
    }


def as_text(
    report: TimedReport, out: Console, *, timeline: bool = False, before: TimedReport | None = None
) -> None:
    """`before`: the same work without the policies that were tried."""
    parts: list[Text | Table] = [Text(render.cluster_line(report.cluster), style="bold")]
    parts += [Text(_work(report)), *(Text(note) for note in report.notes)]
    parts += [Text(""), _tenants(report)]
    if len(report.strategies) > 1:
        parts += [Text(""), _strategies(report)]
    if before is not None:
        parts += [Text(""), Text("Without the policies that were tried:"), _tenants(before)]
        parts += [Text(""), *(Text(line) for line in differences(before, report))]
    if timeline:
        parts += [Text(""), _timeline(report.happened)]
    render.printed(out, parts)


def _work(report: TimedReport) -> str:
    known = report.tenants[:-1]
    whose = render.many(len(known), "tenant")
    until = _time(report.until)
    return f"{render.many(report.units, 'unit')} of {whose}; time in use is counted for {until}"


def _tenants(report: TimedReport) -> Table:
    head = ("TENANT", "UNITS", "WAIT P50", "P95", "LONGEST", f"{report.measure} TIME", "SHARE")
    rows = [(*head, "DUE", "PREEMPTED", "PROMISED")]
    rows += [
        (
            row.name or _NOBODY,
            _but(row.units, row.never, "never"),
            _about(row.wait_p50),
            _about(row.wait_p95),
            _about(row.wait_most),
            _hours(row.time, report.measure),
            f"{100 * row.share:.0f} %",
            f"{100 * row.due:.0f} %",
            _but(row.preempted, _hours(row.lost, report.measure), "lost"),
            _but(row.promised, row.moved, "moved"),
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
    rows += [(strategy, *_strategy(found)) for strategy, found in report.strategies]
    return _table(rows)


def _strategy(found: wait_statistics.ClusterStatistics) -> tuple[str, str, str, str, str, str, str]:
    far = found.deviation
    return (
        f"{100 * found.in_use:.1f} %",
        _about(found.wait_p50),
        _about(found.wait_p95),
        "-" if found.large_p95 is None else _about(found.large_p95),
        "-" if far is None else f"{far:.1f} points",
        str(found.never),
        str(found.preempted),
    )


def differences(before: TimedReport, after: TimedReport) -> list[str]:
    """Who waits longer, and who shorter, with the policies that were tried; a sentence each."""
    known = {row.name: row for row in before.tenants[:-1]}
    lines = []
    for row in after.tenants[:-1]:
        old = known.get(row.name)
        if old is None:
            continue
        lines.append(
            f"{row.name or _NOBODY} {_change(old, row)}: p95 "
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


def _timeline(happened: Sequence[TimelineEntry]) -> Table:
    rows = [("AT", "WHAT", "UNIT", "")]
    rows += [(_time(one.at), str(one.what), str(one.key), one.text) for one in happened]
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
    """To the minute from ten minutes on: nobody compares the seconds of an hour."""
    if seconds < 600 or math.isinf(seconds):
        return _time(seconds)
    return duration.show(60 * round(seconds / 60))


def _but(count: int, some: int | str, what: str) -> str:
    return f"{count}, {some} {what}" if some and count else str(count)


def _hours(seconds: float, measure: str) -> str:
    whole = seconds if measure == "GPU" else seconds / 1000
    return f"{whole / 3600:.1f}h"
