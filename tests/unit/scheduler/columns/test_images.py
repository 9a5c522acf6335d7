"""Which rows have an image after the images of nodes have changed."""

import pytest

from scheduler.columns.images import ImageIndex
from scheduler.model.node import Image

A, B, C = ("a", 10), ("b", 20), ("c", 30)


def rows(index: ImageIndex) -> dict[str, tuple[int, list[int]]]:
    found = {name: index.on(name) for name in ("a", "b", "c")}
    return {name: (one[0], sorted(one[1].tolist())) for name, one in found.items() if one}


@pytest.mark.parametrize(
    ("old", "new", "want", "changes"),
    [
        pytest.param((), (A, B), {"a": (10, [0, 1]), "b": (20, [1])}, 2, id="a new node"),
        pytest.param((A, B), (A, B), {"a": (10, [0, 1]), "b": (20, [1])}, 2, id="no change"),
        pytest.param(
            (A,), (A, B, C), {"a": (10, [0, 1]), "b": (20, [1]), "c": (30, [1])}, 3, id="pulled"
        ),
        pytest.param((A, B), (B,), {"a": (10, [0]), "b": (20, [1])}, 3, id="one is removed"),
        pytest.param((A, B), (C,), {"a": (10, [0]), "c": (30, [1])}, 3, id="all are replaced"),
        pytest.param((A, B), (), {"a": (10, [0])}, 3, id="none is left"),
        pytest.param(
            (), (("a", 99),), {"a": (10, [0, 1])}, 2, id="the first reported size stays in use"
        ),
    ],
)
def test_rows_of_images(
    old: tuple[Image, ...],
    new: tuple[Image, ...],
    want: dict[str, tuple[int, list[int]]],
    changes: int,
) -> None:
    """Row 0 has image a; row 1 gets `old`, then `new`."""
    index = ImageIndex()
    index.move(0, (), (A,))
    index.move(1, (), old)
    index.move(1, old, new)
    assert (rows(index), index.changes) == (want, changes)
