"""How often the scheduler searches victims."""

from scheduler.model.pod import PodKey
from scheduler.tenancy.preemption.rate_limit import (
    FIRST,
    LATEST,
    MAX_DUE,
    REMEMBERED,
    REST,
    SearchRateLimit,
)

A, B = PodKey("ns", "a"), PodKey("ns", "b")


def test_a_unit_waits_longer_after_every_search_that_found_no_victims() -> None:
    limit, now, pauses = SearchRateLimit(), 0.0, []
    for _ in range(6):
        assert limit.may_search(A, "like", now)
        limit.failed(A, "like", now)
        called = limit.next_at()
        assert called is not None
        assert (limit.may_search(A, "like", called - 0.1), limit.due(called - 0.1)) == (False, [])
        assert limit.due(called) == [A]
        pauses.append(called - now)
        now = called
    assert pauses == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, LATEST, LATEST]


def test_an_equal_waits_for_a_short_while_and_is_called() -> None:
    limit = SearchRateLimit()
    limit.failed(A, "like", 0.0)
    assert (limit.may_search(B, "like", 1.0), limit.may_search(B, "other", 1.0)) == (False, True)
    assert (limit.due(FIRST), limit.may_search(B, "like", FIRST)) == ([A, B], True)


def test_searching_leaves_time_for_placing() -> None:
    limit = SearchRateLimit()
    limit.searched(10.0, 11.0)
    later = 11.0 + REST
    assert (limit.may_search(A, "like", later - 0.1), limit.next_at()) == (False, later)
    assert (limit.due(later), limit.may_search(A, "like", later)) == ([A], True)


def test_a_placed_unit_is_forgotten_and_a_reset_unit_starts_anew() -> None:
    limit = SearchRateLimit()
    limit.failed(A, "like", 0.0)
    limit.failed(B, "other", 0.0)
    limit.forget(A)
    limit.reset(B)
    assert (limit.due(FIRST), limit.may_search(B, "third", 1.0), len(limit)) == ([B], True, 0)


def test_a_pause_ends_when_the_class_of_the_unit_changes() -> None:
    """A search that fails in one class may succeed in another; the pause begins anew there."""
    limit = SearchRateLimit()
    for now in (0.0, 5.0, 15.0):
        limit.failed(A, "beyond its guarantee", now)
    found = (
        limit.may_search(A, "beyond its guarantee", 21.0),
        limit.may_search(A, "within its guarantee", 21.0),
    )
    limit.failed(A, "within its guarantee", 21.0)
    again = 21.0 + FIRST
    later = (
        limit.may_search(A, "within its guarantee", again - 0.1),
        limit.may_search(A, "within its guarantee", again),
    )
    assert (found, later) == ((False, True), (False, True))


def test_a_unit_that_failed_as_its_own_class_pauses_in_every_class() -> None:
    """The failure counts for this unit alone: other units of the class may search."""
    limit = SearchRateLimit()
    limit.failed(A, A, 0.0)
    found = [limit.may_search(key, "like", now) for key, now in ((A, 1.0), (B, 1.0), (A, FIRST))]
    assert found == [False, True, True]


def test_a_failed_search_is_not_repeated_until_the_cluster_changes() -> None:
    limit = SearchRateLimit()
    limit.failed(A, "like", 0.0, "state 1")
    later = LATEST + 1.0
    assert [
        limit.may_search(B, "like", later, "state 1"),
        limit.may_search(B, "like", later, "state 2"),
        limit.may_search(B, "other", later, "state 1"),
        limit.may_search(B, "like", REMEMBERED + 1.0, "state 1"),
    ] == [False, True, True, True]


def test_a_postponed_unit_is_called_and_only_some_units_at_a_time() -> None:
    limit = SearchRateLimit()
    keys = [PodKey("ns", f"u{number}") for number in range(MAX_DUE + 2)]
    for key in keys:
        limit.postpone(key, 0.0)
    due = [limit.due(now) for now in (FIRST - 0.1, FIRST, FIRST, FIRST)]
    assert due == [[], keys[:MAX_DUE], keys[MAX_DUE:], []]
