"""
The curves of the replays as an SVG: GPUs asked for, from left to right; GPUs in use, upwards.

A line is the median over the seeds, the shade around it their spread. Written by hand so that the
documentation needs no plotting library; the same results give the same bytes.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from tests.bench.hardware_replay import POLICIES

Sample = dict[str, Any]
Point = tuple[float, float]

WIDTH, HEIGHT = 760, 420
LEFT, TOP, RIGHT, BOTTOM = 60, 24, 620, 360
ASKED: Final = (80, 130)  # percent, from edge to edge
USED: Final = (80, 100)
STEP: Final = 1
COLOURS: Final = {"ours": "#0b7a75", "random": "#8a6d3b", "best-fit": "#c0392b"}
_OTHER: Final = "#5b5bd6"


def svg(samples: Sequence[Sample], title: str) -> str:
    lines = [_curve(samples, policy) for policy in POLICIES]
    drawn = [(policy, curve) for policy, curve in zip(POLICIES, lines, strict=True) if curve]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{title}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_grid(),
        *(part for policy, curve in drawn for part in _drawn(policy, curve)),
        *_names(drawn),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _curve(samples: Sequence[Sample], policy: str) -> list[tuple[int, float, float, float]]:
    """(asked, median, least, largest) in percent, at every step of what is asked for."""
    mine = [one["curve"] for one in samples if one["policy"] == policy]
    found = []
    for asked in range(ASKED[0], ASKED[1] + 1, STEP) if mine else ():
        used = [100 * _at(curve, asked / 100) for curve in mine]
        found.append((asked, statistics.median(used), min(used), max(used)))
    return found


def _at(curve: Sequence[Sequence[float]], asked: float) -> float:
    """Between two points of the curve, in proportion."""
    before = curve[0]
    for point in curve:
        if point[0] >= asked:
            span = point[0] - before[0]
            part = (asked - before[0]) / span if span else 1.0
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


def _place(asked: float, used: float) -> str:
    x = LEFT + (asked - ASKED[0]) / (ASKED[1] - ASKED[0]) * (RIGHT - LEFT)
    y = BOTTOM - (used - USED[0]) / (USED[1] - USED[0]) * (BOTTOM - TOP)
    return f"{x:.1f},{y:.1f}"


def _drawn(policy: str, curve: Sequence[tuple[int, float, float, float]]) -> list[str]:
    colour = COLOURS.get(policy, _OTHER)
    shade = [_place(a, high) for a, _, _, high in curve]
    shade += [_place(a, low) for a, _, low, _ in reversed(curve)]
    line = " ".join(_place(a, middle) for a, middle, _, _ in curve)
    return [
        f'<polygon points="{" ".join(shade)}" fill="{colour}" fill-opacity="0.15"/>',
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>',
    ]


def _names(drawn: Sequence[tuple[str, Sequence[tuple[int, float, float, float]]]]) -> list[str]:
    """Beside the ends of the lines, far enough apart to be read."""
    found, last = [], -1e9
    for policy, curve in sorted(drawn, key=lambda one: -one[1][-1][1]):
        asked, used = curve[-1][:2]
        y = max(float(_place(asked, used).split(",")[1]) + 4, last + 16)
        last = y
        found.append(
            f'<text x="{RIGHT + 8}" y="{y:.1f}" fill="{COLOURS.get(policy, _OTHER)}">'
            f"{policy} {used:.1f} %</text>"
        )
    return found


def _grid() -> list[str]:
    found = []
    for used in range(USED[0], USED[1] + 1, 5):
        x, y = _place(ASKED[0], used).split(",")
        found.append(
            f'<line x1="{x}" y1="{y}" x2="{RIGHT}" y2="{y}" stroke="#dddddd"/>'
            f'<text x="{LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end" fill="#444444">'
            f"{used} %</text>"
        )
    for asked in range(ASKED[0], ASKED[1] + 1, 10):
        x, y = _place(asked, USED[0]).split(",")
        found.append(
            f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{y}" stroke="#eeeeee"/>'
            f'<text x="{x}" y="{BOTTOM + 20}" text-anchor="middle" fill="#444444">{asked} %</text>'
        )
    middle = (LEFT + RIGHT) / 2
    found.append(
        f'<text x="{middle:.0f}" y="{BOTTOM + 44}" text-anchor="middle" fill="#444444">'
        "GPUs asked for so far, of all GPUs</text>"
        f'<text x="{LEFT - 50}" y="{TOP - 8}" fill="#444444">GPUs in use, of all GPUs</text>'
    )
    return found
