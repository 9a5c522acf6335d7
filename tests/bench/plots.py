"""A matplotlib figure as SVG text: equal measurements give equal bytes, and text stays text."""

import io

import matplotlib as mpl
from matplotlib.figure import Figure

COLOURS = {
    "ours": "#0b7a75",
    "random": "#8a6d3b",
    "fifo": "#8a6d3b",
    "best-fit": "#c0392b",
    "greedy": "#c0392b",
    "gpu-packing": "#5b5bd6",
}


def svg(figure: Figure) -> str:
    text = io.StringIO()
    # Ids of clip paths come from the salt instead of a random number; fonts are the reader's.
    with mpl.rc_context({"svg.hashsalt": "kubenexus", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
