"""
docs/architecture.svg, from the import graph and the layer contracts of pyproject.toml.

    python -m tests.architecture      writes the picture; a test compares it with the code

The first panel shows which package imports which. The other two show the layers inside `scheduler`
and `policies` with the number of modules in each folder: a box imports boxes below it only.
"""

import re
import tomllib
from collections.abc import Sequence
from typing import Final

import grimp
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from tests.bench import plots
from tests.pages import ROOT

PICTURE: Final = ROOT / "docs" / "architecture.svg"
PACKAGES: Final = ("kubenexus", "webhook", "scheduler", "cluster", "policies")
PLACES: Final = {
    "kubenexus": (5.0, 3.0),
    "webhook": (2.5, 2.0),
    "scheduler": (7.5, 2.0),
    "cluster": (5.0, 1.0),
    "policies": (5.0, 0.0),
}
LAYERED: Final = ("scheduler", "policies")
_INK, _PAPER, _LINE = "#1d3b3a", "#e4f1f0", "#0b7a75"

Layers = tuple[tuple[str, ...], ...]


def imports() -> list[tuple[str, str]]:
    """(importer, imported) for each pair of packages."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found = {
        (importer.split(".")[0], imported.split(".")[0])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return sorted(pair for pair in found if pair[0] != pair[1])


def layers(package: str) -> Layers:
    """As the import-linter contract of the package lists them, top first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [
        row
        for row in project["tool"]["importlinter"]["contracts"]
        if row.get("containers") == [package]
    ]
    return tuple(tuple(re.split(r" *\| *", row)) for row in contract["layers"])


def modules(package: str, child: str) -> int:
    """How many modules a folder holds; 0: it is a module itself."""
    folder = ROOT / package / child
    return sum(path.stem != "__init__" for path in folder.rglob("*.py")) if folder.is_dir() else 0


def picture() -> str:
    heights = [len(PLACES) + 1.0, *(len(layers(package)) for package in LAYERED)]
    figure = Figure(figsize=(9, 0.55 * sum(heights)))
    panels = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights})
    _packages(panels[0])
    for panel, package in zip(panels[1:], LAYERED, strict=True):
        rows = layers(package)
        _panel(panel, f"{package}: each layer imports layers below it", len(rows))
        for number, row in enumerate(rows):
            labels = [(child, modules(package, child)) for child in row]
            _row(panel, [f"{c}/  {n}" if n else c for c, n in labels], len(rows) - number - 1)
    figure.tight_layout()
    return plots.svg(figure)


def _packages(panel: Axes) -> None:
    _panel(panel, "packages: an arrow points to what is imported", len(PLACES) - 1)
    for importer, imported in imports():
        (x1, y1), (x2, y2) = PLACES[importer], PLACES[imported]
        far = y1 - y2 > 1.5  # drawn behind the box between
        shift = (x1 - x2) / 5 if x1 != x2 else 0.4 - 0.4 * (y1 - y2)
        outer = 0.3 if far else -0.3
        panel.annotate(
            "",
            xy=(x2 + shift * (1 + outer if x1 != x2 else 1), y2 + 0.3),
            xytext=(x1 + shift * (outer if x1 != x2 else 1), y1 - 0.3),
            arrowprops={"arrowstyle": "->", "color": _LINE},
            zorder=1,
        )
    for package, place in PLACES.items():
        _box(panel, package, place, 2.6)


def _panel(panel: Axes, title: str, rows: int) -> None:
    panel.set_title(title, fontsize=10, color=_INK, loc="left")
    panel.set_xlim(0, 10)
    panel.set_ylim(-0.5, rows - 0.5)
    panel.axis("off")


def _row(panel: Axes, labels: Sequence[str], height: int) -> None:
    """Boxes side by side."""
    width = 10 / len(labels)
    for number, label in enumerate(labels):
        _box(panel, label, (width * (number + 0.5), height), min(width - 0.4, 4.0))


def _box(panel: Axes, label: str, middle: tuple[float, float], width: float) -> None:
    x, y = middle
    corner = (x - width / 2, y - 0.25)
    box = FancyBboxPatch(
        corner, width, 0.5, boxstyle="round,pad=0.06", facecolor=_PAPER, edgecolor=_LINE, zorder=2
    )
    panel.add_patch(box)
    panel.text(x, y, label, fontsize=9, color=_INK, ha="center", va="center", zorder=3)


if __name__ == "__main__":
    PICTURE.write_text(picture())
