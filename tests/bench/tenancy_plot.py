"""
The tenancy benchmark as bars for each demand and strategy, in two panels side by side.

A bar is the median over the seeds, the line on it their spread; durations are exact.
"""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from kubenexus.simulate.virtual_time.engine import STRATEGIES
from tests.bench import plots, tenancy_report

Sample = dict[str, Any]

BAR: Final = 0.27  # of the distance between two demands
PANELS: Final = (
    ("large_p95", 1 / 60, "p95 wait of the largest tenth of gangs, minutes"),
    ("deviation", 1.0, "largest deviation from the weights over an hour, points"),
)


def svg(samples: Sequence[Sample]) -> str:
    exact = tenancy_report.exact(samples)
    figure = Figure(figsize=(9.6, 4), layout="constrained")
    panels: Sequence[Axes] = figure.subplots(1, len(PANELS))
    for axes, (name, scale, title) in zip(panels, PANELS, strict=True):
        _draw(axes, exact, name, scale)
        axes.set_title(title, fontsize=10)
    keys = [Patch(color=plots.COLOURS[strategy], label=strategy) for strategy in STRATEGIES]
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return plots.svg(figure)


def _draw(axes: Axes, samples: Sequence[Sample], name: str, scale: float) -> None:
    demands = sorted({sample["demand"] for sample in samples})
    for place, strategy in enumerate(STRATEGIES):
        offset = (place - (len(STRATEGIES) - 1) / 2) * BAR
        for group, demand in enumerate(demands):
            values = [
                scale * sample[name]
                for sample in samples
                if (sample["demand"], sample["strategy"]) == (demand, strategy)
                and sample[name] is not None
            ]
            if values:
                _bar(axes, group + offset, values, plots.COLOURS[strategy])
    axes.set_xticks(range(len(demands)), [f"{100 * demand:.0f} % demand" for demand in demands])
    axes.spines[["top", "right"]].set_visible(False)


def _bar(axes: Axes, place: float, values: Sequence[float], colour: str) -> None:
    median = statistics.median(values)
    spread = [[median - min(values)], [max(values) - median]]
    axes.bar(
        place,
        median,
        width=BAR * 0.9,
        color=colour,
        yerr=spread,
        ecolor="#222222",
    )
    axes.annotate(
        f"{median:.3g}",
        (place, max(values)),
        xytext=(0, 3),
        textcoords="offset points",
        horizontalalignment="center",
        fontsize=9,
    )
