"""How often somebody is looked for who could go."""

from scheduler.model import PodKey
from scheduler.tenancy.pacing import FIRST, LATEST, REST, Pacing

A, B = PodKey("ns", "a"), PodKey("ns", "b")


def test_a_unit_waits_longer_after_every_search_that_found_nobody() -> None:
    pacing, now, pauses = Pacing(), 0.0, []
    for _ in range(6):
        assert pacing.may(A, "like", now)
        pacing.failed(A, "like", now)
        called = pacing.next_at()
        assert called is not None
        assert (pacing.may(A, "like", called - 0.1), pacing.due(called - 0.1)) == (False, [])
        assert pacing.due(called) == [A]
        pauses.append(called - now)
        now = called
    assert pauses == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST, LATEST, LATEST]


def test_an_equal_waits_for_a_short_while_and_is_called() -> None:
    pacing = Pacing()
    pacing.failed(A, "like", 0.0)
    assert (pacing.may(B, "like", 1.0), pacing.may(B, "other", 1.0)) == (False, True)
    assert (pacing.due(FIRST), pacing.may(B, "like", FIRST)) == ([A, B], True)


def test_searching_leaves_time_for_placing() -> None:
    pacing = Pacing()
    pacing.took(10.0, 11.0)
    later = 11.0 + REST
    assert (pacing.may(A, "like", later - 0.1), pacing.next_at()) == (False, later)
    assert (pacing.due(later), pacing.may(A, "like", later)) == ([A], True)


def test_whoever_is_placed_is_forgotten_and_whoever_was_refused_starts_anew() -> None:
    pacing = Pacing()
    pacing.failed(A, "like", 0.0)
    pacing.failed(B, "other", 0.0)
    pacing.forget(A)
    pacing.free(B)
    assert (pacing.due(FIRST), pacing.may(B, "third", 1.0), len(pacing)) == ([B], True, 0)
