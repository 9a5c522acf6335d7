"""Amounts of any size and number: a row of the table never shows capacity that is not there."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.saturation import SaturatingSums
from scheduler.model.resources import LARGEST
from tests.unit.scheduler.bench import Bench
from tests.unit.scheduler.builders import a_node, a_pod

amounts = st.integers(0, 56).map(lambda bits: min(2**bits, LARGEST))


@given(st.lists(amounts, max_size=40))
def test_a_cell_saturates_and_comes_back(changes: list[int]) -> None:
    column, sums, exact = np.zeros(2, dtype=np.int64), SaturatingSums(), 0
    for change in [*(-amount for amount in changes), *sorted(changes)]:
        sums.add(column, "cpu", 1, change)
        exact += change
        assert column[1] == max(-LARGEST, min(LARGEST, exact))
        assert sums.exact(column, "cpu", 1) == exact
    assert (column.tolist(), len(sums)) == ([0, 0], 0)


def test_another_node_on_the_row_starts_from_nothing() -> None:
    snapshot = Snapshot.of([a_node("a", memory="16Gi")])
    for i in range(300):
        snapshot.charge(a_pod(f"p{i}", memory="8Ei"), "a")
    snapshot.drop_node("a")
    snapshot.put_node(a_node("b", memory="16Gi"))
    assert snapshot.table.free_at(snapshot.table.rows["b"], "memory") == 16 * 2**30


def test_bound_pods_beyond_every_amount_leave_nothing_free() -> None:
    asyncio.run(_bound_beyond_every_amount())


async def _bound_beyond_every_amount() -> None:
    """300 pods that another scheduler bound request the most that a quantity can say."""
    bench = Bench()
    bench.node("a", memory="16Gi", pods="1000")
    bench.node("b", memory="16Gi")
    snapshot = bench.scheduler.cache.snapshot
    before = snapshot.state()
    for i in range(300):
        bench.pod(f"x{i}", node="a", memory="8Ei", schedulerName="other")
    bench.pod("p", memory="1Gi")
    await bench.settle(2)
    assert bench.api.nodes()["p"] == "b"
    assert snapshot.table.free_at(snapshot.table.rows["a"], "memory") == -LARGEST
    for i in range(300):
        bench.delete(f"x{i}")
    bench.delete("p")
    assert snapshot.state() == before
