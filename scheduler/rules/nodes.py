"""Node selector and node affinity over the nodes' labels and names."""

import numpy as np

from ..columns import Bools, Columns
from ..model import Shape


def matching(columns: Columns, shape: Shape) -> Bools:
    """The rows that the node selector and the required node affinity allow."""
    rows: Bools = np.ones_like(columns.alive)
    for label, value in shape.selector:
        rows &= columns.labelled(label, value)
    return rows
