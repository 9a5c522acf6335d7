"""The lower bound by resource amounts is never later than the start that the planner finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.snapshot import Snapshot
from scheduler.model.assignment import NO_ASSIGNMENT
from scheduler.model.plan import Placement
from scheduler.model.unit import units
from scheduler.plan import planner
from scheduler.plan.memo import Memo
from scheduler.tenancy.backfill.lower_bound import lower_bound
from scheduler.tenancy.backfill.start_time import ExpectedEnd, earliest_start
from tests.unit.scheduler.builders import a_gang, a_node, a_pod

nodes = st.lists(st.integers(1, 8), min_size=1, max_size=4)
running = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 100)), max_size=12
)


@settings(max_examples=100, deadline=None)
@given(gpus=nodes, work=running, want=st.tuples(st.integers(1, 3), st.integers(1, 8)))
def test_the_search_from_the_bound_on_finds_the_same_start(
    gpus: list[int], work: list[tuple[int, int, int]], want: tuple[int, int]
) -> None:
    free, placed = list(gpus), []
    for number, (place, requested, end) in enumerate(work):
        node = place % len(gpus)
        if requested <= free[node]:
            free[node] -= requested
            placed.append((a_pod(f"r{number}", gpus=requested, cpu="0"), f"n{node}", float(end)))
    snapshot = Snapshot.of(
        [a_node(f"n{i}", gpus=count) for i, count in enumerate(gpus)],
        [(pod, node) for pod, node, _ in placed],
    )
    ends = sorted(
        (ExpectedEnd(end, Placement(pod, node, NO_ASSIGNMENT)) for pod, node, end in placed),
        key=lambda end: (end.at, end.placement.pod.uid),
    )
    [unit] = units(a_gang(want[0], gpus=want[1], cpu="0"))

    def search(not_before: float) -> float | None:
        found = earliest_start(
            unit.key,
            snapshot,
            ends,
            lambda memo: planner.plan(unit, snapshot, memo=memo),
            now=0.0,
            not_before=not_before,
        )
        return None if found is None else found.start

    bound = lower_bound(unit, snapshot, ends, Memo())
    whole = min(
        (
            at
            for at in sorted({end.at for end in ends})
            if search(at) == at and _fits(snapshot, ends, at, unit.need, want[1])
        ),
        default=None,
    )
    assert (None if bound is None else search(bound)) == search(0.0) == whole


def _fits(snapshot: Snapshot, ends: list[ExpectedEnd], at: float, need: int, gpus: int) -> bool:
    """Counted by hand."""
    free = {name: snapshot.table.free_at(row, "nvidia.com/gpu") for name, row in _rows(snapshot)}
    for end in ends:
        if end.at <= at:
            free[end.placement.node] += end.placement.pod.spec.host_request.gpus
    return sum(count // gpus for count in free.values()) >= need


def _rows(snapshot: Snapshot) -> list[tuple[str, int]]:
    return list(snapshot.table.rows.items())
