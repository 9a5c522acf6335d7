"""
The tenancy benchmark as an SVG: bars for each demand and way, in two panels side by side.

A bar is the median over the seeds, the line on it their spread; durations are exact. Written by hand so that the
documentation needs no plotting library; the same results give the same bytes.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from kubenexus.simulate.virtual_time.engine import WAYS
from tests.bench import tenancy_report

Sample = dict[str, Any]

WIDTH, HEIGHT, PANEL = 820, 340, 400
TOP, BOTTOM = 60, 280
BAR: Final = 28
COLOURS: Final = {"fifo": "#8a6d3b", "greedy": "#c0392b", "ours": "#0b7a75"}
PANELS: Final = (
    ("large_p95", 1 / 60, "p95 wait of the largest tenth of gangs, minutes"),
    ("deviation", 1.0, "largest deviation from the weights over an hour, points"),
)


def svg(every: Sequence[Sample]) -> str:
    samples = tenancy_report.exact(every)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="12"><title>Three tenants on one cluster</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for number, (name, scale, title) in enumerate(PANELS):
        parts += _panel(samples, name, scale, title, left=20 + number * PANEL)
    for place, way in enumerate(WAYS):
        x = 20 + place * 90
        parts.append(f'<rect x="{x}" y="318" width="12" height="12" fill="{COLOURS[way]}"/>')
        parts.append(f'<text x="{x + 18}" y="328" fill="#444444">{way}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    samples: Sequence[Sample], name: str, scale: float, title: str, *, left: int
) -> list[str]:
    seen = [scale * one[name] for one in samples if one[name] is not None]
    most = max(seen, default=1.0) or 1.0
    parts = [
        f'<text x="{left}" y="30" fill="#222222">{title}</text>',
        f'<line x1="{left}" y1="{BOTTOM}" x2="{left + PANEL - 30}" y2="{BOTTOM}" stroke="#999"/>',
    ]
    for group, demand in enumerate(sorted({one["demand"] for one in samples})):
        x = left + 10 + group * (len(WAYS) * BAR + 36)
        label = x + len(WAYS) * BAR / 2
        parts.append(
            f'<text x="{label:.0f}" y="{BOTTOM + 18}" text-anchor="middle" fill="#444444">'
            f"{100 * demand:.0f} % demand</text>"
        )
        for place, way in enumerate(WAYS):
            mine = [
                scale * one[name]
                for one in samples
                if (one["demand"], one["way"]) == (demand, way) and one[name] is not None
            ]
            if mine:
                parts += _bar(mine, most, x + place * BAR, COLOURS[way])
    return parts


def _bar(found: Sequence[float], most: float, x: int, colour: str) -> list[str]:
    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / most

    middle = statistics.median(found)
    centre = x + BAR / 2 - 2
    return [
        f'<rect x="{x}" y="{y(middle):.1f}" width="{BAR - 4}" height="{BOTTOM - y(middle):.1f}" '
        f'fill="{colour}"/>',
        f'<line x1="{centre:.0f}" y1="{y(min(found)):.1f}" x2="{centre:.0f}" '
        f'y2="{y(max(found)):.1f}" stroke="#222222"/>',
        f'<text x="{centre:.0f}" y="{y(max(found)) - 4:.1f}" text-anchor="middle" '
        f'fill="#222222">{middle:.3g}</text>',
    ]
