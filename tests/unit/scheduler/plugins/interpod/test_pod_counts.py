"""Counts of selectors: few or many rows, bounded memory, and numbers that stay."""

import pytest

from scheduler.cache.snapshot import Snapshot
from scheduler.columns.node_table import NodeTable
from scheduler.model import label_selector
from scheduler.model.pod_affinity import NamespaceScope
from scheduler.plugins.interpod import pod_counts
from scheduler.plugins.interpod.pod_counts import PodCounts
from scheduler.plugins.interpod.selector_index import Group, NamespaceLabels
from tests.unit.scheduler.builders import a_node, a_pod


def selecting(**labels: str) -> Group:
    return ((NamespaceScope(("ns",)), label_selector.read({"matchLabels": labels})),)


def a_table(nodes: int) -> NodeTable:
    return Snapshot.of([a_node(f"n{i}") for i in range(nodes)]).table


@pytest.mark.parametrize("rows", [1, 128, 129, 300])
def test_a_count_is_the_same_for_few_rows_and_for_many(rows: int) -> None:
    counts = PodCounts(a_table(300), NamespaceLabels())
    pod = a_pod("p", labels={"app": "a"})
    for row in range(rows):
        counts.charge(pod, row)
    before = counts.count(selecting(app="a"), with_terminating=True).fit(512).copy()
    for row in range(0, rows, 2):
        counts.charge(pod, row)
    counts.drop(0)
    more = counts.count(selecting(app="a"), with_terminating=True).fit(512).copy()
    for row in range(0, rows, 2):
        if row:
            counts.uncharge(pod, row)
    after = counts.count(selecting(app="a"), with_terminating=True).fit(512)
    assert before.tolist() == [1] * rows + [0] * (512 - rows)
    assert [int(column.sum()) for column in (more, after)] == [
        rows - 1 + (rows + 1) // 2 - 1,
        rows - 1,
    ]


@pytest.mark.parametrize("first", [5, 200])
def test_a_count_sums_kinds_on_few_and_on_many_rows(first: int) -> None:
    counts = PodCounts(a_table(300), NamespaceLabels())
    for row in range(first):
        counts.charge(a_pod("p", labels={"app": "a", "own": "p"}), row)
    for row in range(100, 300):
        counts.charge(a_pod("q", labels={"app": "a", "own": "q"}), row)
    column = counts.count(selecting(app="a"), with_terminating=True).fit(512).tolist()
    assert column == [(row < first) + (100 <= row < 300) for row in range(512)]


def test_counts_without_pods_take_no_columns_and_are_never_dropped() -> None:
    counts = PodCounts(a_table(300), NamespaceLabels())
    opened = [counts.count(selecting(app=f"a{i}"), with_terminating=True) for i in range(5000)]
    assert (len(counts), counts.epoch) == (5000, 0)
    assert counts.count(selecting(app="a0"), with_terminating=True) is opened[0]


def test_beyond_the_bound_the_counts_unused_for_longest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_counts, "_MOST", 100)
    counts = PodCounts(a_table(1), NamespaceLabels())
    counts.charge(a_pod("p", labels={"app": "a0", "team": "t"}), 0)
    groups = [selecting(app=f"a{i}") for i in range(101)]
    for group in groups[:100]:
        counts.count(group, with_terminating=True)
    used, numbers = (
        groups[0],
        [counts.count(groups[i], with_terminating=True).number for i in (0, 1)],
    )
    kept = counts.count(used, with_terminating=True)
    counts.count(groups[100], with_terminating=True)
    again = [counts.count(groups[i], with_terminating=True) for i in (0, 2)]
    assert (len(counts), counts.epoch) == (76, 1)
    assert again[0] is kept
    assert (kept.number, again[1].number) == (numbers[0], 3)
    assert [count.fit(1).tolist() for count in again] == [[1], [0]]


def test_a_full_table_of_columns_drops_a_quarter_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "_FEWEST", 8)
    monkeypatch.setattr(pod_counts, "_BYTES", 0)
    counts = PodCounts(a_table(200), NamespaceLabels())
    pod = a_pod("p", labels={f"l{i}": "x" for i in range(9)})
    for row in range(200):
        counts.charge(pod, row)
    for i in range(9):
        counts.count(selecting(**{f"l{i}": "x"}), with_terminating=True)
    assert (len(counts), counts.epoch) == (6, 1)
    totals = [
        int(counts.count(selecting(**{f"l{i}": "x"}), with_terminating=True).fit(256).sum())
        for i in range(9)
    ]
    assert totals == [200] * 9
