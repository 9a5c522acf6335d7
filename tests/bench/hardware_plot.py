"""
The curves of the replays: GPUs requested so far from left to right, GPUs in use upwards.

A line is the median over the seeds, the band around it their spread.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench import plots
from tests.bench.hardware_replay import POLICIES

Sample = dict[str, Any]
Curve = Sequence[Sequence[float]]

REQUESTED: Final = (80, 130)  # percent, from edge to edge
USED: Final = (80, 100)
LABEL_GAP: Final = 0.8  # percentage points between two names beside the ends of the lines


def svg(samples: Sequence[Sample], title: str) -> str:
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    ends = {}
    for policy in POLICIES:
        if curves := [sample["curve"] for sample in samples if sample["policy"] == policy]:
            ends[policy] = _draw(axes, policy, curves)
    _name_lines(axes, ends)
    axes.set(
        title=title,
        xlabel="GPUs requested so far, % of all GPUs",
        ylabel="GPUs in use, % of all GPUs",
        xlim=REQUESTED,
        ylim=USED,
    )
    axes.grid(color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
    return plots.svg(figure)


def _draw(axes: Axes, policy: str, curves: Sequence[Curve]) -> float:
    """Draw one policy; the median at the right edge."""
    requested = range(REQUESTED[0], REQUESTED[1] + 1)
    used = [
        [100 * _interpolated(curve, percent / 100) for curve in curves] for percent in requested
    ]
    median = [statistics.median(values) for values in used]
    colour = plots.COLOURS[policy]
    lowest = [min(values) for values in used]
    highest = [max(values) for values in used]
    axes.fill_between(requested, lowest, highest, color=colour, alpha=0.15, linewidth=0)
    axes.plot(requested, median, color=colour, linewidth=2, gid=policy)
    return median[-1]


def _interpolated(curve: Curve, requested: float) -> float:
    before = curve[0]
    for point in curve:
        if point[0] >= requested:
            span = point[0] - before[0]
            part = (requested - before[0]) / span if span else 1.0
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


def _name_lines(axes: Axes, ends: dict[str, float]) -> None:
    """Beside the ends of the lines, far enough apart to be read."""
    height = float(USED[1]) + LABEL_GAP
    for policy, used in sorted(ends.items(), key=lambda item: -item[1]):
        height = min(used, height - LABEL_GAP)
        axes.annotate(
            f"{policy} {used:.1f} %",
            (REQUESTED[1], height),
            xytext=(6, 0),
            textcoords="offset points",
            verticalalignment="center",
            color=plots.COLOURS[policy],
            annotation_clip=False,
        )
