"""Counters by which others notice that a snapshot has changed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.policy import PlacementTables
from tests.unit.scheduler.builders import a_node, a_pod

Change = Callable[[Snapshot], object]

NODE = a_node("n")
POD = a_pod("p")
NOMINEE = a_pod("other", schedulerName="else", status={"nominatedNodeName": "n"})


def _trial(snapshot: Snapshot) -> None:
    with snapshot.trial():
        snapshot.suppose(POD, "n")


def _nominate_and_withdraw(snapshot: Snapshot) -> None:
    snapshot.nominate(NOMINEE)
    snapshot.nominate(replace(NOMINEE, nominated=""))


CHANGES: dict[str, Change] = {
    "put_node": lambda snapshot: snapshot.put_node(replace(NODE, labels=(("a", "b"),))),
    "put_node, as before": lambda snapshot: snapshot.put_node(NODE),
    "drop_node": lambda snapshot: snapshot.drop_node("m"),
    "charge": lambda snapshot: snapshot.charge(POD, "n"),
    "release": lambda snapshot: snapshot.release(POD, "n"),
    "cluster_event": lambda snapshot: snapshot.cluster_event(),
    "adopt": lambda snapshot: snapshot.adopt(PlacementTables()),
    "nominate": lambda snapshot: snapshot.nominate(NOMINEE),
    "nominate, no longer": _nominate_and_withdraw,
    "trial": _trial,
}


def a_snapshot() -> Snapshot:
    return Snapshot.of([NODE, a_node("m")], [(POD, "n")])


@pytest.mark.parametrize(
    ("change", "moved", "freed"),
    [
        ("put_node", True, True),
        ("put_node, as before", False, False),
        ("drop_node", True, False),
        ("charge", True, False),
        ("release", True, True),
        ("cluster_event", True, True),
        ("adopt", True, True),
        ("nominate", False, False),
        ("nominate, no longer", False, True),
        ("trial", True, False),
    ],
)
def test_counters(change: str, moved: bool, freed: bool) -> None:
    """`moved`: something may differ; `freed`: a pod may fit that did not."""
    snapshot = a_snapshot()
    before = snapshot.moved, snapshot.freed
    CHANGES[change](snapshot)
    assert (snapshot.moved > before[0], snapshot.freed > before[1]) == (moved, freed)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=8))
def test_counters_never_return_to_an_earlier_value(changes: list[str]) -> None:
    """A component that compares with the value it saw last would miss the changes between."""
    snapshot = a_snapshot()
    seen = [(snapshot.moved, snapshot.freed, snapshot.table.statics)]
    for change in changes:
        snapshot.put_node(a_node("m"))
        if change == "release":
            snapshot.charge(POD, "n")
        CHANGES[change](snapshot)
        seen.append((snapshot.moved, snapshot.freed, snapshot.table.statics))
    for column in zip(*seen, strict=True):
        assert list(column) == sorted(column)
