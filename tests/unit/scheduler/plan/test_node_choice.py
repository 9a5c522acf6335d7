"""Nodes for many equal pods at once: few nodes, few domains, little left over."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.plan import node_choice
from scheduler.plan.node_choice import NodeChoice

RACKS = [1, 1, 1, 2, 2, 2]


def choose(capacity: list[int], wanted: int, *levels: list[int]) -> NodeChoice | None:
    return node_choice.choose(
        np.array(capacity, dtype=np.int64),
        wanted,
        [np.array(level, dtype=np.int32) for level in levels],
        leftover=np.array(capacity, dtype=np.float64),
        rank=np.arange(len(capacity), dtype=np.int32),
    )


@pytest.mark.parametrize(
    ("capacity", "wanted", "levels", "want"),
    [
        pytest.param(
            [8, 5, 6], 5, [], NodeChoice((1,), 0), id="one row that holds all, the tightest"
        ),
        pytest.param([8, 8], 17, [], None, id="more than the capacity"),
        pytest.param([0, -3], 1, [], None, id="nothing is free"),
        pytest.param(
            [8, 3, 4, 8], 12, [], NodeChoice((0, 2), 0), id="the last one is the tightest"
        ),
        pytest.param(
            [8, 6, 6, 8],
            12,
            [],
            NodeChoice((1, 2), 0),
            id="two holes rather than one and a whole node",
        ),
        pytest.param(
            [8, 4, 4, 8, 8, 0],
            16,
            [RACKS],
            NodeChoice((3, 4), 0),
            id="one rack rather than two with as many nodes",
        ),
        pytest.param(
            [8, 4, 4, 0, 6, 6],
            16,
            [RACKS],
            NodeChoice((0, 1, 2), 0),
            id="the rack with the least left over, however many nodes are needed",
        ),
        pytest.param(
            [8, 1, 1, 8, 2, 1],
            16,
            [RACKS],
            NodeChoice((3, 0), 0),
            id="fewer nodes come before fewer racks",
        ),
        pytest.param(
            [8, 0, 0, 8, 0, 0, 8],
            16,
            [[*RACKS, 3], [1, 1, 1, 2, 2, 2, 2]],
            NodeChoice((3, 6), 0),
            id="one zone when no rack can hold them",
        ),
        pytest.param(
            [8, 8, 8, 8],
            16,
            [[0, 0, 2, 2]],
            NodeChoice((2, 3), 0),
            id="nodes that name no rack are no rack",
        ),
        pytest.param(
            [4, 8, 4, 2],
            4,
            [[1, 1, 2, 2]],
            NodeChoice((2,), 0),
            id="among equal nodes the one in the fuller rack",
        ),
    ],
)
def test_choice(
    capacity: list[int], wanted: int, levels: list[list[int]], want: NodeChoice | None
) -> None:
    assert choose(capacity, wanted, *levels) == want


def holders(capacity: list[int], rows: list[int], wanted: int, count: int) -> list[tuple[int, ...]]:
    """Every set of so many rows that holds all: the slow and certain way."""
    able = [row for row in rows if capacity[row] > 0]
    return [
        some for some in combinations(able, count) if sum(capacity[row] for row in some) >= wanted
    ]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_against_exhaustive_search(nodes: list[tuple[int, int]], wanted: int) -> None:
    capacity, racks = [free for free, _ in nodes], [rack for _, rack in nodes]
    everywhere = list(range(len(capacity)))
    fewest = next((n for n in range(1, 9) if holders(capacity, everywhere, wanted, n)), None)
    found = choose(capacity, wanted, racks)
    if fewest is None:
        assert found is None
        return
    assert found is not None
    assert (len(set(found.rows)), sum(capacity[row] for row in found.rows) - wanted) == (
        fewest,
        found.spare,
    )
    within = [
        some
        for rack in set(racks) - {0}
        for some in holders(capacity, [r for r in everywhere if racks[r] == rack], wanted, fewest)
    ]
    if within:
        assert len({racks[row] for row in found.rows}) == 1
